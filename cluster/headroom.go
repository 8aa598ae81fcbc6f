package cluster

import (
	"fmt"
	"time"

	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

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
