package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

func (w *World) drainOf(site, name string) *view.DrainView {
	for _, v := range w.ClusterCore(site).Workers() {
		if string(v.Name) == name {
			return v.Drain
		}
	}
	return nil
}

// Everything that can leaves a drained worker, no more at once than asked for and never with fewer ready; what stays says why.
func TestDrain(t *testing.T) {
	for _, parallel := range []int{1, 3} {
		t.Run(fmt.Sprint(parallel), func(t *testing.T) {
			w := newWorld(t, 5)
			w.Audit = true
			w.AddCluster("a")
			w.AddWorker("a", "w1", facts(8000))
			w.Run(time.Second)
			w.must(t, w.Root, app("shop", 6))
			w.must(t, w.Root, app("probe", 1, func(s *spec.ServiceSpec) { s.Mode, s.Replicas = spec.ModePerWorker, nil }))
			w.must(t, w.Root, app("data", 1, func(s *spec.ServiceSpec) {
				s.Volumes = []spec.Volume{{Name: "d", Host: &spec.HostVolume{Path: "/srv/data"}}}
				s.Mounts = []spec.Mount{{Volume: "d", Path: "/data"}}
			}))
			w.must(t, w.Root, app("here", 1, func(s *spec.ServiceSpec) { s.Placement.Worker = "w1" }))
			w.Run(2 * time.Second)
			w.AddWorker("a", "w2", facts(8000))
			w.Run(2 * time.Second)
			site := w.Clusters["a"]
			w.Machine.Start = 3 * time.Second
			w.must(t, site, cluster.DrainWorker{Name: "w1", Reason: "new roof", Parallel: parallel})
			most := 0
			for n := range 40 {
				w.Run(500 * time.Millisecond)
				d := w.drainOf("a", "w1")
				most = max(most, d.Moving)
				if w.ready("shop") != 6 {
					t.Fatalf("%d are ready", w.ready("shop"))
				}
				if n == 5 { // it goes on after a crash
					w.Restart(site, nil)
					w.Run(2 * time.Second)
				}
			}
			w.Run(time.Minute)
			d := w.drainOf("a", "w1")
			if !d.Done || d.Left != 0 || most != parallel || len(d.Stays) != 3 {
				t.Fatalf("%+v, at most %d at once", d, most)
			}
			for _, s := range d.Stays {
				want := map[string]string{"probe": "once per worker", "data": "/srv/data", "here": "names this worker"}
				i, _, _ := w.ClusterCore("a").Instance(s.Instance)
				if part := want[i.Service.App.Name]; part == "" || !strings.Contains(s.Reason, part) {
					t.Errorf("%s of %s stays: %s", s.Instance, i.Service, s.Reason)
				}
			}
			if got := w.where(site, "shop"); strings.Count(strings.Join(got, " "), "w2") != 6 {
				t.Error(got)
			}
			// By force what keeps data goes, too; afterwards the worker is as good as any.
			w.must(t, site, cluster.DrainWorker{Name: "w1", Force: true})
			w.Run(time.Minute)
			if got := w.where(site, "data"); strings.Join(got, " ") != "w2" {
				t.Error(got)
			}
			w.must(t, site, cluster.CordonWorker{Name: "w1"})
			w.must(t, site, cluster.DrainWorker{Name: "w2", Parallel: 10})
			w.Run(time.Minute)
			if got := w.where(site, "shop"); strings.Count(strings.Join(got, " "), "w1") != 6 {
				t.Error(got)
			}
			w.sound(t)
		})
	}
}

