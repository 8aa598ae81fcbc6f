package cluster

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/wire"
)

// Self is the holder's name of instances that the site's own applications want.
const Self = "self"

// settleApps accepts what the site's own applications want and ends what they no longer want.
func (c *Core) settleApps(now time.Time, fx *wire.Effects) {
	fx.Merge(c.Apps.Reconcile(now))
	for _, i := range c.Apps.Unplaced(now) {
		if c.Apps.Frozen(i.Service.App) {
			continue
		}
		// The site takes the root's part for its own applications, first number of the token included. What it has borrowed
		// keeps the root's.
		fence := skerry.Fence{RootEpoch: max(c.number(fx), i.Fence.RootEpoch)}
		c.Apps.Place(now, i, Self, fence, nil, fx)
		c.acceptOwn(now, i, fx)
	}
	for _, i := range c.Apps.Stopping() {
		if !c.Apps.Frozen(i.Service.App) {
			c.removeID(now, i.ID, fx)
		}
	}
	for _, ch := range fx.Changed {
		if i := c.Apps.Instance(ch.Instance); ch.Instance != "" && i != nil && i.Holder == Self && !i.Stopping && !i.State.Final() && !c.Apps.Frozen(i.Service.App) {
			c.acceptOwn(now, i, fx)
		}
	}
}

// acceptOwn takes an assignment of the site's own applications, or of one that it has borrowed.
func (c *Core) acceptOwn(now time.Time, i *apps.Instance, fx *wire.Effects) {
	a, origin := *i.Assignment(c.digests(i)), "local"
	if c.rootWants(i.ID) {
		origin = "root"
	}
	if p := c.places[i.ID]; p != nil {
		a.Failover = p.A.Failover
	}
	c.accept(now, a, origin, fx)
}

// reviewOwn ends, after a start, what the site's own applications do not know: a write of many records may have been cut short.
func (c *Core) reviewOwn(now time.Time, fx *wire.Effects) {
	unknown := func(origin string, id skerry.InstanceID) bool {
		if origin != "local" {
			return false
		}
		i := c.Apps.Instance(id)
		return i == nil || i.Holder != Self
	}
	for _, id := range sortedIDs(c.groups) {
		if unknown(c.groups[id].Origin, id) {
			c.removeGroup(now, c.groups[id], fx)
		}
	}
	for _, id := range sortedIDs(c.places) {
		if p := c.places[id]; p.Group == "" && unknown(p.Origin, id) || p.Group != "" && c.groups[p.Group] == nil {
			c.remove(now, p, fx)
		}
	}
}

func (c *Core) digests(i *apps.Instance) map[string]string {
	if a := c.Apps.App(i.Service.App); a != nil {
		return a.Digests
	}
	return nil
}

func (c *Core) deleteInstance(now time.Time, m apps.DeleteInstance, fx *wire.Effects) {
	if c.Apps.Instance(m.ID) != nil {
		*fx, _ = c.Apps.Handle(now, m)
		return
	}
	p := c.places[m.ID]
	if p == nil {
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no instance %q", m.ID).WithHint("`skerry get instances` lists them")
		return
	}
	switch {
	case p.Refused:
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "this site refused instance %q", m.ID).WithHint("delete it where its application is")
		return
	case p.ended():
		fx.Err = skerry.Errorf(skerry.CodeConflict, "instance %q has ended", m.ID).WithHint("its owner removes it when its time is over")
		return
	case p.Removing, p.Worker == "":
		return // it ends, or looks for a place, already
	}
	// A copy of a group or an instance of the root: the site gives it a new place.
	c.move(now, p, "deleted by "+m.Actor, false, fx)
}
