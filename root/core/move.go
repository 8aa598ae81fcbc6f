package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// MoveToCluster moves an instance to a certain other cluster, because somebody wants that. The result is the name of the
// instance there; what stands against it is an error.
type MoveToCluster struct {
	ID      skerry.InstanceID
	To, Why string
}

func (c *Core) moveToCluster(now time.Time, m MoveToCluster, fx *wire.Effects) {
	i, err := c.movable(now, m.ID, m.To)
	if err != nil {
		fx.Err = err
		return
	}
	id, refused := c.Apps.MoveTo(now, i, m.To, m.Why, fx)
	if refused != nil {
		fx.Err = refused
		return
	}
	fx.Result = id
}

// Movable gives what a certain other cluster would be offered of an instance, or why that may not be.
func (c *Core) Movable(now time.Time, id skerry.InstanceID, to string) (*spec.Assignment, error) {
	i, err := c.movable(now, id, to)
	if err != nil {
		return nil, err
	}
	return i.Assignment(nil), nil
}

// movable gives an instance that may be offered to a certain other cluster, or why it may not.
func (c *Core) movable(now time.Time, id skerry.InstanceID, to string) (*apps.Instance, error) {
	inst := c.Apps.Instance(id)
	switch {
	case inst == nil:
		return nil, noInstance(id)
	case c.Children.Get(to) == nil:
		return nil, skerry.Errorf(skerry.CodeNotFound, "there is no cluster %q", to).WithHint("`skerry get clusters` lists them")
	case inst.Holder == to:
		return nil, skerry.Errorf(skerry.CodeInvalid, "instance %s is at cluster %s already", id,
			to).WithHint("without a cluster it moves to another worker of its own")
	case inst.Spec == nil || inst.Holder == "":
		return nil, skerry.Errorf(skerry.CodeConflict, "instance %s has no place yet", id).WithHint("`skerry explain %s` shows why", id)
	}
	r := c.request(inst, map[skerry.AppKey]*around{})
	r.Avoid = nil
	for _, name := range c.Children.Names() {
		if name != to {
			r.Avoid = append(r.Avoid, name)
		}
	}
	if names, d := c.fed.Rank(now, r, c.rounds, 1); len(names) == 0 {
		var why []wire.Reason
		for _, k := range d.Top {
			if k.Name == to && k.Out != nil {
				why = []wire.Reason{*k.Out}
			}
		}
		if why == nil {
			why = slices.DeleteFunc(d.Why, func(r wire.Reason) bool { return r.What == "rejected" })
		}
		return nil, Unfit(id, to, why)
	}
	return inst, nil
}

// Unfit is the error of a cluster that cannot take an instance.
func Unfit(id skerry.InstanceID, to string, why []wire.Reason) error {
	err := skerry.Errorf(skerry.CodeConflict, "cluster %s cannot take instance %s", to, id)
	for _, r := range why {
		err.Problems = append(err.Problems, skerry.Problem{Path: r.What, Message: r.Text, Hint: r.Hint})
	}
	return err
}

