package sim

import (
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// starts counts how often the containers of the world were started.
func (w *World) starts() *int {
	n := 0
	w.Machine.Started = func(*spec.Assignment, string, int) { n++ }
	return &n
}

// pair is a site with two workers and one instance, whose worker is returned.
func pair(t *testing.T, edit ...func(*spec.ServiceSpec)) (w *World, id skerry.InstanceID, at *Node) {
	t.Helper()
	w = newWorld(t, 7)
	w.Audit = true
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(2000))
	w.AddWorker("a", "w2", facts(2000))
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1, edit...))
	w.Run(2 * time.Second)
	w.check(t, "shop", 1, 1)
	id = w.only(t, "shop").ID
	return w, id, w.Workers["a/"+w.ClusterCore("a").WorkerOf(id)]
}

func (w *World) sound(t *testing.T) {
	t.Helper()
	for _, x := range w.Faults {
		t.Error(x)
	}
}

// A link that was away for longer than the site waits is no reason to restart anything, when nobody could take over.
func TestNothingRestartsWhenALinkIsBack(t *testing.T) {
	w := newWorld(t, 3)
	w.Audit = true
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(2000))
	w.Run(time.Second)
	starts := w.starts()
	w.must(t, w.Root, app("shop", 2))
	w.Run(2 * time.Second)
	for range 3 {
		w.Cut(w.Workers["a/w1"])
		w.Run(time.Minute)
		if w.ready("shop") != 0 || w.Workers["a/w1"].Tasks() != 2 {
			t.Fatalf("%d ready, %d run", w.ready("shop"), w.Workers["a/w1"].Tasks())
		}
		w.Heal(w.Workers["a/w1"])
		w.Run(5 * time.Second)
		w.check(t, "shop", 2, 2)
	}
	if *starts != 2 {
		t.Errorf("%d starts, want 2", *starts)
	}
	w.sound(t)
}

// The copy that a service keeps on reconnecting is never restarted, whichever it is, and exactly one stays.
func TestOnReconnect(t *testing.T) {
	for _, x := range []struct {
		policy      string
		original    bool
		originalBad bool // it is not ready when its worker is back
	}{
		{spec.KeepReplacement, false, false}, {spec.KeepOriginal, true, false}, {spec.KeepBest, false, false},
		{spec.KeepOriginal, false, true}, {spec.KeepBest, false, true},
	} {
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			bad := false
			w, id, at := pair(t, func(s *spec.ServiceSpec) {
				s.OnReconnect = x.policy
				s.Probes.Readiness = probe(time.Second, 2)
			})
			starts := w.starts()
			replaced := false
			w.Machine.Started = func(*spec.Assignment, string, int) { *starts++; replaced = true }
			first := w.only(t, "shop").Fence
			w.Cut(at)
			w.Run(30 * time.Second)
			w.check(t, "shop", 1, 2)
			if !replaced || *starts != 1 {
				t.Fatalf("%d starts of a replacement", *starts)
			}
			if bad = x.originalBad; bad {
				for _, k := range at.tasks {
					w.machines.endTask(at, k, wire.Exit{Code: 1})
				}
			}
			before := *starts
			w.Heal(at)
			w.Run(10 * time.Second)
			w.check(t, "shop", 1, 1)
			if !bad && *starts != before {
				t.Errorf("%d containers were started after the link came back", *starts-before)
			}
			if got := w.ClusterCore("a").WorkerOf(id) == short(at); got != x.original {
				t.Errorf("the original was kept: %v", got)
			}
			i, _, _ := w.ClusterCore("a").Instance(id)
			if i.Fence.Compare(first) <= 0 {
				t.Errorf("the token went from %v to %v", first, i.Fence)
			}
			if i.Restarts != 0 {
				t.Errorf("restarted %d times", i.Restarts)
			}
			w.sound(t)
		})
	}
}

// The arbitration survives a restart of the orchestrator.
func TestOriginalOutlivesTheOrchestrator(t *testing.T) {
	w, id, at := pair(t, func(s *spec.ServiceSpec) { s.OnReconnect = spec.KeepOriginal })
	starts := w.starts()
	w.Cut(at)
	w.Run(30 * time.Second)
	w.Kill(w.Clusters["a"])
	w.Run(time.Second)
	w.Restart(w.Clusters["a"], nil)
	w.Run(time.Minute)
	w.Heal(at)
	w.Run(10 * time.Second)
	w.check(t, "shop", 1, 1)
	if *starts != 1 || w.ClusterCore("a").WorkerOf(id) != short(at) {
		t.Errorf("%d starts, runs on %s", *starts, w.ClusterCore("a").WorkerOf(id))
	}
	w.sound(t)
}

