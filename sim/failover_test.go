package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// sites is a federation of two sites with one instance, at whose site it names first.
func sites(t *testing.T, edit ...func(*spec.ServiceSpec)) (w *World, first, other string) {
	t.Helper()
	w = newWorld(t, 7)
	w.Audit = true
	for _, name := range []string{"a", "b"} {
		w.AddCluster(name)
		w.AddWorker(name, "w1", facts(2000))
	}
	w.Run(12 * time.Second)
	w.must(t, w.Root, app("shop", 1, edit...))
	w.Run(2 * time.Second)
	w.check(t, "shop", 1, 1)
	first, other = "a", "b"
	if w.holder(t) == "b" {
		first, other = other, first
	}
	return w, first, other
}

func (w *World) holder(t *testing.T) string {
	t.Helper()
	return string(w.only(t, "shop").Cluster)
}

func (w *World) told(reason string) (n int) {
	for _, e := range w.Events {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

// While a site is out of touch, and after a restart until it is back, the root calls nothing there ready, and says why.
func TestNothingIsReadyOutOfTouch(t *testing.T) {
	w, first, other := sites(t)
	shown := func(ready int, why string) {
		t.Helper()
		c := w.RootCore().Apps
		v := c.View(c.App(web("shop").App), "root", false)
		s := v.Services[0]
		if status := map[int]string{0: "Degraded", 1: "Ready"}[ready]; v.Status != status || s.OutOfTouch != 1-ready {
			t.Errorf("with %d ready it is %s, and %d are out of touch", ready, v.Status, s.OutOfTouch)
		}
		one := c.Instances(web("shop"))[0].Shown()
		if s.Ready != ready || skerry.HasCondition(one.Conditions, skerry.Ready) != (ready == 1) || !strings.Contains(s.Reason, why) {
			t.Errorf("%d are ready because of %q, and the instance has %v; expected %d, %q", s.Ready, s.Reason, one.Conditions, ready, why)
		}
	}
	shown(1, "")
	w.Cut(w.Clusters[first])
	w.Run(30 * time.Second)
	shown(0, "cluster "+first+" is not connected")
	w.Kill(w.Root)
	w.Boot(w.Root)
	shown(0, "cluster "+first+" is not connected")
	w.Heal(w.Clusters[first])
	w.Run(30 * time.Second)
	shown(1, "")
	// What waits for a place is out of touch with nobody.
	w.Cut(w.Clusters[first])
	w.Cut(w.Clusters[other])
	w.Run(30 * time.Second)
	w.must(t, w.Root, root.RemoveCluster{Name: first})
	if code, text := w.RootCore().Apps.Instances(web("shop"))[0].Trouble(); code == "Unreachable" {
		t.Errorf("it has no place, and %s: %s", code, text)
	}
}

// A site that is out of touch keeps its instances until the root gives it up, and what then runs twice is arbitrated as
// the service says. Whichever copy stays is never restarted, through both tiers.
func TestSiteFailover(t *testing.T) {
	for _, x := range []struct {
		policy      string
		original    bool
		originalBad bool
	}{
		{spec.KeepReplacement, false, false}, {spec.KeepOriginal, true, false}, {spec.KeepBest, false, false},
		{spec.KeepOriginal, false, true}, {spec.KeepBest, false, true},
	} {
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			bad := false
			w, first, other := sites(t, func(s *spec.ServiceSpec) {
				s.OnReconnect = x.policy
				s.Probes.Readiness = probe(time.Second, 2)
			})
			id, fence := w.only(t, "shop").ID, w.only(t, "shop").Fence
			starts := w.starts()
			w.Cut(w.Clusters[first])
			w.Run(root.DefaultLostAfter - time.Second)
			w.check(t, "shop", 1, 1)
			if *starts != 0 {
				t.Fatalf("%d starts before the site counts as lost", *starts)
			}
			w.Run(10 * time.Second)
			w.check(t, "shop", 1, 2)
			if *starts != 1 || w.holder(t) != other || w.only(t, "shop").ID != id {
				t.Fatalf("%d starts, it is at %s", *starts, w.holder(t))
			}
			if x.originalBad {
				at := w.Workers[first+"/w1"]
				w.Machine.Exit = func(a *spec.Assignment, _ string, _ int) (time.Duration, wire.Exit) {
					if bad {
						return time.Millisecond, wire.Exit{Code: 1}
					}
					return -1, wire.Exit{}
				}
				bad = true
				for _, k := range at.tasks {
					w.machines.endTask(at, k, wire.Exit{Code: 1})
				}
				w.Run(time.Second)
			}
			before := *starts
			w.Heal(w.Clusters[first])
			w.Run(10 * time.Second)
			w.check(t, "shop", 1, 1)
			if !x.originalBad && *starts != before {
				t.Errorf("%d containers were started after the link came back", *starts-before)
			}
			if got := w.holder(t) == first; got != x.original {
				t.Errorf("the original was kept: %v", got)
			}
			i := w.only(t, "shop")
			if i.Fence.Compare(fence) <= 0 || i.Restarts != 0 && !x.originalBad {
				t.Errorf("the token went from %v to %v, %d restarts", fence, i.Fence, i.Restarts)
			}
			if at, _, ok := w.ClusterCore(w.holder(t)).Instance(id); !ok || at.Fence.RootEpoch != i.Fence.RootEpoch {
				t.Errorf("the site has it under %v, the root under %v", at.Fence, i.Fence)
			}
			w.sound(t)
		})
	}
}

