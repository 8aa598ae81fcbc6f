package moves

import (
	"fmt"
	"math"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// How near a limit something on a worker is, which only the site knows, decides by how much a change there counts for more
// than usual (see worker/core/pace.go). The margin is what is left to the nearest limit, as a share of it.
//
//	margin   0.40    0.20    0.10    0
//	gain         1       2       4      8
//
// The gain rises at once; it falls only when the margin is clear of the step by slackMargin and some time has passed, so
// that a value which wavers around a step is told once.
const (
	slackMargin = 0.05
	calmGain    = 30 * time.Second
	// WaitingLimit is the share of time for which an instance may wait for a processor.
	WaitingLimit = 0.25
)

// gainSteps is the table of margins below which the gain doubles.
var gainSteps = [...]float64{0.40, 0.20, 0.10}

// gainFor gives the gain for a margin: 1, 2, 4 or 8.
func gainFor(margin float64) uint32 {
	gain := uint32(1)
	for _, s := range gainSteps {
		if margin < s {
			gain *= 2
		}
	}
	return gain
}

// Urgency is what a worker was told on its connection about how near a limit something there is. The zero value: nothing.
type Urgency struct {
	gain uint32    // 0: none
	at   time.Time // then, or when it was the right one last
	near string    // the limit that it is for
}

// Connected begins a connection.
func (u *Urgency) Connected(now time.Time) { *u = Urgency{at: now} }

// Told is the gain that the worker has, and the limit that it is for.
func (u *Urgency) Told() (gain uint32, near string) { return max(u.gain, 1), u.near }

// See takes how far the nearest limit is. It gives the gain to tell the worker, if that is another one.
func (u *Urgency) See(now time.Time, m Margin) (gain uint32, changed bool) {
	gain = gainFor(m.least)
	switch {
	case gain == max(u.gain, 1):
		u.at = now
		return gain, false
	case gain < u.gain:
		if held := gainFor(m.least - slackMargin); held >= u.gain || now.Sub(u.at) < calmGain && !now.Before(u.at) {
			return gain, false
		}
	}
	if gain == 1 {
		m.near = ""
	}
	*u = Urgency{gain, now, m.near}
	return gain, true
}

// Margin is how far the nearest limit of anything on a worker is.
type Margin struct {
	least float64 // from 0, it is reached, to 1
	near  string  // which it is
}

// NewMargin is that of a worker on which nothing is.
func NewMargin() Margin { return Margin{least: 1} }

func (m *Margin) look(used, limit float64, text func() string) {
	if left := 1 - used/limit; limit > 0 && left < m.least && !math.IsNaN(left) {
		if m.least = max(left, 0); m.least < gainSteps[0] {
			m.near = text()
		}
	}
}

// Machine takes what is used of a machine, and what it has.
func (m *Margin) Machine(used, capacity *spec.Resources) {
	m.look(float64(used.Memory), float64(capacity.Memory), func() string { return "the worker's memory" })
	m.look(float64(used.CPU), float64(capacity.CPU), func() string { return "the worker's processors" })
}

// Instance takes what an instance uses.
func (m *Margin) Instance(a *spec.Assignment, q *wire.QoS) {
	s := &a.Spec
	of := func(what string) func() string {
		return func() string { return fmt.Sprintf("the %s of %s", what, a.Service.String()) }
	}
	m.look(float64(q.Memory), float64(s.Need().Memory), of("memory"))
	m.look(q.Waiting, WaitingLimit, of("wait for a processor"))
	for _, l := range s.Links {
		if ms, ok := q.Links[l.Service]; ok && l.MaxLatency != nil {
			m.look(ms, float64(*l.MaxLatency)/1e6, of("link to "+l.Service))
		}
	}
	if s.Scale != nil && s.Scale.Target.CPU != nil && s.Resources.CPU > 0 {
		// Its number changes when the load leaves the target on either side.
		r := float64(q.CPU) / (float64(s.Resources.CPU) * *s.Scale.Target.CPU)
		if off := math.Abs(1 - r); off < gainSteps[0] {
			m.look(1-off, 1, of("autoscaling target"))
		}
	}
}
