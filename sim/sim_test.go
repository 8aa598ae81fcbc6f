package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func facts(cpu skerry.MilliCPU) wire.WorkerFacts {
	return wire.WorkerFacts{Capacity: spec.Resources{CPU: cpu, Memory: 4 * skerry.GiB, Storage: 10 * skerry.GiB}}
}

func app(name string, replicas int, edit ...func(*spec.ServiceSpec)) apps.Apply {
	s := spec.ServiceSpec{Name: "web", Replicas: &replicas, Resources: spec.Resources{CPU: 500, Memory: 64 * skerry.MiB}}
	s.Image = "web:1"
	for _, f := range edit {
		f(&s)
	}
	return apps.Apply{Actor: "t", App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: name}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}}
}

func small(t *testing.T) *World {
	t.Helper()
	w := newWorld(t, 1)
	for _, c := range []string{"a", "b"} {
		w.AddCluster(c)
		for i := range 2 {
			w.AddWorker(c, fmt.Sprintf("w%d", i+1), facts(2000))
		}
	}
	w.Run(time.Second)
	return w
}

func (w *World) must(t *testing.T, n *Node, msg any) {
	t.Helper()
	if err, ok := w.Do(n, msg).(error); ok {
		t.Fatal(err)
	}
}

func deleteApp(name string) apps.Delete { return apps.Delete{Key: web(name).App} }

func web(name string) skerry.ServiceKey {
	return skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: name}, Service: "web"}
}

func (w *World) ready(name string) int {
	n := 0
	for _, i := range w.RootCore().Apps.Instances(web(name)) {
		if i.IsReady() && !i.Stopping {
			n++
		}
	}
	return n
}

func (w *World) tasks() int {
	n := 0
	for _, x := range ordered(w.Workers) {
		n += x.Tasks()
	}
	return n
}

func (w *World) check(t *testing.T, name string, ready, tasks int) {
	t.Helper()
	if g := w.ready(name); g != ready {
		for _, i := range w.RootCore().Apps.Instances(web(name)) {
			t.Logf("%s %s %s holder=%s %q stopping=%v %v", i.ID, i.State, i.Phase, i.Holder, i.Reason, i.Stopping, i.Why)
		}
		t.Errorf("%d instances of %s are ready at the root, want %d", g, name, ready)
	}
	if g := w.tasks(); g != tasks {
		t.Errorf("%d tasks run, want %d", g, tasks)
	}
	for _, f := range w.Faults {
		t.Error(f)
	}
}

func TestDeployScaleUpdateDelete(t *testing.T) {
	w := small(t)
	w.must(t, w.Root, app("shop", 3))
	w.Run(time.Second)
	w.check(t, "shop", 3, 3)

	w.must(t, w.Root, apps.Scale{Service: web("shop"), Replicas: 5})
	w.Run(time.Second)
	w.check(t, "shop", 5, 5)

	w.must(t, w.Root, app("shop", 5, func(s *spec.ServiceSpec) { s.Image = "web:2" }))
	least := 99
	for range 6000 { // one after the other, each of which counts after healthyTime
		w.Run(10 * time.Millisecond)
		least = min(least, w.ready("shop"))
	}
	w.check(t, "shop", 5, 5)
	if least < 5 {
		t.Errorf("during the rolling update only %d of 5 were ready", least)
	}
	for _, i := range w.RootCore().Apps.Instances(web("shop")) {
		if i.Spec.Image != "web:2" {
			t.Errorf("%s still runs %s", i.ID, i.Spec.Image)
		}
	}

	w.must(t, w.Root, apps.Restart{Service: web("shop")})
	w.Run(5 * time.Second)
	w.check(t, "shop", 5, 5)
	for _, i := range w.RootCore().Apps.Instances(web("shop")) {
		if i.Restarts != 1 {
			t.Errorf("%s was restarted %d times, want 1", i.ID, i.Restarts)
		}
	}

	w.must(t, w.Root, apps.Delete{Key: web("shop").App})
	w.Run(time.Second)
	w.check(t, "shop", 0, 0)
	if w.RootCore().Apps.App(web("shop").App) != nil {
		t.Error("the application is still there")
	}
	for name, n := range w.Clusters {
		for k := range n.Store {
			if len(k) > 6 && k[:6] == "place/" {
				t.Errorf("%s keeps %s", name, k)
			}
		}
	}
}