const (
	// siteDrainRetry is how long an instance of a drained site waits where no other site could take it.
	siteDrainRetry = 10 * time.Second
	// siteFailedRetry is how long after a copy was begun another is, if that came to nothing.
	siteFailedRetry = 30 * time.Second
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

func cordonCluster(core *Core, now time.Time, msg CordonCluster, fx *wire.Effects) {
	if msg.Reason == "" {
		core.suspects.trustCluster(now, TrustCluster{msg.Name}, fx)
		if core.suspects.cordons.all[msg.Name] != nil {
			core.suspects.cordons.forget(msg.Name, fx)
			core.suspects.rankSite(msg.Name)
			core.suspects.siteEvent(fx, now, wire.EventNormal, "ClusterUncordoned", msg.Name, "cluster "+msg.Name+" gets new instances again")
			core.Apps.RetryNow()
		}
		return
	}
	if core.Children.Get(msg.Name) == nil {
		fx.Err = noCluster(msg.Name)
		return
	}
	next := &cordon{Reason: msg.Reason, Since: now}
	if was := core.suspects.cordons.all[msg.Name]; was != nil { // a drain goes on
		next = was
		next.Reason = msg.Reason
	}
	core.suspects.cordons.set(msg.Name, next, fx)
	core.suspects.rankSite(msg.Name)
	core.suspects.siteEvent(fx, now, wire.EventNormal, "ClusterCordoned", msg.Name, "cluster "+msg.Name+" gets no new instances: "+msg.Reason)
}

func drainCluster(core *Core, now time.Time, msg DrainCluster, fx *wire.Effects) {
	switch {
	case core.Children.Get(msg.Name) == nil:
		fx.Err = noCluster(msg.Name)
		return
	case msg.Parallel < 0 || msg.Parallel > maxSiteMoves:
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "%d copies at once are out of range; from 1 to %d are allowed", msg.Parallel, maxSiteMoves)
		return
	}
	core.suspects.cordons.set(msg.Name, &cordon{Reason: cmp.Or(msg.Reason, "it is drained"), Since: now, Parallel: max(1, msg.Parallel)}, fx)
	core.suspects.rankSite(msg.Name)
	core.suspects.siteEvent(fx, now, wire.EventNormal, "ClusterDraining", msg.Name,
		"cluster "+msg.Name+" is drained: "+core.suspects.cordons.reason(msg.Name))
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

func drainSite(core *Core, now time.Time, site string, want *cordon, fx *wire.Effects) {
	if want.retry == nil {
		want.retry = map[skerry.InstanceID]time.Time{}
	}
	held, stays := core.Apps.HeldBy(site), map[skerry.InstanceID]view.StayView{}
	moving, left, ending := 0, 0, 0
	replaced := core.Apps.Replaced(held)
	for _, inst := range held {
		if replaced[inst.ID] {
			moving++
		}
	}
	leaver := leaver{core, site, map[skerry.AppKey]*around{}, map[sameAgain]string{}}
	for _, inst := range held {
		if inst.State.Final() {
			continue // such as a job that is done; it is kept to be shown
		}
		if inst.Stopping {
			ending++
			continue
		}
		if why := core.Apps.Bound(inst); why != "" {
			stays[inst.ID] = view.StayView{Instance: inst.ID, Reason: why}
			continue
		}
		left++
		switch at := want.retry[inst.ID]; {
		case replaced[inst.ID] || inst.Replaces != "":
		case now.Before(at):
			if was, ok := want.stays[inst.ID]; ok {
				stays[inst.ID] = was
			}
			core.suspects.cordons.again(at)
		case moving < want.Parallel:
			why := leaver.leave(now, inst, fx)
			want.retry[inst.ID] = now.Add(siteDrainRetry)
			if why == "" {
				moving++
				want.retry[inst.ID] = now.Add(siteFailedRetry)
				break
			}
			stays[inst.ID] = view.StayView{Instance: inst.ID, Reason: why, Tries: true}
			core.suspects.cordons.again(want.retry[inst.ID])
		}
	}
	maps.DeleteFunc(want.retry, func(id skerry.InstanceID, _ time.Time) bool {
		i := core.Apps.Instance(id)
		return i == nil || i.Holder != site
	})
	want.stays = stays
	if left == 0 && ending == 0 && !want.Told {
		want.Told = true
		core.suspects.cordons.set(site, want, fx)
		text := "cluster " + site + " is drained"
		if n := len(stays); n > 0 {
			text += fmt.Sprintf("; %d instances stay", n)
		}
		core.suspects.siteEvent(fx, now, wire.EventNormal, "ClusterDrained", site, text)
	}
}

// leaver has instances leave a site, in one look at it.
type leaver struct {
	*Core
	site  string
	round map[skerry.AppKey]*around
	none  map[sameAgain]string // why no other site could take one of these
}

// sameAgain is what instances have in common that no site tells apart.
type sameAgain struct {
	service  skerry.ServiceKey
	revision string
}

// leave starts a copy of an instance at another site, or says why not now. Nothing begins where no site can take it.
func (l *leaver) leave(now time.Time, inst *apps.Instance, fx *wire.Effects) string {
	if k := l.Children.Get(l.site); inst.Cut || k == nil || !k.Connected {
		return "its cluster is out of touch and may run it on, and there must not be another"
	}
	same, alike := sameAgain{inst.Service, inst.Revision}, len(inst.Shun) == 0 && len(inst.Rejected) == 0
	if why := l.none[same]; why != "" && alike {
		return why
	}
	r := l.request(inst, l.round)
	r.Avoid = append(slices.Clone(r.Avoid), l.site)
	if names, d := l.fed.Rank(now, r, l.rounds, 1); len(names) == 0 {
		text := "no other cluster can take it"
		if why := slices.DeleteFunc(d.Why, func(r wire.Reason) bool { return r.What == "rejected" }); len(why) > 0 {
			text += ": " + why[0].Text
		}
		if alike {
			l.none[same] = text
		}
		return text
	}
	delete(l.round, inst.Service.App) // the copy is one more of them
	return l.Apps.Leave(now, inst, "cluster "+l.site+" is drained", fx)
}
