package core

import (
	"encoding/json"
	"time"

	"skerry.dev/skerry"
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
