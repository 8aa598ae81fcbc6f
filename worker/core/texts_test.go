package core

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// What a container says does not make the worker write a record that no store takes: such a write ends this life of the worker's core, and
// the next one would hear it again.
func TestLongTextsOfContainers(t *testing.T) {
	long := strings.Repeat("\x01", 2<<20)
	for what, say := range map[string]func(d *device, a *spec.Assignment){
		"the answer of a probe": func(d *device, a *spec.Assignment) {
			for range 3 {
				d.step(Probed{ID: a.ID, Attempt: 1, Kind: Readiness, Text: long})
				d.now = d.now.Add(time.Minute)
			}
		},
		"the answer of a probe that ends it": func(d *device, a *spec.Assignment) {
			d.step(Probed{ID: a.ID, Attempt: 1, Kind: Liveness, Text: long})
		},
		"a start that fails": func(d *device, a *spec.Assignment) {
			d.step(Exited{ID: a.ID, Name: spec.MainContainer, Attempt: 1, Exit: wire.Exit{Code: 1}})
			d.now = d.c.ledger.insts[a.ID].retryAt
			d.keep(d.c.Tick(d.now))
			d.step(Started{ID: a.ID, Name: spec.MainContainer, Attempt: 2, Err: long})
		},
		"its end": func(d *device, a *spec.Assignment) {
			d.step(Exited{ID: a.ID, Name: spec.MainContainer, Attempt: 1, Exit: wire.Exit{Code: 1, Message: long, Signal: long}})
		},
	} {
		d := newDevice(t)
		a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
		a.Spec.Probes.Readiness = &spec.Probe{TCP: &spec.TCPProbe{Port: 80}, Failures: 1, Successes: 1}
		a.Spec.Probes.Liveness = &spec.Probe{TCP: &spec.TCPProbe{Port: 80}, Failures: 1, Successes: 1}
		d.runs(a)
		say(d, &a)
		for key, value := range d.kv {
			if len(value) > 100<<10 {
				t.Errorf("%s: record %s has %d bytes", what, key, len(value))
			}
		}
		if value, ok := d.c.Up.Observed.Get(wire.AssignmentKey(a.ID)); !ok || len(value) > 10<<10 {
			t.Errorf("%s: its cluster is told %d bytes of it", what, len(value))
		}
	}
}
