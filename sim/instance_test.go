package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// one is a world with one worker, and a log of what its machine was asked to start, with the seconds since the apply.
func one(t *testing.T) (w *World, log func() string) {
	t.Helper()
	w = newWorld(t, 11)
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(8000))
	w.Run(time.Second)
	begin := w.Now
	var lines []string
	w.Machine.Started = func(a *spec.Assignment, name string, attempt int) {
		lines = append(lines, fmt.Sprintf("%.1fs %s/%d", w.Now.Sub(begin).Seconds(), name, attempt))
	}
	return w, func() string { return strings.Join(lines, ", ") }
}

func probe(interval time.Duration, failures int) *spec.Probe {
	return &spec.Probe{TCP: &spec.TCPProbe{Port: 1}, Interval: spec.Duration(interval), Failures: failures}
}

func (w *World) only(t *testing.T, name string) *wire.Instance {
	t.Helper()
	list := w.RootCore().Apps.Instances(web(name))
	if len(list) != 1 {
		t.Fatalf("%d instances", len(list))
	}
	return &list[0].Instance
}

func side(name string) spec.SideContainer {
	return spec.SideContainer{Name: name, Container: spec.Container{Image: "x"}}
}

func TestPodOrder(t *testing.T) {
	w, log := one(t)
	w.Machine.Exit = func(a *spec.Assignment, name string, attempt int) (time.Duration, wire.Exit) {
		switch {
		case name == "migrate" && attempt == 1:
			return time.Second, wire.Exit{Code: 1}
		case name == "migrate", name == "seed":
			return time.Second, wire.Exit{}
		}
		return -1, wire.Exit{}
	}
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) {
		s.Init = []spec.SideContainer{side("migrate"), side("seed")}
		s.Sidecars = []spec.SideContainer{side("log"), side("proxy")}
	}))
	w.Run(10 * time.Second)
	if got, want := log(), "0.0s migrate/1, 1.5s migrate/2, 2.5s seed/1, 3.5s log/1, 3.5s proxy/1, 3.5s main/1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	w.check(t, "shop", 1, 3)
}

func TestBackOffDoublesAndEnds(t *testing.T) {
	w, log := one(t)
	w.Machine.Exit = func(*spec.Assignment, string, int) (time.Duration, wire.Exit) {
		return 100 * time.Millisecond, wire.Exit{Code: 1}
	}
	three := 3
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) {
		s.Restart = spec.RestartSpec{MaxAttempts: &three, Backoff: spec.Duration(time.Second)}
	}))
	w.Run(8 * time.Second)
	// One worker only, so the failure goes up at once and the root tries again there.
	if got, want := log(), "0.0s main/1, 1.1s main/2, 3.2s main/3, 7.3s main/4, 7.4s main/1"; !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestNeverRestarted(t *testing.T) {
	w, log := one(t)
	w.Machine.Exit = func(*spec.Assignment, string, int) (time.Duration, wire.Exit) {
		return time.Second, wire.Exit{}
	}
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) { s.Restart.Policy = "onFailure" }))
	w.Run(time.Minute)
	if got, want := log(), "0.0s main/1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if i := w.only(t, "shop"); i.State != skerry.Terminated {
		t.Errorf("it is %s", i.State)
	}
	// A new version runs once more, and what ended goes with the application.
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) { s.Restart.Policy, s.Image = "onFailure", "web:2" }))
	w.Run(time.Minute)
	if got := log(); strings.Count(got, "main/") != 2 {
		t.Errorf("starts: %s", got)
	}
	w.only(t, "shop")
	w.Do(w.Root, deleteApp("shop"))
	w.Run(time.Minute)
	w.check(t, "shop", 0, 0)
	if w.RootCore().Apps.App(web("shop").App) != nil {
		t.Error("the application is still there")
	}
}

func TestProbes(t *testing.T) {
	w, log := one(t)
	pass := map[worker.ProbeKind]bool{}
	tries := map[worker.ProbeKind]int{}
	w.Machine.Probe = func(_ *spec.Assignment, k worker.ProbeKind, _ int) bool {
		tries[k]++
		return pass[k]
	}
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) {
		s.Probes = spec.Probes{Startup: probe(time.Second, 30), Readiness: probe(time.Second, 2), Liveness: probe(time.Second, 3)}
	}))
	w.Run(5 * time.Second)
	if tries[worker.Readiness]+tries[worker.Liveness] != 0 {
		t.Error("the others did not wait for startup")
	}
	if i := w.only(t, "shop"); skerry.HasCondition(i.Conditions, skerry.Ready) || i.State != skerry.Running {
		t.Errorf("%s %v", i.State, i.Conditions)
	}
	pass[worker.Startup], pass[worker.Readiness], pass[worker.Liveness] = true, true, true
	w.Run(3 * time.Second)
	w.check(t, "shop", 1, 1)
	pass[worker.Readiness] = false
	w.Run(900 * time.Millisecond) // one failure is not enough
	w.check(t, "shop", 1, 1)
	w.Run(2 * time.Second)
	w.check(t, "shop", 0, 1)
	pass[worker.Readiness] = true
	w.Run(3 * time.Second)
	w.check(t, "shop", 1, 1)
	pass[worker.Liveness] = false
	w.Run(4 * time.Second)
	pass[worker.Liveness] = true
	w.Run(5 * time.Second)
	w.check(t, "shop", 1, 1)
	if got := log(); strings.Count(got, "main/") != 2 {
		t.Errorf("liveness led to: %s", got)
	}
	if i := w.only(t, "shop"); i.Restarts != 1 {
		t.Errorf("%d restarts", i.Restarts)
	}
}