// With stopAfter there are never two copies, whatever comes when.
func TestStopAfterNeverRunsTwice(t *testing.T) {
	stop := func(s *spec.ServiceSpec) { s.OnDisconnect = spec.StopAfter(20 * time.Second) }
	for _, x := range []struct {
		cut      time.Duration
		reboot   bool // of the agent, at half time
		same     bool // it stays where it is
		restarts bool // it was stopped
	}{
		{2 * time.Second, false, true, false},
		{15 * time.Second, false, true, false},
		{15 * time.Second, true, true, false},
		{25 * time.Second, false, true, true},
		{25 * time.Second, true, true, true},
		{2 * time.Minute, false, false, true},
		{2 * time.Minute, true, false, true},
	} {
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			w, id, at := pair(t, stop)
			starts := w.starts()
			w.Cut(at)
			for left := x.cut; left > 0; left -= 500 * time.Millisecond {
				w.Run(500 * time.Millisecond)
				if n := w.tasks(); n > 1 {
					t.Fatalf("%d copies run %s after the cut", n, x.cut-left)
				}
				if x.reboot && left == x.cut/2/time.Second*time.Second {
					w.Kill(at)
					f := facts(2000)
					w.Restart(at, &f)
				}
			}
			w.Heal(at)
			w.Run(20 * time.Second)
			w.check(t, "shop", 1, 1)
			if got := w.ClusterCore("a").WorkerOf(id) == short(at); got != x.same {
				t.Errorf("it stayed: %v", got)
			}
			if got := *starts > 0; got != x.restarts {
				t.Errorf("started anew: %v", got)
			}
			w.sound(t)
		})
	}
}

// A machine that was switched off does not know how long it has been cut off: what must not run then waits for the cluster,
// the rest starts.
func TestRebootOffline(t *testing.T) {
	w := newWorld(t, 5)
	w.AddCluster("a")
	n := w.AddWorker("a", "w1", facts(4000))
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1))
	w.must(t, w.Root, app("once", 1, func(s *spec.ServiceSpec) { s.OnDisconnect = spec.StopAfter(time.Hour) }))
	w.Run(2 * time.Second)
	w.Cut(n)
	w.PowerOff(n)
	f := facts(4000)
	w.Restart(n, &f)
	w.Run(time.Minute)
	if n.Tasks() != 1 {
		t.Errorf("%d tasks run without the cluster, want 1", n.Tasks())
	}
	for _, i := range w.Workers["a/w1"].Core.(*worker.Core).Instances() {
		if i.Phase == skerry.PhaseCutOff {
			if err, ok := w.Do(n, worker.RestartLocal{ID: i.ID}).(error); !ok {
				t.Errorf("it could be restarted by hand: %v", err)
			}
		}
	}
	w.Heal(n)
	w.Run(10 * time.Second)
	w.check(t, "once", 1, 2)
	w.check(t, "shop", 1, 2)
	w.sound(t)
}

// What a full site cannot take over goes to another, and a worker that comes back first keeps what it runs.
func TestStrandedGoesElsewhere(t *testing.T) {
	for _, early := range []bool{false, true} {
		w := newWorld(t, 11)
		w.Audit = true
		w.AddCluster("a")
		w.AddWorker("a", "w1", facts(2000))
		w.Run(time.Second)
		w.must(t, w.Root, app("shop", 1))
		w.Run(2 * time.Second)
		w.AddCluster("b")
		w.AddWorker("b", "w1", facts(2000))
		w.Run(12 * time.Second)
		if early {
			w.Machine.Prepare = 30 * time.Second
		}
		at := w.Workers["a/w1"]
		starts := w.starts()
		w.Cut(at)
		w.Run(20 * time.Second)
		if !early {
			w.check(t, "shop", 1, 2)
		}
		w.Heal(at)
		w.Run(time.Minute)
		w.check(t, "shop", 1, 1)
		if kept := at.Tasks() == 1; kept != early || early && *starts != 0 {
			t.Errorf("back early %v: kept %v, %d starts", early, kept, *starts)
		}
		w.sound(t)
	}
}