func TestNoPlaceHasReasonsAndHeals(t *testing.T) {
	w := small(t)
	w.must(t, w.Root, app("big", 1, func(s *spec.ServiceSpec) { s.Resources.CPU = 8000 }))
	w.Run(time.Second)
	i := w.RootCore().Apps.Instances(web("big"))[0]
	if i.State != skerry.Requested || len(i.Why) == 0 {
		t.Fatalf("state %s, reasons %v", i.State, i.Why)
	}
	w.AddWorker("b", "w9", facts(16000))
	w.Run(2 * time.Minute)
	w.check(t, "big", 1, 1)
}

// An instance without a place is told of once its convergence time is over, once, and is placed when there is room after all.
func TestNotPlacedInTimeIsTold(t *testing.T) {
	w := small(t)
	w.must(t, w.Root, app("big", 1, func(s *spec.ServiceSpec) {
		s.Resources.CPU, s.Placement.ConvergenceTime = 8000, new(spec.Duration(10*time.Second))
	}))
	w.Run(9 * time.Second)
	if told := w.texts("NotPlaced"); len(told) > 0 {
		t.Errorf("told before its time: %q", told)
	}
	w.Run(time.Minute)
	if told := w.texts("NotPlaced"); len(told) != 1 || !strings.Contains(told[0], "of cpu") {
		t.Errorf("told %q", told)
	}
	w.AddWorker("b", "w9", facts(16000))
	w.Run(2 * time.Minute)
	w.check(t, "big", 1, 1)
}

func TestWorkerDies(t *testing.T) {
	w := small(t)
	w.must(t, w.Root, app("shop", 4))
	w.Run(time.Second)
	w.check(t, "shop", 4, 4)
	for name, n := range w.Workers {
		if n.Tasks() > 0 {
			t.Log("power off", name)
			w.PowerOff(n)
			w.Run(10 * time.Second)
			w.check(t, "shop", 4, 4)
			f := facts(2000)
			f.Runtimes, f.Arch, f.Address = []wire.RuntimeReport{{Name: "oci", Passed: true}}, "amd64", "x"
			w.Restart(n, &f)
			w.Run(10 * time.Second)
			w.check(t, "shop", 4, 4)
			break
		}
	}
}

func TestAgentRestartsTouchNothing(t *testing.T) {
	w := small(t)
	w.must(t, w.Root, app("shop", 4))
	w.Run(time.Second)
	restarts := func() (n int) {
		for _, i := range w.RootCore().Apps.Instances(web("shop")) {
			n += i.Restarts
		}
		return n
	}
	nodes := []*Node{w.Root, w.Clusters["a"], w.Clusters["b"], w.Workers["a/w1"], w.Workers["a/w2"], w.Workers["b/w1"], w.Workers["b/w2"]}
	for _, n := range nodes {
		w.Kill(n)
		w.Run(time.Second)
		f := facts(2000)
		f.Runtimes, f.Arch, f.Address = []wire.RuntimeReport{{Name: "oci", Passed: true}}, "amd64", "x"
		if w.Workers[n.Name] != nil {
			w.Restart(n, &f)
		} else {
			w.Restart(n, nil)
		}
		w.Run(10 * time.Second)
		w.check(t, "shop", 4, 4)
	}
	if r := restarts(); r != 0 {
		t.Errorf("%d restarts, want none", r)
	}
}

func TestDeleteWhileSiteIsAway(t *testing.T) {
	w := small(t)
	w.must(t, w.Root, app("shop", 4))
	w.Run(time.Second)
	w.Cut(w.Clusters["a"])
	w.Cut(w.Clusters["b"])
	w.must(t, w.Root, apps.Delete{Key: web("shop").App})
	w.Run(time.Minute)
	if w.tasks() != 4 {
		t.Fatalf("%d tasks run while the sites are away, want 4", w.tasks())
	}
	w.Heal(w.Clusters["a"])
	w.Heal(w.Clusters["b"])
	w.Run(10 * time.Second)
	w.check(t, "shop", 0, 0)
	if w.RootCore().Apps.App(web("shop").App) != nil {
		t.Error("the application is still there")
	}
}