// Where the site has no room another site takes over, before anything ends here; where no site has, all stays as it is.
func TestDrainWithoutRoom(t *testing.T) {
	for _, other := range []bool{true, false} {
		t.Run(fmt.Sprint(other), func(t *testing.T) {
			w := newWorld(t, 6)
			w.Audit = true
			w.AddCluster("a")
			w.AddWorker("a", "w1", facts(2000))
			w.Run(time.Second)
			w.must(t, w.Root, app("shop", 2))
			w.Run(2 * time.Second)
			if other {
				w.AddCluster("b")
				w.AddWorker("b", "w1", facts(2000))
			}
			w.Run(20 * time.Second)
			w.must(t, w.Clusters["a"], cluster.DrainWorker{Name: "w1", Parallel: 2})
			for range 300 {
				w.Run(time.Second)
				if n := w.ready("shop"); n < 2 {
					t.Fatalf("%d are ready", n)
				}
			}
			d := w.drainOf("a", "w1")
			if other && (!d.Done || w.holders("shop")["b"] != 2) {
				t.Errorf("%+v, %v", d, w.holders("shop"))
			}
			if !other {
				if d.Done || d.Left != 2 || len(d.Stays) != 2 || !strings.Contains(d.Stays[0].Reason, "no other worker") {
					t.Errorf("%+v", d)
				}
				w.must(t, w.Clusters["a"], cluster.CordonWorker{Name: "w1"})
				w.Run(time.Minute)
				for _, i := range w.RootCore().Apps.Instances(web("shop")) {
					for _, k := range i.Conditions {
						if k.Type == skerry.Satisfied && !k.Status {
							t.Errorf("%s: %s", i.ID, k.Reason)
						}
					}
				}
			}
			w.check(t, "shop", 2, 2)
			w.sound(t)
		})
	}
}

// A copy that never gets ready elsewhere leaves the one that serves alone, and is tried again.
func TestDrainWhenTheCopyFails(t *testing.T) {
	w, id, at := pair(t, func(s *spec.ServiceSpec) { s.Probes.Readiness = probe(time.Second, 3) })
	bad := true
	first := w.ClusterCore("a").Instances()[0].Fence
	w.Machine.Probe = func(a *spec.Assignment, _ worker.ProbeKind, _ int) bool { return !bad || a.Fence == first }
	site := w.Clusters["a"]
	tries := 0
	w.Machine.Exit = func(*spec.Assignment, string, int) (time.Duration, wire.Exit) {
		if bad {
			tries++
			return time.Second, wire.Exit{Code: 1}
		}
		return -1, wire.Exit{}
	}
	w.must(t, site, cluster.DrainWorker{Name: short(at)})
	for range 120 {
		w.Run(time.Second)
		if w.ready("shop") != 1 || w.ClusterCore("a").WorkerOf(id) != short(at) && bad {
			t.Fatalf("%d are ready, it is on %s", w.ready("shop"), w.ClusterCore("a").WorkerOf(id))
		}
	}
	if tries < 2 {
		t.Errorf("%d tries", tries)
	}
	bad = false
	w.Run(5 * time.Minute)
	if w.ClusterCore("a").WorkerOf(id) == short(at) || !w.drainOf("a", short(at)).Done {
		t.Errorf("it is on %s: %+v", w.ClusterCore("a").WorkerOf(id), w.drainOf("a", short(at)))
	}
	w.check(t, "shop", 1, 1)
	w.sound(t)
}

// A worker is not drained while a copy of an instance is on its way there, nor when that has taken over: it leaves again first.
func TestDrainOfWhatIsOnItsWay(t *testing.T) {
	w := newWorld(t, 7)
	w.Audit = true
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(2000))
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1))
	w.Run(2 * time.Second)
	w.AddWorker("a", "w2", facts(2000))
	w.Run(2 * time.Second)
	w.Machine.Start = 5 * time.Second
	w.must(t, w.Clusters["a"], cluster.MigrateInstance{ID: w.RootCore().Apps.Instances(web("shop"))[0].ID, To: "w2", Actor: "t"})
	w.Run(time.Second)
	w.must(t, w.Clusters["a"], cluster.DrainWorker{Name: "w2"})
	said := false
	for range 60 {
		w.Run(500 * time.Millisecond)
		d, there := w.drainOf("a", "w2"), false
		for _, v := range w.ClusterCore("a").Workers() {
			there = there || v.Name == "w2" && v.Instances > 0
		}
		if said = d.Done; said && there {
			t.Fatalf("it is said to be drained with an instance there: %+v", d)
		}
	}
	if got := w.where(w.Clusters["a"], "shop"); !said || strings.Join(got, " ") != "w1" {
		t.Errorf("in the end it is drained: %v, and the instance is on %v; want w1", said, got)
	}
	w.sound(t)
}