func TestSidecarComesBackAlone(t *testing.T) {
	w, log := one(t)
	w.Machine.Exit = func(_ *spec.Assignment, name string, attempt int) (time.Duration, wire.Exit) {
		if name == "log" && attempt < 3 {
			return time.Second, wire.Exit{Code: 1}
		}
		return -1, wire.Exit{}
	}
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) { s.Sidecars = []spec.SideContainer{side("log")} }))
	w.Run(10 * time.Second)
	if got, want := log(), "0.0s log/1, 0.0s main/1, 1.5s log/2, 3.5s log/3"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	w.check(t, "shop", 1, 2)
}

// A version whose side container ends again and again takes no place of the one before, and is rolled back.
func TestSidecarCrashLoopTakesNoPlaces(t *testing.T) {
	w, _ := one(t)
	w.Machine.Exit = func(_ *spec.Assignment, name string, _ int) (time.Duration, wire.Exit) {
		if name == "bad" {
			return time.Second, wire.Exit{Code: 3}
		}
		return -1, wire.Exit{}
	}
	good := app("shop", 2)
	w.must(t, w.Root, good)
	w.Run(time.Minute)
	w.check(t, "shop", 2, 2)
	before := w.RootCore().Apps.Instances(web("shop"))
	w.must(t, w.Root, app("shop", 2, func(s *spec.ServiceSpec) { s.Sidecars = []spec.SideContainer{side("bad")} }))
	w.Run(time.Minute)
	w.check(t, "shop", 2, 2)
	after := w.RootCore().Apps.Instances(web("shop"))
	if len(after) != 2 || after[0].ID != before[0].ID || after[1].ID != before[1].ID {
		t.Errorf("the replicas of the good version were replaced")
	}
	core := w.RootCore()
	v := core.Apps.View(core.Apps.App(web("shop").App), "root", true)
	why := "failed 3 times: side container bad ended with status 3"
	if v.Status != "RolledBack" || !strings.HasSuffix(v.Services[0].Reason, why) {
		t.Errorf("%s: %s", v.Status, v.Services[0].Reason)
	}
}

func TestPowerLossStartsFromLocalState(t *testing.T) {
	w, log := one(t)
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) { s.Init = []spec.SideContainer{side("migrate")} }))
	w.Run(time.Second)
	n := w.Workers["a/w1"]
	w.Kill(w.Clusters["a"]) // nobody above is there to ask
	w.PowerOff(n)
	w.Run(time.Second)
	w.Boot(n)
	w.Run(5 * time.Second)
	if n.Tasks() != 1 {
		t.Fatalf("%d tasks run after the reboot; starts: %s", n.Tasks(), log())
	}
	if got := log(); !strings.Contains(got, "migrate/2, ") || !strings.HasSuffix(got, "main/2") {
		t.Errorf("starts: %s", got)
	}
}

// What a machine ran before it lost its power is not ready until it runs again, however long its start takes.
func TestNotReadyAfterPowerLoss(t *testing.T) {
	w, _ := one(t)
	w.must(t, w.Root, app("shop", 1))
	w.Run(5 * time.Second)
	w.check(t, "shop", 1, 1)
	n := w.Workers["a/w1"]
	w.PowerOff(n)
	w.Machine.Prepare = time.Minute
	w.Boot(n)
	w.Connect(n)
	w.Run(10 * time.Second)
	if n.Tasks() != 0 || w.ready("shop") != 0 {
		t.Errorf("%d run and %d are ready while it is prepared anew", n.Tasks(), w.ready("shop"))
	}
	w.Run(2 * time.Minute)
	w.check(t, "shop", 1, 1)
}

func TestDeleteWhileFetching(t *testing.T) {
	w, log := one(t)
	w.Machine.Prepare = time.Minute
	w.must(t, w.Root, app("shop", 1))
	w.Run(5 * time.Second)
	w.Do(w.Root, deleteApp("shop"))
	w.Run(2 * time.Minute)
	if w.RootCore().Apps.App(web("shop").App) != nil || log() != "" {
		t.Errorf("the application is still there, or was started: %q", log())
	}
}
