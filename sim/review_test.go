package sim

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/worker"
)

// A copy of a perWorker service runs on while its worker is out of touch, and counts as ready once it is back.
func TestCopyIsReadyAgainAfterACut(t *testing.T) {
	w := New(3)
	w.AddCluster("a")
	n := w.AddWorker("a", "w1", facts(2000))
	w.Run(time.Second)
	w.must(t, w.Root, app("probe", 1, func(s *skerry.ServiceSpec) { s.Mode, s.Replicas = skerry.ModePerWorker, nil }))
	w.Run(5 * time.Second)
	w.check(t, "probe", 1, 1)
	w.Cut(n)
	w.Run(10 * time.Second)
	w.check(t, "probe", 0, 1)
	w.Heal(n)
	w.Run(10 * time.Second)
	w.check(t, "probe", 1, 1)
	if i := w.only(t, "probe"); i.Restarts != 0 {
		t.Errorf("restarted %d times", i.Restarts)
	}
}

// A violation that is over is over at the root too, also when it was so short that no alarm was raised, and when the site's
// orchestrator was restarted meanwhile.
func TestViolationEnds(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := New(5)
		site := w.AddCluster("a")
		n := w.AddWorker("a", "w1", facts(2000))
		w.Run(time.Second)
		w.must(t, w.Root, app("shop", 1, rigid(1)))
		w.Run(10 * time.Second)
		id := w.only(t, "shop").ID
		violated := func() bool {
			for _, c := range w.only(t, "shop").Conditions {
				if c.Type == skerry.Satisfied {
					return !c.Status
				}
			}
			return false
		}
		w.starve(n, id, 0.9)
		w.Run(6 * time.Second)
		if !violated() {
			t.Errorf("restart %v: not told", restart)
		}
		if restart {
			w.Run(time.Minute)
			w.Kill(site)
			w.starve(n, id, 0)
			w.Run(time.Second)
			w.Restart(site, nil)
		}
		w.starve(n, id, 0)
		w.Run(3 * time.Minute)
		if violated() {
			t.Errorf("restart %v: still told of as violated", restart)
		}
	}
}

// Where an instance that moved starts slowly, its new place is not blamed for that.
func TestSlowStartIsNoViolation(t *testing.T) {
	w, site, id, at := lone(t, rigid(1), func(s *skerry.ServiceSpec) { s.Probes.Readiness = probe(time.Second, 3) })
	w.AddWorker("a", "w3", facts(2000))
	began := time.Time{}
	w.Machine.Started = func(*skerry.Assignment, string, int) { began = w.Now }
	w.Machine.Probe = func(*skerry.Assignment, worker.ProbeKind, int) bool { return w.Now.Sub(began) > 30*time.Second }
	w.PowerOff(at)
	w.Run(2 * time.Minute)
	for _, e := range w.Events {
		if e.Reason == "Migrating" {
			t.Errorf("%s", e.Text)
		}
	}
	if on(site, id) == short(at) {
		t.Error("it did not move")
	}
	w.check(t, "shop", 1, 1)
}

// An instance that ends by itself while a copy is to take over has ended: no copy runs on that nobody wants.
func TestEndedInstanceHasNoSuccessor(t *testing.T) {
	w, _, id, at := lone(t, rigid(1), func(s *skerry.ServiceSpec) { s.Restart.Policy = "onFailure" })
	w.Audit = true
	w.Machine.Prepare = 10 * time.Second
	w.starve(at, id, 0.9)
	w.Run(6 * time.Second)
	for _, k := range at.tasks {
		w.endTask(at, k, skerry.Exit{At: w.Now})
	}
	w.Run(time.Minute)
	if i := w.only(t, "shop"); i.State != skerry.Terminated {
		t.Errorf("it is %s", i.State)
	}
	w.check(t, "shop", 0, 0)
}
