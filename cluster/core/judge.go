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

// judge looks whether instances get what their SLA says and have the right runtime, and moves those for which the site
// has something better.
type judge struct {
	*lifecycle
	find   *finder
	drains *moves.Drains
}

// look looks whether an instance gets what its SLA says. Rigidness r lets a share of violation of 1-r pass (Oakestra,
// section 3.2: the sensitivity for re-triggering scheduling); beyond it the instance gets a new place, in its site where
// there is one, else the owner is told.
func (j *judge) look(now time.Time, inst *placement, fx *wire.Effects) {
	sla := &inst.SLA
	if inst.Obs.Ready {
		sla.Given(true, inst.Obs.Restarts)
	}
	if inst.Obs.State != skerry.Running || inst.Removing || inst.Obs.Unreachable {
		sla.Pause(now)
		return
	}
	inst.Located.Shift(j.workers.where)
	what, violated, link := j.find.violation(inst)
	sla.See(now, violated)
	j.watch(inst.A.ID, violated != "")
	if sla.Raise(violated) {
		j.eventUp(fx, now, inst, wire.EventWarning, "SLAViolated", violated, uplink.InGeneral(what, violated))
		j.changed(now, inst, fx)
	} else if was, ends := sla.Settle(violated, inst.Obs.Violated != "", inst.drained); ends {
		inst.Obs.Violated = ""
		j.event(fx, now, inst, wire.EventNormal, "SLAKept", "no longer: "+was)
		j.changed(now, inst, fx)
	}
	j.find.refreshUsers(now, inst, fx)
	if violated == "" || !sla.Exceeds(inst.A.Spec.Rigidness(link)) || sla.Rests(now) || inst.Next != nil || inst.Pinned != "" ||
		inst.A.Spec.Mode != spec.ModeService {
		if j.questions.Judged(inst.A.ID) && !j.drains.Has(inst.Worker) {
			j.questions.Drop(inst.A.ID) // what plugins say of a move that is not wanted any more
		}
		return
	}
	if at := j.endsElsewhere(inst); now.Before(at) {
		sla.Rest(at) // with a copy that may still run out of touch there would be three
		return
	}
	d, wait := j.find.better(now, inst, what, fx)
	if wait {
		return // it is watched, and judged again when the plugins have answered
	}
	sla.Look(now)
	if d.Chosen != "" {
		sla.Move(now)
		j.migrate(now, inst, d, violated, fx)
		return
	}
	// Nobody at the site does better: the owner may know another site.
	const none = "the site has no worker that keeps the SLA: "
	if inst.Obs.Violated = violated; inst.Origin == "root" {
		inst.Obs.Violated = j.workers.redact(inst, uplink.InGeneral(what, violated))
	}
	j.changed(now, inst, fx)
	j.eventUp(fx, now, inst, wire.EventWarning, "NoBetterPlace", none+violated, none+uplink.InGeneral(what, violated))
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
func (j *judge) reconsider(now time.Time, inst *placement, fx *wire.Effects) {
	service, strain, w := &inst.A.Spec, &inst.Strain, j.workers[inst.Worker]
	limit := service.Resources.MostCPU()
	if (service.Runtime != "" && service.Runtime != spec.RuntimeAuto) || service.Mode != spec.ModeService || limit <= 0 || w == nil ||
		inst.qos == nil || inst.A.Runtime == "" || inst.Next != nil {
		j.crowd(now, inst, fx)
		return
	}
	for i := range service.Sidecars {
		limit += service.Sidecars[i].Resources.MostCPU()
	}
	share := float64(inst.qos.CPU) / float64(limit)
	if strain.See(now, share, share >= moves.StrainSlow && j.workers.slow(inst)); !strain.Strained() {
		j.crowd(now, inst, fx)
		return
	}
	near := fmt.Sprintf("it is near its saturation point in runtime %s with %s of a processor", inst.A.Runtime, limit)
	switch strain.Next(now, j.mayGrow(inst)) {
	case moves.StepScale:
		strain.Stays(near + "; its service may have more instances")
	case moves.StepMove:
		if j.oneMoves(inst) {
			break // once that serves, the others may bear less
		}
		strain.Look(now)
		d, runtime, why := j.find.relieve(now, inst, share)
		if d.Chosen != "" {
			strain.Leave(now)
			why = near + ", which is moved to " + runtime
			if runtime == inst.A.Runtime {
				why = near + ", which takes less of one elsewhere"
			}
			j.event(fx, now, inst, wire.EventWarning, "RuntimeChanged", why)
			j.migrateIn(now, inst, d, runtime, why, fx)
			break
		}
		strain.Stays(near + "; " + why)
	}
	j.crowd(now, inst, fx)
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
