package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// sized gives an instance its limits.
func sized(cpu skerry.MilliCPU, memory skerry.Bytes) func(*spec.ServiceSpec) {
	return func(s *spec.ServiceSpec) { s.Resources.CPU, s.Resources.Memory = cpu, memory }
}

// ids lists the live instances of an application with their limits.
func (w *World) ids(name string) (ids []string, cpu []skerry.MilliCPU) {
	for _, i := range w.RootCore().Apps.Instances(web(name)) {
		if i.Live() {
			ids = append(ids, string(i.ID))
			cpu = append(cpu, i.Spec.Resources.CPU)
		}
	}
	slices.Sort(ids)
	return ids, cpu
}

// texts lists the reasons of events.
func (w *World) texts(reason string) (out []string) {
	for _, e := range w.Events {
		if e.Reason == reason {
			out = append(out, e.Text)
		}
	}
	return out
}

// booksHold checks what sites believe against what is promised.
func (w *World) booksHold(t *testing.T) {
	t.Helper()
	for _, c := range ordered(w.Clusters) {
		if c.Up {
			for _, text := range c.Core.(*cluster.Core).Audit() {
				t.Errorf("%s: %s", c.Name, text)
			}
		}
	}
	for _, f := range w.Faults {
		t.Error(f)
	}
}

func counted(w *World) *int {
	n := 0
	w.Machine.Started = func(*spec.Assignment, string, int) { n++ }
	return &n
}

// Other limits reach what runs without a start: the same instances, with the new limits at root, site and worker, whichever
// of them ends in the middle of it.
func TestLimitsChangeInPlace(t *testing.T) {
	for _, who := range []string{"nobody", "root", "a", "b", "a/w1", "b/w2", "all"} {
		t.Run(who, func(t *testing.T) {
			w := small(t)
			w.Machine.Stop = 500 * time.Millisecond // a change of limits takes as long
			starts := counted(w)
			w.must(t, w.Root, app("shop", 4, sized(400, 64*skerry.MiB)))
			w.Run(3 * time.Second)
			w.check(t, "shop", 4, 4)
			before, _ := w.ids("shop")
			for _, to := range []skerry.MilliCPU{450, 200} { // grow, and shrink
				*starts = 0
				w.must(t, w.Root, app("shop", 4, sized(to, 96*skerry.MiB)))
				for n := range 40 {
					w.Run(100 * time.Millisecond)
					if n == 3 {
						for _, x := range w.nodes() {
							if x.Name == who || who == "all" {
								w.Restart(x, x.facts)
							}
						}
					}
					w.booksHold(t)
				}
				w.Run(40 * time.Second)
				w.check(t, "shop", 4, 4)
				after, cpu := w.ids("shop")
				if !slices.Equal(before, after) || *starts != 0 {
					t.Fatalf("%v became %v, with %d starts", before, after, *starts)
				}
				for _, c := range cpu {
					if c != to {
						t.Errorf("the root believes that an instance has %v", c)
					}
				}
				w.sameLimits(t, "shop", to)
			}
			// Back to the first version by the history: in place, too.
			w.must(t, w.Root, apps.Undo{Service: web("shop"), Actor: "t"})
			w.Run(5 * time.Second)
			if after, _ := w.ids("shop"); !slices.Equal(before, after) || *starts != 0 {
				t.Errorf("%v became %v, with %d starts", before, after, *starts)
			}
			w.sameLimits(t, "shop", 450)
			w.booksHold(t)
		})
	}
}

// sameLimits checks what sites and workers hold of an application.
func (w *World) sameLimits(t *testing.T, name string, cpu skerry.MilliCPU) {
	t.Helper()
	for _, c := range ordered(w.Clusters) {
		for _, i := range c.Core.(*cluster.Core).Instances() {
			if i.Service == web(name) && (i.Resources.CPU != cpu || slices.ContainsFunc(i.Conditions, func(k skerry.Condition) bool { return k.Type == skerry.UpToDate })) {
				t.Errorf("%s believes %s has %v: %+v", c.Name, i.ID, i.Resources.CPU, i.Conditions)
			}
		}
	}
	for _, x := range ordered(w.Workers) {
		for _, i := range x.Core.(*worker.Core).Views() {
			if i.Service == web(name) && i.Resources.CPU != cpu {
				t.Errorf("%s has %s with %v", x.Name, i.ID, i.Resources.CPU)
			}
		}
	}
	for _, i := range w.RootCore().Apps.Instances(web(name)) {
		if i.Resize != nil || !skerry.HasCondition(i.Conditions, skerry.UpToDate) {
			t.Errorf("%s at the root: %+v %+v", i.ID, i.Resize, i.Conditions)
		}
	}
}

