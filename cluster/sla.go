package cluster

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// judge looks whether instances get what their SLA says and have the right runtime, and moves those for which the site has something better.
type judge struct {
	*lifecycle
	find   *finder
	drains *moves.Drains
}

// look looks whether an instance gets what its SLA says. Rigidness r lets a share of violation of 1-r pass (Oakestra,
// section 3.2: the sensitivity for re-triggering scheduling); beyond it the instance gets a new place, in its site where
// there is one, else the owner is told.
func (j *judge) look(now time.Time, p *placement, fx *wire.Effects) {
	s := &p.SLA
	if p.Obs.Ready {
		s.Given(true, p.Obs.Restarts)
	}
	if p.Obs.State != skerry.Running || p.Removing || p.Obs.Unreachable {
		s.Pause(now)
		return
	}
	p.Located.Shift(j.workers.where)
	what, violated := j.find.violation(p)
	s.See(now, violated)
	j.watch(p.A.ID, violated != "")
	if s.Raise(violated) {
		j.eventUp(fx, now, p, wire.EventWarning, "SLAViolated", violated, uplink.InGeneral(what, violated))
		j.changed(now, p, fx)
	} else if was, ends := s.Settle(violated, p.Obs.Violated != "", p.drained); ends {
		p.Obs.Violated = ""
		j.event(fx, now, p, wire.EventNormal, "SLAKept", "no longer: "+was)
		j.changed(now, p, fx)
	}
	j.find.refreshUsers(now, p, fx)
	if violated == "" || !s.Exceeds(p.A.Spec.Placement.Rigidness) || s.Rests(now) || p.Next != nil || p.Pinned != "" || p.A.Spec.Mode != spec.ModeService {
		if j.questions.Judged(p.A.ID) && !j.drains.Has(p.Worker) {
			j.questions.Drop(p.A.ID) // what plugins say of a move that is not wanted any more
		}
		return
	}
	if at := j.endsElsewhere(p); now.Before(at) {
		s.Rest(at) // with a copy that may still run out of touch there would be three
		return
	}
	d, wait := j.find.better(now, p, what, fx)
	if wait {
		return // it is watched, and judged again when the plugins have answered
	}
	s.Look(now)
	if d.Chosen != "" {
		s.Move(now)
		j.migrate(now, p, d, violated, fx)
		return
	}
	// Nobody at the site does better: the owner may know another site.
	const none = "the site has no worker that keeps the SLA: "
	if p.Obs.Violated = violated; p.Origin == "root" {
		p.Obs.Violated = j.workers.anonymous(p, uplink.InGeneral(what, violated))
	}
	j.changed(now, p, fx)
	j.eventUp(fx, now, p, wire.EventWarning, "NoBetterPlace", none+violated, none+uplink.InGeneral(what, violated))
}

// judgeWatched judges again the instances whose SLA is violated.
func (j *judge) judgeWatched(now time.Time, fx *wire.Effects) {
	for _, id := range sortedIDs(j.watched) {
		p := j.places[id]
		switch {
		case p == nil || p.Obs.State != skerry.Running:
			j.watch(id, false)
		case !now.Before(p.SLA.Again()):
			j.look(now, p, fx)
		}
	}
}
