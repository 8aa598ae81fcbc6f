package sim

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// on names the worker that the site has an instance on.
func on(n *Node, id skerry.InstanceID) string {
	i, _, _ := n.Core.(*cluster.Core).Instance(id)
	return string(i.Worker)
}

func rigid(r float64) func(*spec.ServiceSpec) {
	return func(s *spec.ServiceSpec) { s.Placement.Rigidness = &r }
}

// starve reports that an instance waits for a processor.
func (w *World) starve(n *Node, id skerry.InstanceID, waiting float64) {
	w.Do(n, worker.Usage{Instances: map[skerry.InstanceID]wire.QoS{id: {CPU: 100, Waiting: waiting}}})
}

// lone starts an application of one instance at a site of two workers, and gives its id and its worker.
func lone(t *testing.T, edit ...func(*spec.ServiceSpec)) (w *World, site *Node, id skerry.InstanceID, at *Node) {
	t.Helper()
	w = newWorld(t, 7)
	site = w.AddCluster("a")
	for _, name := range []string{"w1", "w2"} {
		w.AddWorker("a", name, facts(2000))
	}
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1, edit...))
	w.Run(10 * time.Second)
	w.check(t, "shop", 1, 1)
	id = w.RootCore().Apps.Instances(web("shop"))[0].ID
	return w, site, id, w.Workers["a/"+on(site, id)]
}

// An instance whose SLA is violated for longer than its rigidness allows moves, and is served by the old copy until the
// new one is ready.
func TestViolationMovesMakeBeforeBreak(t *testing.T) {
	w, site, id, at := lone(t, rigid(0.5))
	most, least := 1, 1
	w.Machine.Started = func(*spec.Assignment, string, int) { most = max(most, w.tasks()) }
	w.starve(at, id, 0.9)
	for range 60 {
		w.Run(time.Second)
		least = min(least, w.ready("shop"))
	}
	if now := on(site, id); now == short(at) {
		t.Errorf("still on %s", now)
	}
	if most < 2 || least < 1 {
		t.Errorf("at most %d copies ran, at least %d were ready; want 2 and 1", most, least)
	}
	w.check(t, "shop", 1, 1)
}

// Where all workers are short of processors, an instance still moves for another reason; one that waits for a processor stays,
// because it would wait there as well.
func TestPressureEverywhere(t *testing.T) {
	for _, what := range []string{"area", "waiting"} {
		in := func(area string) wire.WorkerFacts {
			f := facts(2000)
			f.Runtimes, f.Arch, f.Address, f.Area = []wire.RuntimeReport{{Name: "oci", Passed: true}}, "amd64", "w.test", area
			return f
		}
		w, site, _, _ := lone(t, rigid(0.5))
		for _, n := range ordered(w.Workers) {
			w.Do(n, worker.Facts{Facts: in("north")})
		}
		w.must(t, w.Root, app("shop", 1, rigid(0.5), func(s *spec.ServiceSpec) { s.Placement.Area = "north" }))
		w.Run(time.Minute)
		id := w.RootCore().Apps.Instances(web("shop"))[0].ID
		at := w.Workers["a/"+on(site, id)]
		pressed := &wire.Pressure{CPU: 0.6}
		for _, n := range ordered(w.Workers) {
			w.Do(n, worker.Usage{Pressure: pressed})
		}
		w.Run(2 * time.Minute)
		if what == "area" {
			w.Do(at, worker.Facts{Facts: in("south")})
		} else {
			w.Do(at, worker.Usage{Instances: map[skerry.InstanceID]wire.QoS{id: {CPU: 100, Waiting: 0.9}}, Pressure: pressed})
		}
		w.Run(2 * time.Minute)
		if moved := on(site, id) != short(at); moved != (what == "area") {
			t.Errorf("%s: moved is %v", what, moved)
		}
	}
}

func TestRigidnessZeroNeverMoves(t *testing.T) {
	w, site, id, at := lone(t, rigid(0))
	w.starve(at, id, 0.9)
	w.Run(10 * time.Minute)
	if now := on(site, id); now != short(at) {
		t.Errorf("moved to %s", now)
	}
}

func TestRigidnessOneMovesAtOnce(t *testing.T) {
	w, site, id, at := lone(t, rigid(1))
	w.starve(at, id, 0.9)
	w.Run(6 * time.Second) // the worker's report comes within five
	if now := on(site, id); now == short(at) {
		t.Errorf("still on %s", now)
	}
}

// A copy that does not get ready changes nothing.
func TestFailedMigrationKeepsTheOldCopy(t *testing.T) {
	w, site, id, at := lone(t, rigid(1))
	w.Machine.PrepareErr = func(name string, _ *spec.Assignment) (string, bool) { return "no disk", true }
	w.starve(at, id, 0.9)
	w.Run(20 * time.Second)
	w.starve(at, id, 0)
	w.Run(5 * time.Minute)
	if now := on(site, id); now != short(at) {
		t.Errorf("moved to %s", now)
	}
	w.check(t, "shop", 1, 1)
}