// Where its worker has no room an instance is replaced by one elsewhere, make before break, and the books hold throughout.
func TestLimitsBeyondTheWorkerMove(t *testing.T) {
	w := newWorld(t, 1)
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(1000))
	w.AddWorker("a", "w2", facts(2000))
	w.Run(time.Second)
	w.must(t, w.Root, app("big", 1, sized(500, 64*skerry.MiB)))
	w.Run(2 * time.Second)
	at := w.RootCore().Apps.Instances(web("big"))[0]
	if w.Workers["a/w1"].Tasks() != 1 {
		t.Fatal("best fit did not choose the smaller worker")
	}
	w.must(t, w.Root, app("big", 1, sized(1500, 64*skerry.MiB)))
	for range 150 {
		w.Run(100 * time.Millisecond)
		if w.ready("big") < 1 {
			t.Fatal("nothing serves")
		}
		w.booksHold(t)
	}
	w.check(t, "big", 1, 1)
	if now := w.RootCore().Apps.Instances(web("big"))[0]; now.ID == at.ID || w.Workers["a/w2"].Tasks() != 1 {
		t.Error("it is where it was")
	}
	if told := w.texts("NotResized"); len(told) != 1 || !strings.Contains(told[0], "not enough cpu") {
		t.Error(told)
	}
}

// A runtime that cannot is said so, and an ordinary update happens; and so with update.limits: replace.
func TestLimitsThatCannotChange(t *testing.T) {
	for _, how := range []string{"driver", "agent", "manifest"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, 1)
			w.AddCluster("a")
			f := facts(4000)
			if how == "agent" {
				f.Runtimes = []wire.RuntimeReport{{Name: "oci", Passed: true}}
			}
			w.AddWorker("a", "w1", f)
			if how == "driver" {
				w.Machine.Limits = func(string, skerry.InstanceID, *spec.ServiceSpec) (string, bool) { return "it cannot", false }
			}
			edit := func(s *spec.ServiceSpec) {
				if how == "manifest" {
					s.Update.Limits = spec.LimitsReplace
				}
			}
			w.Run(time.Second)
			w.must(t, w.Root, app("shop", 2, sized(300, 64*skerry.MiB), edit))
			w.Run(2 * time.Second)
			before, _ := w.ids("shop")
			w.must(t, w.Root, app("shop", 2, sized(600, 64*skerry.MiB), edit))
			for range 300 {
				w.Run(100 * time.Millisecond)
				if w.ready("shop") < 2 {
					t.Fatal("fewer serve")
				}
				w.booksHold(t)
			}
			w.check(t, "shop", 2, 2)
			after, _ := w.ids("shop")
			if slices.ContainsFunc(after, func(id string) bool { return slices.Contains(before, id) }) {
				t.Errorf("%v became %v", before, after)
			}
			w.sameLimits(t, "shop", 600)
			if told := w.texts("NotResized"); (len(told) == 2) != (how != "manifest") {
				t.Error(told)
			}
		})
	}
}

// Memory that is in use is not cut: the old limit stays, everybody is told why, and it is cut when it can be.
func TestLimitsBelowWhatIsUsedWait(t *testing.T) {
	w := small(t)
	starts := counted(w)
	used := skerry.Bytes(300 * skerry.MiB)
	w.Machine.Limits = func(_ string, _ skerry.InstanceID, to *spec.ServiceSpec) (string, bool) {
		if to.Resources.Memory < used {
			return "it uses 300Mi of memory", true
		}
		return "", false
	}
	w.must(t, w.Root, app("shop", 1, sized(500, 512*skerry.MiB)))
	w.Run(3 * time.Second)
	*starts = 0
	w.must(t, w.Root, app("shop", 1, sized(500, 128*skerry.MiB)))
	w.Run(70 * time.Second)
	w.check(t, "shop", 1, 1)
	w.booksHold(t)
	i := w.RootCore().Apps.Instances(web("shop"))[0]
	if i.Spec.Resources.Memory != 512*skerry.MiB || i.Resize == nil || skerry.HasCondition(i.Conditions, skerry.UpToDate) {
		t.Fatalf("%+v %+v", i.Resize, i.Conditions)
	}
	if told := w.texts("LimitsRefused"); len(told) == 0 || len(told) > 3 || !strings.Contains(told[0], "300Mi") { // once, at worker, site and root
		t.Error(told)
	}
	// A version in between goes through; then what is free is cut.
	w.must(t, w.Root, app("shop", 1, sized(500, 400*skerry.MiB)))
	w.Run(5 * time.Second)
	if i.Spec.Resources.Memory != 400*skerry.MiB || i.Resize != nil {
		t.Errorf("%+v %+v", i.Spec.Resources, i.Resize)
	}
	w.must(t, w.Root, app("shop", 1, sized(500, 128*skerry.MiB)))
	w.Run(5 * time.Second)
	used = 0
	w.Run(time.Minute)
	if i.Spec.Resources.Memory != 128*skerry.MiB || i.Resize != nil || *starts != 0 {
		t.Errorf("%+v %+v, %d starts", i.Spec.Resources, i.Resize, *starts)
	}
	w.booksHold(t)
}

