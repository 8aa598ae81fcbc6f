package core

import (
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// ProbeKind names one of the three probes.
type ProbeKind string

// Kinds of probes.
const (
	Startup   ProbeKind = "startup"
	Readiness ProbeKind = "readiness"
	Liveness  ProbeKind = "liveness"
)

func (i *inst) spec(k ProbeKind) *spec.Probe { return ProbeOf(&i.A.Spec, k) }

// ProbeOf gives what a service has for a kind of probe; nil: nothing.
func ProbeOf(s *spec.ServiceSpec, k ProbeKind) *spec.Probe {
	switch k {
	case Startup:
		return s.Probes.Startup
	case Readiness:
		return s.Probes.Readiness
	}
	return s.Probes.Liveness
}

// probe begins the probes of an instance whose main container has started.
func (i *inst) probe(fx *wire.Effects) {
	i.probes = probeState{good: map[ProbeKind]int{}, bad: map[ProbeKind]int{}}
	if i.spec(Startup) != nil {
		i.Reason = "startup probe has not passed yet"
		i.probeOn(fx, Startup)
		return
	}
	i.isUp(fx)
}

func (i *inst) probeOn(fx *wire.Effects, kinds ...ProbeKind) {
	fx.Actions = append(fx.Actions, ProbeOn{A: i.A, Attempt: i.main().Attempt, Kinds: kinds, Address: i.Address, Handle: i.main().Handle})
}

// isUp goes on after the startup probe: liveness and readiness begin.
func (i *inst) isUp(fx *wire.Effects) {
	i.probes.up = true
	var kinds []ProbeKind
	if i.spec(Readiness) != nil {
		kinds = append(kinds, Readiness)
		i.Reason = "readiness probe has not passed yet"
	} else {
		i.Ready, i.Reason = true, ""
	}
	if i.spec(Liveness) != nil {
		kinds = append(kinds, Liveness)
	}
	if len(kinds) > 0 {
		i.probeOn(fx, kinds...)
	}
}

func (life *lifecycle) probed(now time.Time, instance *inst, msg Probed, fx *wire.Effects) {
	probe := instance.spec(msg.Kind)
	if probe == nil || msg.Attempt != instance.main().Attempt || !instance.main().Running || instance.Ending || instance.restarting ||
		instance.probes.good == nil {
		return
	}
	if msg.Kind != Startup && !instance.probes.up || msg.Kind == Startup && instance.probes.up {
		return
	}
	if msg.OK {
		instance.probes.good[msg.Kind]++
		instance.probes.bad[msg.Kind] = 0
	} else {
		instance.probes.bad[msg.Kind]++
		instance.probes.good[msg.Kind] = 0
	}
	passed, failed := instance.probes.good[msg.Kind] >= probe.Successes, instance.probes.bad[msg.Kind] >= probe.Failures
	switch {
	case msg.Kind == Startup && passed:
		instance.isUp(fx)
		life.ledger.save(instance, fx)
	case msg.Kind == Readiness && passed && !instance.Ready:
		instance.Ready, instance.Reason = true, ""
		life.ledger.save(instance, fx)
	case msg.Kind == Readiness && failed && instance.Ready:
		instance.Ready, instance.Reason = false, "readiness probe fails: "+msg.Text
		life.ledger.event(now, instance, wire.EventWarning, "NotReady", instance.Reason, fx)
		life.ledger.save(instance, fx)
	case msg.Kind != Readiness && failed && !instance.main().stop:
		why := string(msg.Kind) + " probe fails: " + msg.Text
		life.ledger.event(now, instance, wire.EventWarning, "Unhealthy", why, fx)
		instance.unready(fx)
		instance.Reason, instance.Unhealthy = why, true
		instance.stop(spec.MainContainer, fx) // what follows is decided when it has exited
		life.ledger.save(instance, fx)
	case !msg.OK && msg.Kind != Liveness && !instance.Ready && !instance.main().stop && now.Sub(instance.probes.told) >= tellProbe:
		if why := string(msg.Kind) + " probe fails: " + msg.Text; why != instance.Reason {
			instance.Reason, instance.probes.told = why, now
			life.ledger.save(instance, fx)
		}
	}
}

// tellProbe is how often at most the last answer of a probe that has not passed yet becomes the reason: answers may differ each time.
const tellProbe = 5 * time.Second

// unready ends probes and readiness.
func (i *inst) unready(fx *wire.Effects) {
	i.Ready = false
	if i.probes.good != nil {
		i.probes = probeState{}
		fx.Actions = append(fx.Actions, ProbeOff{ID: i.A.ID})
	}
}
