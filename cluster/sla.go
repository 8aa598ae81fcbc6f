package cluster

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// judge looks whether an instance gets what its SLA says. Rigidness r lets a share of violation of 1-r pass (Oakestra,
// section 3.2: the sensitivity for re-triggering scheduling); beyond it the instance gets a new place, in its site where
// there is one, else the owner is told.
func (c *Core) judge(now time.Time, p *placement, fx *wire.Effects) {
	s := &p.SLA
	if p.Obs.Ready {
		s.Given(true, p.Obs.Restarts)
	}
	if p.Obs.State != skerry.Running || p.Removing || p.Obs.Unreachable {
		s.Pause(now)
		return
	}
	p.Located.Shift(c.workers.where)
	what, violated := c.find.violation(p)
	s.See(now, violated)
	c.watch(p.A.ID, violated != "")
	if s.Raise(violated) {
		c.eventUp(fx, now, p, wire.EventWarning, "SLAViolated", violated, uplink.InGeneral(what, violated))
		c.changed(now, p, fx)
	} else if was, ends := s.Settle(violated, p.Obs.Violated != "", p.drained); ends {
		p.Obs.Violated = ""
		c.event(fx, now, p, wire.EventNormal, "SLAKept", "no longer: "+was)
		c.changed(now, p, fx)
	}
	c.find.refreshUsers(now, p, fx)
	if violated == "" || !s.Exceeds(p.A.Spec.Placement.Rigidness) || s.Rests(now) || p.Next != nil || p.Pinned != "" || p.A.Spec.Mode != spec.ModeService {
		if c.questions.Judged(p.A.ID) && !c.drainer.drains.Has(p.Worker) {
			c.questions.Drop(p.A.ID) // what plugins say of a move that is not wanted any more
		}
		return
	}
	if at := c.endsElsewhere(p); now.Before(at) {
		s.Rest(at) // with a copy that may still run out of touch there would be three
		return
	}
	d, wait := c.find.better(now, p, what, fx)
	if wait {
		return // it is watched, and judged again when the plugins have answered
	}
	s.Look(now)
	if d.Chosen != "" {
		s.Move(now)
		c.migrate(now, p, d, violated, fx)
		return
	}
	// Nobody at the site does better: the owner may know another site.
	const none = "the site has no worker that keeps the SLA: "
	if p.Obs.Violated = violated; p.Origin == "root" {
		p.Obs.Violated = c.workers.anonymous(p, uplink.InGeneral(what, violated))
	}
	c.changed(now, p, fx)
	c.eventUp(fx, now, p, wire.EventWarning, "NoBetterPlace", none+violated, none+uplink.InGeneral(what, violated))
}

// judgeWatched judges again the instances whose SLA is violated.
func (c *Core) judgeWatched(now time.Time, fx *wire.Effects) {
	for _, id := range sortedIDs(c.watched) {
		p := c.places[id]
		switch {
		case p == nil || p.Obs.State != skerry.Running:
			c.watch(id, false)
		case !now.Before(p.SLA.Again()):
			c.judge(now, p, fx)
		}
	}
}