// The wave after a canary gets its limits in place, too, where its time comes while the root is down.
func TestLimitsAfterARestartOfTheRoot(t *testing.T) {
	w := small(t)
	starts := counted(w)
	version := func(memory skerry.Bytes) apps.Apply {
		return app("shop", 4, sized(300, memory), func(s *spec.ServiceSpec) {
			s.Update.Canary = &spec.Canary{Count: 1, For: spec.Duration(20 * time.Second)}
		})
	}
	w.must(t, w.Root, version(64*skerry.MiB))
	w.Run(3 * time.Second)
	before, _ := w.ids("shop")
	*starts = 0
	w.must(t, w.Root, version(128*skerry.MiB))
	w.Run(10 * time.Second)
	w.Kill(w.Root)
	w.Run(20 * time.Second)
	w.Boot(w.Root)
	for _, site := range ordered(w.Clusters) {
		w.Heal(site)
	}
	w.Run(40 * time.Second)
	if after, _ := w.ids("shop"); !slices.Equal(before, after) || *starts != 0 || len(w.texts("RolledOut")) != 1 {
		t.Errorf("%v became %v, with %d starts; %v", before, after, *starts, w.texts("RolledOut"))
	}
	w.booksHold(t)
}

// A canary gets the limits first; if it then fails, the limits from before come back, in place.
func TestLimitsOfACanary(t *testing.T) {
	w := small(t)
	starts := counted(w)
	bad := skerry.Bytes(32 * skerry.MiB)
	version := func(memory skerry.Bytes) apps.Apply {
		return app("shop", 4, sized(300, memory), func(s *spec.ServiceSpec) {
			s.Update = spec.UpdateSpec{Canary: &spec.Canary{Count: 1, For: spec.Duration(20 * time.Second)}, Rollback: spec.RollbackAutomatic}
			d := spec.Duration(30 * time.Second)
			s.Update.Deadline = &d
		})
	}
	w.Machine.Limits = func(_ string, _ skerry.InstanceID, to *spec.ServiceSpec) (string, bool) {
		if to.Resources.Memory == bad {
			return "in use", true
		}
		return "", false
	}
	w.must(t, w.Root, version(64*skerry.MiB))
	w.Run(3 * time.Second)
	*starts = 0
	w.must(t, w.Root, version(128*skerry.MiB))
	w.Run(5 * time.Second)
	count := func(memory skerry.Bytes) (n int) {
		for _, i := range w.RootCore().Apps.Instances(web("shop")) {
			if i.Spec.Resources.Memory == memory {
				n++
			}
		}
		return n
	}
	if count(128*skerry.MiB) != 1 {
		t.Fatalf("%d canaries", count(128*skerry.MiB))
	}
	w.Run(40 * time.Second)
	if count(128*skerry.MiB) != 4 || len(w.texts("RolledOut")) != 1 {
		t.Fatalf("%d have them; %v", count(128*skerry.MiB), w.texts("RolledOut"))
	}
	w.must(t, w.Root, version(bad))
	w.Run(50 * time.Second)
	if count(128*skerry.MiB) != 4 || *starts != 0 {
		t.Errorf("%d are as before, after %d starts", count(128*skerry.MiB), *starts)
	}
	if told := w.texts("RolledBack"); len(told) != 1 || !strings.Contains(told[0], "in use") {
		t.Error(told)
	}
	w.sameLimits(t, "shop", 300)
	w.booksHold(t)
}

// A worker that is held on its device changes no limits until it is released.
func TestLimitsOfAHeldWorker(t *testing.T) {
	w := newWorld(t, 1)
	w.AddCluster("a")
	n := w.AddWorker("a", "w1", facts(2000))
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1, sized(300, 64*skerry.MiB)))
	w.Run(2 * time.Second)
	w.must(t, n, worker.FreezeLocal{Reason: "on the road"})
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1, sized(600, 64*skerry.MiB)))
	w.Run(20 * time.Second)
	if v := n.Core.(*worker.Core).Views()[0]; v.Resources.CPU != 300 {
		t.Errorf("it has %v", v.Resources.CPU)
	}
	w.booksHold(t)
	w.must(t, n, worker.ReleaseLocal{})
	w.Run(3 * time.Second)
	w.sameLimits(t, "shop", 600)
	w.booksHold(t)
}