// A site that is back before a copy elsewhere is ready keeps what it runs; nothing is restarted.
func TestSiteBackBeforeTheCopyIsReady(t *testing.T) {
	w, first, _ := sites(t)
	w.Machine.Prepare = time.Minute
	starts := w.starts()
	w.Cut(w.Clusters[first])
	w.Run(root.DefaultLostAfter + 10*time.Second)
	if w.told("Replacing") != 1 || w.ready("shop") != 0 || w.holder(t) != first {
		t.Fatalf("%d copies on the way, %d ready, at %s", w.told("Replacing"), w.ready("shop"), w.holder(t))
	}
	w.Heal(w.Clusters[first])
	w.Run(3 * time.Minute)
	w.check(t, "shop", 1, 1)
	if *starts != 0 || w.holder(t) != first {
		t.Errorf("%d starts, it is at %s", *starts, w.holder(t))
	}
	w.sound(t)
}

// A site that dies for good is replaced, what is pinned to it waits, and an application that spans sites keeps what still
// runs.
func TestSiteDies(t *testing.T) {
	w, first, other := sites(t, func(s *spec.ServiceSpec) { s.Placement.Policy = "" })
	w.must(t, w.Root, app("pinned", 1, func(s *spec.ServiceSpec) { s.Placement.Cluster = first }))
	w.must(t, w.Root, app("kept", 1, func(s *spec.ServiceSpec) { s.Placement.Cluster = other }))
	w.Run(5 * time.Second)
	w.Kill(w.Clusters[first])
	w.PowerOff(w.Workers[first+"/w1"])
	starts := w.starts()
	w.Run(root.DefaultLostAfter + 20*time.Second)
	w.check(t, "shop", 1, 2)
	if *starts != 1 || w.ready("pinned") != 0 || w.ready("kept") != 1 {
		t.Errorf("%d starts, %d pinned ready, %d kept ready", *starts, w.ready("pinned"), w.ready("kept"))
	}
	if why := w.only(t, "pinned").Reason; why == "" {
		t.Error("nobody says why the pinned one is not ready")
	}
	// It comes back with what its store holds, and nothing that runs.
	f := facts(2000)
	w.Restart(w.Clusters[first], nil)
	w.Restart(w.Workers[first+"/w1"], &f)
	w.Run(time.Minute)
	w.check(t, "shop", 1, 3)
	w.check(t, "pinned", 1, 3)
	if w.holder(t) != other {
		t.Errorf("it is at %s", w.holder(t))
	}
	w.sound(t)
}

// The arbitration survives a restart of the root, at any of its moments.
func TestFailoverOutlivesTheRoot(t *testing.T) {
	for _, when := range []time.Duration{root.DefaultLostAfter / 2, root.DefaultLostAfter + 100*time.Millisecond, root.DefaultLostAfter + time.Minute} {
		t.Run(when.String(), func(t *testing.T) {
			w, first, _ := sites(t, func(s *spec.ServiceSpec) { s.OnReconnect = spec.KeepOriginal })
			w.Machine.Prepare = 10 * time.Second
			starts := w.starts()
			w.Cut(w.Clusters[first])
			w.Run(when)
			w.Kill(w.Root)
			w.Run(time.Second)
			w.Restart(w.Root, nil)
			w.Run(root.DefaultLostAfter + time.Minute)
			w.check(t, "shop", 1, 2)
			w.Heal(w.Clusters[first])
			w.Run(20 * time.Second)
			w.check(t, "shop", 1, 1)
			if *starts != 1 || w.holder(t) != first {
				t.Errorf("%d starts, it is at %s", *starts, w.holder(t))
			}
			w.sound(t)
		})
	}
}

