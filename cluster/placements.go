package cluster

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/fleet"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// maxMoves is on how many workers an instance that fails is tried before the failure goes up.
const maxMoves = 2

// reconcileDesired takes changes of what the root wants here.
func (c *Core) reconcileDesired(now time.Time, changed, deleted []string, fx *wire.Effects) {
	for _, key := range changed { // what they say about assignments comes first
		if value, _, have := c.Up.Desired.Get(key); have && strings.HasPrefix(key, "amended/") {
			c.amender.amendedItem(now, key, value, fx)
		}
	}
	for _, key := range changed {
		id, ok := strings.CutPrefix(key, "inst/")
		value, _, have := c.Up.Desired.Get(key)
		if app, is := strings.CutPrefix(key, "net/"); is {
			c.relink(app)
		} else if _, is := spec.ParseVolumeKey(key); is {
			c.volumes.Touch()
		} else if have && c.foreignItem(key, value, false) {
			continue
		}
		if !ok || !have {
			continue
		}
		var a spec.Assignment
		if err := c.codec.Unmarshal(value, &a); err != nil || string(a.ID) != id {
			c.Up.Ignored.Count(fleet.IgnoredUnreadable)
			c.siteEvent(fx, now, wire.EventWarning, "BadAssignment", "the root sent something for "+id+" that cannot be read", "")
			continue
		}
		if err := a.CheckNames(); err != nil {
			c.Up.Ignored.Count(fleet.IgnoredUnreadable)
			c.siteEvent(fx, now, wire.EventWarning, "BadAssignment", fmt.Sprintf("the root sent something for %.64q that is refused: %v", id, err), "")
			continue
		}
		if !c.amender.overrides.Has(a.Service.App) { // else it is looked at when the root has answered
			c.intake.accept(now, a, "root", fx)
		}
	}
	for _, key := range deleted {
		if id, ok := strings.CutPrefix(key, "inst/"); ok {
			if p := c.places[skerry.InstanceID(id)]; p != nil && p.Group == "" && c.amender.overrides.Has(p.A.Service.App) {
				continue
			}
			c.removeID(now, skerry.InstanceID(id), fx)
		} else if app, ok := strings.CutPrefix(key, "net/"); ok {
			c.relink(app)
		} else if _, ok := spec.ParseVolumeKey(key); ok {
			c.volumes.Touch()
		} else {
			c.foreignItem(key, nil, true)
		}
	}
}

// intake takes what the root and the site's own applications want here: instances, groups with a copy on each worker, and questions about
// successors. What the admission policy refuses goes back to its owner.
//
//	the root ─┐            ┌─ refuse
//	           ├─► accept ─┼─ adopt: a worker runs it already
//	own apps ─┘            └─ wait for a place
type intake struct {
	*lifecycle
	find *finder
}

// accept takes an assignment, new or changed, from the root or from the site's own applications.
func (in *intake) accept(now time.Time, a spec.Assignment, origin string, fx *wire.Effects) {
	if a.Spec.Mode == spec.ModePerWorker {
		in.acceptGroup(now, a, origin, fx)
		return
	}
	in.askFor(now, &a, fx)
	p := in.places[a.ID]
	if p != nil && a.Fence.RootEpoch == p.A.Fence.RootEpoch && changed(p, &a) {
		if why := in.admission.Check(&a); why != nil { // what runs was admitted as it is, whatever it is called
			fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "NotAdmitted", App: a.Service.App, Service: a.Service.Service, Instance: a.ID,
				Text: "it runs on as it was: " + why.Text})
			return
		}
	}
	if p != nil && origin == "root" && !in.mine(p) {
		p.Origin = origin
		a.Restart += p.Extra
	}
	if p != nil && in.regrant(now, p, a, fx) {
		return
	}
	if p != nil && a.Fence.RootEpoch < p.A.Fence.RootEpoch {
		in.Up.Ignored.Count(fleet.IgnoredToken)
		return
	}
	if p == nil || p.A.Fence.RootEpoch < a.Fence.RootEpoch {
		if p != nil {
			in.abandon(p)
			in.endOriginal(p)
			in.letGo(p)
			if !p.ended() {
				in.leave(p, p.Worker)
			}
			in.reserve(p, -1)
			in.dropQuietly(p, fx)
			a.Restart -= min(p.Extra, a.Restart)
		}
		p = &placement{A: a, Origin: origin, Created: now}
		p.Obs = wire.Observation{ID: a.ID, Gen: a.Gen, State: skerry.ClusterScheduled}
		p.Obs.Fence = a.Fence
		in.addPlacement(p)
		why := in.admission.Check(&a)
		if why == nil {
			why = in.takenHere(&a, origin)
		}
		if why == nil {
			why = in.foreignData(&a)
		}
		if why == nil {
			why = in.admission.CheckQuota(in.usedBy(a.Org, a.ID), &a)
		}
		if why != nil {
			in.refuse(now, p, []wire.Reason{*why}, nil, fx)
			return
		}
		if !in.adopt(now, p, fx) {
			in.wait(a.ID, true)
		}
		in.changed(now, p, fx)
		return
	}
	in.touchClaims(p) // it may have another schedule
	if p.Removing || in.relimit(now, p, a, fx) {
		return
	}
	if p.A.Restart == a.Restart && p.A.Gen == a.Gen && p.A.Failover == a.Failover {
		return
	}
	fence, held := p.A.Fence, p.A.Held
	keepGrants(p, &a, in.admission)
	p.A = a
	p.A.Fence, p.A.Held = fence, held
	in.boundTo(p)
	in.changed(now, p, fx)
	if p.Worker != "" {
		in.send(p)
		in.sendNext(p)
	}
}

// changed reports whether an assignment is about another service than the one that a placement was admitted with, whatever its revision says.
func changed(p *placement, a *spec.Assignment) bool {
	t := p.target()
	return a.Spec.Revision() != t.Spec.Revision() || a.Org != t.Org || a.Service != t.Service || !maps.Equal(a.Digest, t.Digest)
}