func TestJobRunsToCompletion(t *testing.T) {
	w := small(t)
	w.Machine.Exit = func(a *spec.Assignment, name string, attempt int) (time.Duration, wire.Exit) {
		if a.Ordinal == 1 {
			return time.Second, wire.Exit{Code: 3}
		}
		return time.Second, wire.Exit{}
	}
	three := 3
	w.must(t, w.Root, app("batch", 1, func(s *spec.ServiceSpec) {
		s.Mode, s.Replicas, s.Job = spec.ModeJob, nil, &spec.JobSpec{Completions: &three}
	}))
	w.Run(20 * time.Second)
	r := w.RootCore().Apps.App(web("batch").App).Runs["web"]
	if len(r) != 1 || r[0].Result != "Succeeded" || r[0].Succeeded != 3 || r[0].Failed != 1 {
		t.Fatalf("runs: %+v", *r[0])
	}
	w.Run(2 * time.Hour)
	if n := len(w.RootCore().Apps.Instances(web("batch"))); n != 0 {
		t.Errorf("%d instances are kept after their time", n)
	}
	w.check(t, "batch", 0, 0)
}

func TestCronStartsOnTime(t *testing.T) {
	w := small(t)
	w.Machine.Exit = func(*spec.Assignment, string, int) (time.Duration, wire.Exit) {
		return time.Second, wire.Exit{}
	}
	w.must(t, w.Root, app("nightly", 1, func(s *spec.ServiceSpec) {
		s.Mode, s.Replicas, s.Cron = spec.ModeCron, nil, &spec.CronSpec{Schedule: "*/5 * * * *"}
	}))
	most, before := 0, 0
	for range 21 * 60 {
		w.Run(time.Second)
		v := w.RootCore().Apps.View(w.RootCore().Apps.App(web("nightly").App), "root", true).Services[0]
		most = max(most, v.Want)
		if len(v.Runs) == 0 || v.Runs[len(v.Runs)-1].Result != "" {
			before = max(before, v.Want)
		}
	}
	if most != 1 || before != 0 {
		t.Errorf("between runs %d instances are wanted, at most %d", before, most)
	}
	r := w.RootCore().Apps.App(web("nightly").App).Runs["web"]
	if len(r) != 4 {
		t.Fatalf("%d runs in 21 minutes, want 4", len(r))
	}
	for _, x := range r {
		if x.Result != "Succeeded" {
			t.Errorf("run %+v", *x)
		}
	}
}

func TestPerWorkerFollowsTheWorkers(t *testing.T) {
	w := small(t)
	w.must(t, w.Root, app("probe", 1, func(s *spec.ServiceSpec) { s.Mode, s.Replicas = spec.ModePerWorker, nil }))
	w.Run(2 * time.Second)
	w.check(t, "probe", 2, 4) // one instance for each site at the root, four copies
	w.AddWorker("a", "w3", facts(2000))
	w.Run(2 * time.Second)
	w.check(t, "probe", 2, 5)
	w.must(t, w.Root, apps.Delete{Key: web("probe").App})
	w.Run(2 * time.Second)
	w.check(t, "probe", 0, 0)
}

func TestCrashLoopMovesThenFailsVisibly(t *testing.T) {
	w := small(t)
	w.Machine.Exit = func(*spec.Assignment, string, int) (time.Duration, wire.Exit) {
		return 100 * time.Millisecond, wire.Exit{Code: 1}
	}
	w.must(t, w.Root, app("bad", 1))
	w.Run(5 * time.Minute)
	i := w.RootCore().Apps.Instances(web("bad"))[0]
	if i.Failures == 0 {
		t.Errorf("state %s, failures %d, timeline %+v", i.State, i.Failures, i.Timeline)
	}
	if code, text := i.Trouble(); code != "CrashLoop" || !strings.HasPrefix(text, "restarted ") || !strings.Contains(text, ": ended with status 1") {
		t.Errorf("%s: %s", code, text)
	}
	core := w.RootCore()
	if v := core.Apps.View(core.Apps.App(web("bad").App), "root", true); v.Status == "Ready" || v.Services[0].CrashLoops != 1 {
		t.Errorf("%+v", v)
	}
	// It stays up at last, and is well after some time.
	w.Machine.Exit = nil
	w.Run(3 * time.Minute)
	if v := core.Apps.View(core.Apps.App(web("bad").App), "root", true); v.Status != "Ready" || v.Reason != "" {
		t.Errorf("%s: %s", v.Status, v.Reason)
	}
	for _, f := range w.Faults {
		t.Error(f)
	}
}