// What is deleted or scaled while a site is lost, and has copies at two sites, ends at both.
func TestDeletedWhileASiteIsLost(t *testing.T) {
	w, first, _ := sites(t)
	w.Cut(w.Clusters[first])
	w.Run(root.DefaultLostAfter + 10*time.Second)
	w.check(t, "shop", 1, 2)
	w.must(t, w.Root, deleteApp("shop"))
	w.Run(10 * time.Second)
	if w.tasks() != 1 || w.RootCore().Apps.App(web("shop").App) != nil {
		t.Fatalf("%d run", w.tasks())
	}
	w.Heal(w.Clusters[first])
	w.Run(10 * time.Second)
	if w.tasks() != 0 {
		t.Errorf("%d run after the site is back", w.tasks())
	}
	w.sound(t)
}

// With stopAfter there are never two copies, however long the site, or its worker too, is away, and whatever restarts
// meanwhile.
func TestSiteStopAfterNeverRunsTwice(t *testing.T) {
	const d = 30 * time.Second
	for _, x := range []struct {
		cut      time.Duration
		reboot   bool          // of the orchestrator, 10 s after the cut
		worker   time.Duration // its worker is cut off, too, so long after the site
		same     bool          // it is where it was
		restarts bool
	}{
		{20 * time.Second, false, 0, true, false},
		{20 * time.Second, true, 0, true, false},
		{time.Minute, false, 0, true, true},
		{time.Minute, true, 0, true, true},
		{root.DefaultLostAfter + time.Minute, false, 0, false, true},
		{root.DefaultLostAfter + time.Minute, true, 0, false, true},
		{root.DefaultLostAfter + time.Minute, false, d - time.Second, false, true},
	} {
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			w, first, _ := sites(t, func(s *spec.ServiceSpec) { s.OnDisconnect = spec.StopAfter(d) })
			starts := w.starts()
			site, at := w.Clusters[first], w.Workers[first+"/w1"]
			w.Cut(site)
			for spent := time.Duration(0); spent < x.cut; spent += time.Second {
				w.Run(time.Second)
				if n := w.tasks(); n > 1 {
					t.Fatalf("%d copies run %s after the cut", n, spent)
				}
				if x.reboot && spent == 10*time.Second {
					w.Kill(site)
					w.Restart(site, nil)
				}
				if x.worker > 0 && spent == x.worker {
					w.Cut(at)
				}
			}
			if x.worker > 0 {
				w.Heal(at)
			}
			w.Heal(site)
			w.Run(30 * time.Second)
			w.check(t, "shop", 1, 1)
			if got := w.holder(t) == first; got != x.same {
				t.Errorf("it stayed: %v", got)
			}
			if got := *starts > 0; got != x.restarts {
				t.Errorf("started anew: %v", got)
			}
			w.sound(t)
		})
	}
}

// With the shortest wait that there is, the root waits for what must have ended, and not for less.
func TestStopAfterOutlastsTheRootsPatience(t *testing.T) {
	w, _, _ := sites(t, func(s *spec.ServiceSpec) { s.OnDisconnect = spec.StopAfter(10 * time.Minute) })
	i := w.only(t, "shop")
	site := w.Clusters[string(i.Cluster)]
	grace := time.Duration(*w.RootCore().Apps.Instance(i.ID).Spec.TerminationGrace)
	w.Cut(site)
	w.Run(2*(10*time.Minute+grace) - time.Second)
	if w.holder(t) != site.Name || w.tasks() != 0 {
		t.Errorf("it is at %s, %d run", w.holder(t), w.tasks())
	}
	w.Run(5 * time.Minute)
	w.check(t, "shop", 1, 1)
	if w.holder(t) == site.Name {
		t.Error("it still waits for its site")
	}
	w.sound(t)
}
