package core

import (
	"fmt"
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
	what, violated, link := j.find.violation(p)
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
	if violated == "" || !s.Exceeds(p.A.Spec.Rigidness(link)) || s.Rests(now) || p.Next != nil || p.Pinned != "" || p.A.Spec.Mode != spec.ModeService {
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
		p.Obs.Violated = j.workers.redact(p, uplink.InGeneral(what, violated))
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

// reconsider looks whether an instance has still the right runtime, by what it uses, and moves it to one that bears more where its service
// cannot have more instances: make before break, and never to one that keeps it apart less than it asks for.
func (j *judge) reconsider(now time.Time, p *placement, fx *wire.Effects) {
	s, x, w := &p.A.Spec, &p.Strain, j.workers[p.Worker]
	limit := s.Resources.MostCPU()
	if (s.Runtime != "" && s.Runtime != spec.RuntimeAuto) || s.Mode != spec.ModeService || limit <= 0 || w == nil || p.qos == nil || p.A.Runtime == "" || p.Next != nil {
		j.crowd(now, p, fx)
		return
	}
	for i := range s.Sidecars {
		limit += s.Sidecars[i].Resources.MostCPU()
	}
	share := float64(p.qos.CPU) / float64(limit)
	if x.See(now, share, share >= moves.StrainSlow && j.workers.slow(p)); !x.Strained() {
		j.crowd(now, p, fx)
		return
	}
	near := fmt.Sprintf("it is near its saturation point in runtime %s with %s of a processor", p.A.Runtime, limit)
	switch x.Next(now, j.mayGrow(p)) {
	case moves.StepScale:
		x.Stays(near + "; its service may have more instances")
	case moves.StepMove:
		if j.oneMoves(p) {
			break // once that serves, the others may bear less
		}
		x.Look(now)
		d, runtime, why := j.find.relieve(now, p, share)
		if d.Chosen != "" {
			x.Leave(now)
			why = near + ", which is moved to " + runtime
			if runtime == p.A.Runtime {
				why = near + ", which takes less of one elsewhere"
			}
			j.event(fx, now, p, wire.EventWarning, "RuntimeChanged", why)
			j.migrateIn(now, p, d, runtime, why, fx)
			break
		}
		x.Stays(near + "; " + why)
	}
	j.crowd(now, p, fx)
}

// mayGrow reports whether the service of an instance follows its load and may have more instances.
func (j *judge) mayGrow(p *placement) bool {
	s := &p.A.Spec
	if s.Scale == nil {
		return false
	}
	n := 0
	for _, o := range j.byApp[p.A.Service.App] {
		if o.A.Service == p.A.Service && !o.Removing && !o.ended() {
			n++
		}
	}
	if a := j.Apps.App(p.A.Service.App); a != nil && a.Manifest.Spec.Service(p.A.Service.Service) != nil {
		s = a.Manifest.Spec.Service(p.A.Service.Service)
	}
	if s.Replicas != nil {
		n = max(n, *s.Replicas)
	}
	_, hi := p.A.Spec.Scale.Limits()
	return n < hi
}

// oneMoves reports whether another instance of the same service is on its way to another worker.
func (l *ledger) oneMoves(p *placement) bool {
	for id := range l.moving {
		if o := l.places[id]; o != p && o.A.Service == p.A.Service {
			return true
		}
	}
	return false
}
