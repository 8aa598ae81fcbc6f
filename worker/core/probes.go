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

// probeState counts results in a row.
type probeState struct {
	up        bool      // the startup probe has passed, or there is none
	told      time.Time // when the last answer of a probe became the reason
	good, bad map[ProbeKind]int
}

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
func (c *Core) probe(i *inst, fx *wire.Effects) {
	i.probes = probeState{good: map[ProbeKind]int{}, bad: map[ProbeKind]int{}}
	if i.spec(Startup) != nil {
		i.Reason = "startup probe has not passed yet"
		c.probeOn(i, fx, Startup)
		return
	}
	c.isUp(i, fx)
}

func (c *Core) probeOn(i *inst, fx *wire.Effects, kinds ...ProbeKind) {
	fx.Actions = append(fx.Actions, ProbeOn{A: i.A, Attempt: i.main().Attempt, Kinds: kinds, Address: i.Address, Handle: i.main().Handle})
}

// isUp goes on after the startup probe: liveness and readiness begin.
func (c *Core) isUp(i *inst, fx *wire.Effects) {
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
		c.probeOn(i, fx, kinds...)
	}
}

func (c *Core) probed(now time.Time, i *inst, m Probed, fx *wire.Effects) {
	p := i.spec(m.Kind)
	if p == nil || m.Attempt != i.main().Attempt || !i.main().Running || i.Ending || i.restarting || i.probes.good == nil {
		return
	}
	if m.Kind != Startup && !i.probes.up || m.Kind == Startup && i.probes.up {
		return
	}
	if m.OK {
		i.probes.good[m.Kind]++
		i.probes.bad[m.Kind] = 0
	} else {
		i.probes.bad[m.Kind]++
		i.probes.good[m.Kind] = 0
	}
	passed, failed := i.probes.good[m.Kind] >= p.Successes, i.probes.bad[m.Kind] >= p.Failures
	switch {
	case m.Kind == Startup && passed:
		c.isUp(i, fx)
		c.save(i, fx)
	case m.Kind == Readiness && passed && !i.Ready:
		i.Ready, i.Reason = true, ""
		c.save(i, fx)
	case m.Kind == Readiness && failed && i.Ready:
		i.Ready, i.Reason = false, "readiness probe fails: "+m.Text
		c.event(now, i, wire.EventWarning, "NotReady", i.Reason, fx)
		c.save(i, fx)
	case m.Kind != Readiness && failed && !i.main().stop:
		why := string(m.Kind) + " probe fails: " + m.Text
		c.event(now, i, wire.EventWarning, "Unhealthy", why, fx)
		c.unready(i, fx)
		i.Reason, i.Unhealthy = why, true
		c.stop(i, spec.MainContainer, fx) // what follows is decided when it has exited
		c.save(i, fx)
	case !m.OK && m.Kind != Liveness && !i.Ready && !i.main().stop && now.Sub(i.probes.told) >= tellProbe:
		if why := string(m.Kind) + " probe fails: " + m.Text; why != i.Reason {
			i.Reason, i.probes.told = why, now
			c.save(i, fx)
		}
	}
}

// tellProbe is how often at most the last answer of a probe that has not passed yet becomes the reason: answers may differ each time.
const tellProbe = 5 * time.Second

// unready ends probes and readiness.
func (c *Core) unready(i *inst, fx *wire.Effects) {
	i.Ready = false
	if i.probes.good != nil {
		i.probes = probeState{}
		fx.Actions = append(fx.Actions, ProbeOff{ID: i.A.ID})
	}
}