// Whatever comes and goes, an instance does not move more often than calm allows: the time between moves doubles, so an
// hour sees seven moves at most.
func TestNothingFlaps(t *testing.T) {
	for seed := range uint64(testenv.Times(6, 20)) {
		w, site, id, _ := lone(t, rigid(1))
		rng := rand.New(rand.NewPCG(seed, 3))
		moves, last := 0, on(site, id)
		for range 1200 {
			w.starve(w.Workers["a/"+on(site, id)], id, float64(rng.IntN(2)))
			w.Run(3 * time.Second)
			if now := on(site, id); now != last {
				moves, last = moves+1, now
			}
		}
		if moves == 0 || moves > 8 {
			t.Errorf("seed %d: %d moves in an hour", seed, moves)
		}
	}
}

// A site that has no better worker tells the root, which starts a copy at another site before the first ends.
func TestViolationMovesToAnotherSite(t *testing.T) {
	w := newWorld(t, 5)
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(2000))
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1, rigid(0.9)))
	w.Run(10 * time.Second)
	w.AddCluster("b")
	w.AddWorker("b", "w1", facts(2000))
	w.Run(20 * time.Second)
	first := w.RootCore().Apps.Instances(web("shop"))[0]
	if first.Holder != "a" {
		t.Fatalf("the first instance is at %q", first.Holder)
	}
	w.starve(w.Workers["a/w1"], first.ID, 0.9)
	least := 1
	for range 90 {
		w.Run(time.Second)
		least = min(least, w.ready("shop"))
	}
	list := w.RootCore().Apps.Instances(web("shop"))
	if len(list) != 1 || list[0].Holder != "b" || least < 1 {
		for _, i := range list {
			t.Logf("%s %s at %q replaces %q %v", i.ID, i.State, i.Holder, i.Replaces, i.Conditions)
		}
		t.Errorf("%d instances, at least %d ready all the time", len(list), least)
	}
	w.check(t, "shop", 1, 1)
}

// Higher priority moves others out of the way, and gets the room only once they are gone.
func TestPriorityMakesRoom(t *testing.T) {
	w := newWorld(t, 9)
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(1000))
	w.Run(time.Second)
	w.must(t, w.Root, app("low", 2))
	w.Run(10 * time.Second)
	w.check(t, "low", 2, 2)
	over := false
	w.Machine.Started = func(a *spec.Assignment, _ string, _ int) { over = over || w.tasks() > 2 }
	w.Machine.Stop = 3 * time.Second
	w.must(t, w.Root, app("high", 1, func(s *spec.ServiceSpec) { s.Placement.Priority = 10 }))
	w.Run(30 * time.Second)
	w.check(t, "high", 1, 2)
	if over {
		t.Error("it started before the others had left")
	}
	events := 0
	for _, e := range w.Events {
		if e.Reason == "Preempted" && e.Worker != "" && strings.Contains(e.Text, "priority 10") {
			events++
		}
	}
	if events != 1 {
		t.Errorf("%d instances were preempted, one had to go", events)
	}
	if w.ready("low") != 1 {
		t.Errorf("%d of low are ready", w.ready("low"))
	}
	// Equal priority moves nobody.
	w.must(t, w.Root, app("equal", 1, func(s *spec.ServiceSpec) { s.Placement.Priority = 0 }))
	w.Run(30 * time.Second)
	w.check(t, "high", 1, 2)
}

// A worker that has less than was promised is left: here bandwidth, which is counted like every other resource.
func TestShrunkenWorkerIsLeft(t *testing.T) {
	wide := facts(2000)
	wide.Capacity.BandwidthOut = 10 * skerry.MiB
	w := newWorld(t, 12)
	site := w.AddCluster("a")
	for _, name := range []string{"w1", "w2"} {
		w.AddWorker("a", name, wide)
	}
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1, rigid(0.9), func(s *spec.ServiceSpec) { s.Resources.BandwidthOut = 4 * skerry.MiB }))
	w.Run(10 * time.Second)
	id := w.RootCore().Apps.Instances(web("shop"))[0].ID
	at := w.Workers["a/"+on(site, id)]
	narrow := wide
	narrow.Capacity.BandwidthOut = skerry.MiB
	narrow.Runtimes = []wire.RuntimeReport{{Name: "oci", Passed: true}}
	narrow.Arch, narrow.Address = "amd64", "x.test"
	w.Do(at, worker.Facts{Facts: narrow})
	w.Run(time.Minute)
	if now := on(site, id); now == short(at) || now == "" {
		t.Errorf("it is on %q", now)
	}
	w.check(t, "shop", 1, 1)
}
