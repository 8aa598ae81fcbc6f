package sim

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// with is a worker with some runtimes.
func with(runtimes ...string) wire.WorkerFacts {
	f := facts(4000)
	for _, r := range runtimes {
		f.Runtimes = append(f.Runtimes, wire.RuntimeReport{Name: r, Passed: true})
	}
	return f
}

// busy has an instance use so much of a processor on a worker from now on.
func (w *World) busy(at *Node, id skerry.InstanceID, cpu skerry.MilliCPU) {
	w.Do(at, worker.Usage{Instances: map[skerry.InstanceID]wire.QoS{id: {CPU: cpu}}})
}

// A service of the root that is full in a microVM becomes a container, without a moment in which nobody serves, and once: where it is full
// as a container, too, and its site restarts, it stays one. The root is told why, and no worker's name.
func TestFullServiceChangesItsRuntime(t *testing.T) {
	w := newWorld(t, 11)
	w.Audit = true
	site := w.AddCluster("a")
	w.AddWorker("a", "edgewk1", with("microvm"))
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1))
	w.Run(10 * time.Second)
	w.check(t, "shop", 1, 1)
	id := w.RootCore().Apps.Instances(web("shop"))[0].ID
	if r := w.RootCore().Apps.Instance(id).Runtime; r != "microvm" {
		t.Fatalf("it runs in %q", r)
	}
	w.AddWorker("a", "edgewk2", with("oci", "microvm"))
	w.Run(5 * time.Second)
	w.busy(w.Workers["a/edgewk1"], id, 495)
	w.Run(90 * time.Second)
	if on(site, id) != "edgewk1" || w.tasks() != 1 {
		t.Fatal("moved before it was full for long enough")
	}
	least, most := 1, 1
	w.Machine.Started = func(*spec.Assignment, string, int) { most = max(most, w.tasks()) }
	for range 120 {
		w.Run(time.Second)
		least = min(least, w.ready("shop"))
	}
	if r := w.RootCore().Apps.Instance(id).Runtime; on(site, id) != "edgewk2" || r != "oci" || least < 1 || most != 2 {
		t.Fatalf("on %s in %s; at least %d ready, at most %d copies", on(site, id), r, least, most)
	}
	w.busy(w.Workers["a/edgewk2"], id, 499)
	w.Run(20 * time.Minute)
	w.Restart(site, nil)
	w.Run(3 * time.Hour)
	w.check(t, "shop", 1, 1)
	if r := w.RootCore().Apps.Instance(id).Runtime; on(site, id) != "edgewk2" || r != "oci" {
		t.Errorf("on %s in %s", on(site, id), r)
	}
	told := 0
	for _, e := range w.Events {
		if e.Reason == "RuntimeChanged" && e.Worker == "" {
			told++
			if !strings.Contains(e.Text, "near its saturation point in runtime microvm") || strings.Contains(e.Text, workerMark) {
				t.Errorf("the root is told %q", e.Text)
			}
		}
	}
	if told != 1 {
		t.Errorf("the root was told %d times", told)
	}
	full := ""
	for _, k := range w.RootCore().Apps.Instance(id).Conditions {
		if k.Type == skerry.HeadRoom && !k.Status {
			full = k.Reason
		}
	}
	if !strings.Contains(full, "in runtime oci") {
		t.Errorf("that it is full as a container is told as %q", full)
	}
}

// A service that follows its load has more instances before any of them changes its runtime, although nothing but requests is to be followed.
func TestFullServiceGrowsFirst(t *testing.T) {
	w := newWorld(t, 12)
	w.Audit = true
	w.AddCluster("a")
	w.AddWorker("a", "edgewk1", with("microvm"))
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) {
		rate := 100.0
		s.Ports, s.Ingress = []spec.Port{{Port: 80}}, []spec.Ingress{{Host: "shop.test", Port: "80"}}
		s.Scale = &spec.ScaleSpec{Max: 3, Target: spec.ScaleTarget{Requests: &rate}}
	}))
	w.Run(10 * time.Second)
	w.check(t, "shop", 1, 1)
	w.AddWorker("a", "edgewk2", with("oci"))
	w.Run(5 * time.Second)
	use := map[skerry.InstanceID]wire.QoS{}
	for range 24 {
		for _, i := range w.ClusterCore("a").Instances() {
			use[i.ID] = wire.QoS{CPU: min(500, 800/skerry.MilliCPU(w.ready("shop")))}
		}
		for _, n := range ordered(w.Workers) {
			w.Do(n, worker.Usage{Instances: use})
		}
		w.Run(10 * time.Second)
	}
	if n := w.ready("shop"); n < 2 || n > 3 {
		t.Errorf("%d instances", n)
	}
	if got := w.reasons("shop", "RuntimeChanged"); len(got) > 0 {
		t.Errorf("%d changed their runtime", len(got))
	}
}
