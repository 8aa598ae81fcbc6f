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
func (in *intake) settleApps(now time.Time, fx *wire.Effects) {
	fx.Merge(in.Apps.Reconcile(now))
	for _, i := range in.Apps.Unplaced(now) {
		if in.Apps.Frozen(i.Service.App) {
			continue
		}
		// The site takes the root's part for its own applications, first number of the token included. What it has borrowed
		// keeps the root's.
		fence := skerry.Fence{RootEpoch: max(in.number(fx), i.Fence.RootEpoch)}
		in.Apps.Place(now, i, Self, fence, nil, fx)
		in.acceptOwn(now, i, fx)
	}
	for _, i := range in.Apps.Stopping() {
		if !in.Apps.Frozen(i.Service.App) {
			in.removeID(now, i.ID, fx)
		}
	}
	for _, ch := range fx.Changed {
		if i := in.Apps.Instance(ch.Instance); ch.Instance != "" && i != nil && i.Holder == Self && !i.Stopping && !i.State.Final() && !in.Apps.Frozen(i.Service.App) {
			in.acceptOwn(now, i, fx)
		}
	}
}

// acceptOwn takes an assignment of the site's own applications, or of one that it has borrowed.
func (in *intake) acceptOwn(now time.Time, i *apps.Instance, fx *wire.Effects) {
	a, origin := *i.Assignment(in.digests(i)), "local"
	if in.rootWants(i.ID) {
		origin = "root"
	}
	if p := in.places[i.ID]; p != nil {
		a.Failover = p.A.Failover
	}
	in.accept(now, a, origin, fx)
}

// reviewOwn ends, after a start, what the site's own applications do not know: a write of many records may have been cut short.
func (in *intake) reviewOwn(now time.Time, fx *wire.Effects) {
	unknown := func(origin string, id skerry.InstanceID) bool {
		if origin != "local" {
			return false
		}
		i := in.Apps.Instance(id)
		return i == nil || i.Holder != Self
	}
	for _, id := range sortedIDs(in.groups) {
		if unknown(in.groups[id].Origin, id) {
			in.removeGroup(now, in.groups[id], fx)
		}
	}
	for _, id := range sortedIDs(in.places) {
		if p := in.places[id]; p.Group == "" && unknown(p.Origin, id) || p.Group != "" && in.groups[p.Group] == nil {
			in.remove(now, p, fx)
		}
	}
}

func (in *intake) digests(i *apps.Instance) map[string]string {
	if a := in.Apps.App(i.Service.App); a != nil {
		return a.Digests
	}
	return nil
}

func (in *intake) deleteInstance(now time.Time, m apps.DeleteInstance, fx *wire.Effects) {
	if in.Apps.Instance(m.ID) != nil {
		*fx, _ = in.Apps.Handle(now, m)
		return
	}
	p := in.places[m.ID]
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
	in.move(now, p, "deleted by "+m.Actor, false, fx)
}
