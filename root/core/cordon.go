package core

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// An operator of the root keeps new instances from a site, or has all that can leave it. Both are the root's own decision about what it
// places: the site is not asked, and grants nothing. What the site has of its own stays there.
//
//	each instance: no other site ──retry──► copy at another site ──ready──► it is the instance, the first one ends
//	               bound here: stays, with the reason
//
// It goes on until the site may be used again, so that what starts there late leaves as well.

const prefixCordon = "cordon/"

const (
	// siteDrainRetry is how long after a try another is made for an instance of a drained site.
	siteDrainRetry = 10 * time.Second
	// maxSiteMoves bounds the instances that leave a site at the same time.
	maxSiteMoves = 100
)

type (
	// CordonCluster keeps new instances from a site. An empty reason ends that, a drain, and what was counted against the site.
	CordonCluster struct{ Name, Reason string }
	// DrainCluster cordons a site and has what can leave it.
	DrainCluster struct {
		Name, Reason string
		Parallel     int // copies at once; 0: one
	}
)

// cordon is what an operator wants of a site. The zero value of Parallel means that it is only cordoned.
type cordon struct {
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since"`
	Parallel int       `json:"parallel,omitempty"` // it is drained: copies at once
	Told     bool      `json:"told,omitempty"`     // that nothing is left that can leave
	stays    map[skerry.InstanceID]view.StayView
	retry    map[skerry.InstanceID]time.Time // no try before
}

// cordons owns what operators want of sites, by site.
type cordons struct {
	all map[string]*cordon
	due time.Time // when to look at drained sites again; zero: when something happens
}

func newCordons() *cordons { return &cordons{all: map[string]*cordon{}} }

func (cs *cordons) load(site string, value []byte) error {
	k := new(cordon)
	cs.all[site] = k
	return json.Unmarshal(value, k)
}

// reason is why a site is cordoned, or empty.
func (cs *cordons) reason(site string) string {
	if k := cs.all[site]; k != nil {
		return k.Reason
	}
	return ""
}

func (cs *cordons) set(site string, k *cordon, fx *wire.Effects) {
	cs.all[site] = k
	data, err := json.Marshal(k)
	if err != nil {
		panic("cordons always marshal: " + err.Error())
	}
	fx.Put(prefixCordon+site, data)
}

func (cs *cordons) forget(site string, fx *wire.Effects) {
	if cs.all[site] != nil {
		delete(cs.all, site)
		fx.Delete(prefixCordon + site)
	}
}

// again has drained sites looked at again, at a time or earlier.
func (cs *cordons) again(at time.Time) {
	if cs.due.IsZero() || at.Before(cs.due) {
		cs.due = at
	}
}

// cordonMessage takes what operators want of sites, and reports whether it is that.
func cordonMessage(c *Core, now time.Time, msg any, fx *wire.Effects) bool {
	switch m := msg.(type) {
	case CordonCluster:
		cordonCluster(c, now, m, fx)
	case DrainCluster:
		drainCluster(c, now, m, fx)
	default:
		return false
	}
	return true
}

func cordonCluster(c *Core, now time.Time, m CordonCluster, fx *wire.Effects) {
	if m.Reason == "" {
		c.suspects.trustCluster(now, TrustCluster{m.Name}, fx)
		if c.suspects.cordons.all[m.Name] != nil {
			c.suspects.cordons.forget(m.Name, fx)
			c.suspects.rankSite(m.Name)
			c.suspects.siteEvent(fx, now, wire.EventNormal, "ClusterUncordoned", m.Name, "cluster "+m.Name+" gets new instances again")
			c.Apps.RetryNow()
		}
		return
	}
	if c.Children.Get(m.Name) == nil {
		fx.Err = noCluster(m.Name)
		return
	}
	c.suspects.cordons.set(m.Name, &cordon{Reason: m.Reason, Since: now}, fx)
	c.suspects.rankSite(m.Name)
	c.suspects.siteEvent(fx, now, wire.EventNormal, "ClusterCordoned", m.Name, "cluster "+m.Name+" gets no new instances: "+m.Reason)
}

func noCluster(name string) *skerry.Error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no cluster %q", name).WithHint("`skerry get clusters` lists them")
}

func drainCluster(c *Core, now time.Time, m DrainCluster, fx *wire.Effects) {
	switch {
	case c.Children.Get(m.Name) == nil:
		fx.Err = noCluster(m.Name)
		return
	case m.Parallel < 0 || m.Parallel > maxSiteMoves:
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "%d copies at once are out of range; from 1 to %d are allowed", m.Parallel, maxSiteMoves)
		return
	}
	c.suspects.cordons.set(m.Name, &cordon{Reason: cmp.Or(m.Reason, "it is drained"), Since: now, Parallel: max(1, m.Parallel)}, fx)
	c.suspects.rankSite(m.Name)
	c.suspects.siteEvent(fx, now, wire.EventNormal, "ClusterDraining", m.Name,
		"cluster "+m.Name+" is drained: "+c.suspects.cordons.reason(m.Name))
}

// drainClusters moves on what operators asked to be drained.
func drainClusters(c *Core, now time.Time, fx *wire.Effects) {
	cs := c.suspects.cordons
	cs.due = time.Time{}
	for _, site := range slices.Sorted(maps.Keys(cs.all)) {
		if k := cs.all[site]; k.Parallel > 0 {
			drainSite(c, now, site, k, fx)
		}
	}
}

func drainSite(c *Core, now time.Time, site string, k *cordon, fx *wire.Effects) {
	if k.retry == nil {
		k.retry = map[skerry.InstanceID]time.Time{}
	}
	held, stays, moving, left := c.Apps.HeldBy(site), map[skerry.InstanceID]view.StayView{}, 0, 0
	for _, i := range held {
		if c.Apps.Replaced(i) {
			moving++
		}
	}
	for _, i := range held {
		if i.Stopping || i.State.Final() {
			continue
		}
		if why := c.Apps.Bound(i); why != "" {
			stays[i.ID] = view.StayView{Instance: i.ID, Reason: why}
			continue
		}
		left++
		switch at := k.retry[i.ID]; {
		case c.Apps.Replaced(i) || i.Replaces != "":
		case now.Before(at):
			if was, ok := k.stays[i.ID]; ok {
				stays[i.ID] = was
			}
			c.suspects.cordons.again(at)
		case moving < k.Parallel:
			why := leaveSite(c, now, site, i, fx)
			k.retry[i.ID] = now.Add(siteDrainRetry)
			if why == "" {
				moving++
				break
			}
			stays[i.ID] = view.StayView{Instance: i.ID, Reason: why, Tries: true}
			c.suspects.cordons.again(k.retry[i.ID])
		}
	}
	maps.DeleteFunc(k.retry, func(id skerry.InstanceID, _ time.Time) bool {
		i := c.Apps.Instance(id)
		return i == nil || i.Holder != site
	})
	k.stays = stays
	if left == 0 && len(held) == len(stays) && !k.Told {
		k.Told = true
		c.suspects.cordons.set(site, k, fx)
		text := "cluster " + site + " is drained"
		if n := len(stays); n > 0 {
			text += fmt.Sprintf("; %d instances stay", n)
		}
		c.suspects.siteEvent(fx, now, wire.EventNormal, "ClusterDrained", site, text)
	}
}

// leaveSite starts a copy of an instance at another site, or says why not now. Nothing begins where no site can take it.
func leaveSite(c *Core, now time.Time, site string, i *apps.Instance, fx *wire.Effects) string {
	if k := c.Children.Get(site); i.Cut || k == nil || !k.Connected {
		return "its cluster is out of touch and may run it on, and there must not be another"
	}
	r := c.request(i, map[skerry.AppKey]*around{})
	r.Avoid = append(slices.Clone(r.Avoid), site)
	if names, d := c.fed.Rank(now, r, c.rounds, 1); len(names) == 0 {
		if why := slices.DeleteFunc(d.Why, func(r wire.Reason) bool { return r.What == "rejected" }); len(why) > 0 {
			return "no other cluster can take it: " + why[0].Text
		}
		return "no other cluster can take it"
	}
	return c.Apps.Leave(now, i, "cluster "+site+" is drained", fx)
}

// drainView shows how far the drain of a site is; nil: it is not drained.
func (c *Views) drainView(site string) *view.ClusterDrain {
	k := c.suspects.cordons.all[site]
	if k == nil || k.Parallel == 0 {
		return nil
	}
	v := &view.ClusterDrain{Since: k.Since, Parallel: k.Parallel, Done: k.Told}
	for _, i := range c.Apps.HeldBy(site) {
		stay, stays := k.stays[i.ID]
		switch {
		case i.Stopping || i.State.Final():
			v.Ending++
			continue
		case c.Apps.Replaced(i):
			v.Moving++
		case stays:
			v.Stays = append(v.Stays, stay)
			if !stay.Tries {
				continue
			}
		}
		v.Left++
	}
	return v
}
