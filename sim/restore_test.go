package sim

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// restore puts an old copy of a store back under a new incarnation, as `skerry restore` does.
func (w *World) restore(n *Node, old map[string][]byte, mk func() core) {
	w.Kill(n)
	n.Store = maps.Clone(old)
	n.make = mk
}

func TestRestoredRootDeletesNothingItDoesNotKnow(t *testing.T) {
	w := small(t)
	w.must(t, w.Root, app("old", 2))
	w.Run(time.Second)
	backup := maps.Clone(w.Root.Store)
	w.must(t, w.Root, app("new", 2))
	w.Run(time.Second)
	w.check(t, "new", 2, 4)
	w.restore(w.Root, backup, func() core {
		return root.New(root.Options{Incarnation: "r2", Epoch: 2, Seed: w.bytes()})
	})
	w.Restart(w.Root, nil)
	w.Run(time.Minute)
	if w.RootCore().Apps.App(web("new").App) != nil {
		t.Fatal("the restored root knows what it cannot know")
	}
	w.check(t, "old", 2, 4) // the two of "new" run on
	warned := false
	for _, e := range w.Events {
		warned = warned || e.Reason == "UnknownInstance"
	}
	if !warned {
		t.Error("nobody was told of what runs unknown")
	}
	// What the restored root does know it still governs.
	w.must(t, w.Root, apps.Delete{Key: web("old").App})
	w.Run(10 * time.Second)
	w.check(t, "old", 0, 2)
}

func TestRestoredClusterAdoptsWhatRuns(t *testing.T) {
	w := small(t)
	w.Cut(w.Clusters["b"])
	w.must(t, w.Root, app("old", 1))
	w.Run(time.Second)
	a := w.Clusters["a"]
	backup := maps.Clone(a.Store)
	w.must(t, w.Root, app("new", 2))
	w.Run(time.Second)
	w.check(t, "new", 2, 3)
	w.restore(a, backup, func() core {
		return cluster.New(cluster.Options{Name: "a", Incarnation: "a2", Term: 2, Seed: w.bytes(), Admission: cluster.Admission{Trusted: []string{"default"}}})
	})
	w.Restart(a, nil)
	w.Run(time.Minute)
	w.check(t, "new", 2, 3)
	for _, i := range w.RootCore().Apps.Instances(web("new")) {
		if i.Restarts != 0 {
			t.Errorf("%s was restarted by the restore", i.ID)
		}
	}
}

func TestDeadWorkerLeavesTheNextAggregate(t *testing.T) {
	w := small(t)
	workers := func() (n int) {
		for _, s := range w.RootCore().Views().Sites() {
			for _, k := range s.Report.Classes {
				n += k.Workers
			}
		}
		return n
	}
	if workers() != 4 {
		t.Fatalf("%d workers in the aggregates, want 4", workers())
	}
	w.PowerOff(w.Workers["a/w1"])
	w.Run(20 * time.Second)
	if workers() != 3 {
		t.Errorf("%d workers in the aggregates after one died, want 3", workers())
	}
}

// The root learns nothing of a single worker: neither names nor addresses stand anywhere in what reaches it or in what
// it stores.
func TestNoWorkerIsReadableAtTheRoot(t *testing.T) {
	w := newWorld(t, 7)
	w.AddCluster("harbour")
	secret := []string{"worker-zanzibar", "worker-quito", "198.51.100.77", "198.51.100.78"}
	for i, name := range secret[:2] {
		f := facts(2000)
		f.Address = secret[2+i]
		w.AddWorker("harbour", name, f)
	}
	seen := &bytes.Buffer{}
	w.tap = func(from *Node, to *Node, msg wire.Message) {
		if to == w.Root {
			seen.WriteString(dump(msg))
		}
	}
	w.Machine.PrepareErr = func(worker string, a *spec.Assignment) (string, bool) {
		if a.Service.App.Name == "bad" {
			return "pull at " + worker[strings.Index(worker, "/")+1:] + ": no such image", true
		}
		return "", false
	}
	w.Machine.Exit = func(a *spec.Assignment, name string, attempt int) (time.Duration, wire.Exit) {
		if attempt == 1 {
			return time.Second, wire.Exit{Code: 137, OOMKilled: true}
		}
		return -1, wire.Exit{}
	}
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 3, func(s *spec.ServiceSpec) { s.Ports = []spec.Port{{Port: 80, HostPort: -1}} }))
	w.must(t, w.Root, app("bad", 1))
	w.must(t, w.Root, app("probe", 1, func(s *spec.ServiceSpec) { s.Mode, s.Replicas = spec.ModePerWorker, nil }))
	w.Run(time.Minute)
	w.check(t, "shop", 3, 5)
	w.PowerOff(w.Workers["harbour/worker-quito"])
	w.Run(time.Minute)
	readable(t, w, seen, secret)
}

// readable fails where the root can read any of the words.
func readable(t *testing.T, w *World, seen *bytes.Buffer, secret []string) {
	t.Helper()
	if seen.Len() == 0 {
		t.Fatal("nothing was seen on the link")
	}
	for k, v := range w.Root.Store {
		seen.WriteString(k)
		seen.Write(v)
	}
	for _, s := range secret {
		if i := bytes.Index(seen.Bytes(), []byte(s)); i >= 0 {
			t.Errorf("%q is readable at the root: ...%q...", s, seen.Bytes()[max(0, i-60):min(seen.Len(), i+60)])
		}
	}
}

// The same of what placement tells of: violations, moves and failed moves, who made room for whom, lost workers that nobody
// replaces, and plans.
func TestNoWorkerIsReadableInPlacement(t *testing.T) {
	w := newWorld(t, 8)
	w.Audit = true
	site := w.AddCluster("harbour")
	secret := []string{"zanzibar", "quito", "lagos", "198.51.100.70", "198.51.100.71", "198.51.100.72"}
	fact := func(i int) wire.WorkerFacts {
		f := facts(1777)
		f.Arch, f.Runtimes = "amd64", []wire.RuntimeReport{{Name: "oci", Passed: true}}
		f.Address, f.Location = secret[3+i], &spec.Location{Lat: 17.77, Lon: 17.77}
		return f
	}
	for i, name := range secret[:3] {
		w.AddWorker("harbour", name, fact(i))
	}
	seen := &bytes.Buffer{}
	w.tap = func(from *Node, to *Node, msg wire.Message) {
		if to == w.Root {
			seen.WriteString(dump(msg))
		}
	}
	w.Run(time.Second)
	at := func(id skerry.InstanceID) *Node { return w.Workers["harbour/"+on(site, id)] }
	// A move fails at the new worker, which says so with its name.
	w.must(t, w.Root, app("shop", 1, rigid(1), func(s *spec.ServiceSpec) { s.Resources.CPU = 1500 }))
	w.Run(5 * time.Second)
	id := w.only(t, "shop").ID
	w.Machine.PrepareErr = func(name string, _ *spec.Assignment) (string, bool) {
		name = name[strings.Index(name, "/")+1:]
		return "pull from http://" + name + ".example.com:5000 and " + w.Clusters["harbour"].Name + "/" + name + ": refused", true
	}
	w.starve(at(id), id, 0.9)
	w.Run(20 * time.Second)
	w.Machine.PrepareErr = nil
	// Another one does not get ready in time.
	w.Machine.Prepare = 4 * time.Minute
	w.Run(3 * time.Minute)
	w.Machine.Prepare = 0
	// One succeeds, and then its worker stalls, shrinks and is carried away, and there is no better one.
	w.starve(at(id), id, 0.9)
	w.Run(10 * time.Minute)
	w.starve(at(id), id, 0)
	w.must(t, w.Root, app("full", 2, rigid(0.9), func(s *spec.ServiceSpec) {
		s.Resources.CPU, s.Placement.Location, s.Placement.MaxDistance = 1500, &spec.Location{Lat: 17.77, Lon: 17.77}, 5
	}))
	w.Run(5 * time.Second)
	for i, name := range secret[:3] {
		n, f := w.Workers["harbour/"+name], fact(i)
		f.Capacity.CPU, f.Location = 1444, &spec.Location{Lat: 18.88, Lon: 18.88}
		w.Do(n, worker.Facts{Facts: f})
		w.Do(n, worker.Usage{Pressure: &wire.Pressure{Memory: 0.7654}})
	}
	w.Run(3 * time.Minute)
	for i, name := range secret[:3] {
		w.Do(w.Workers["harbour/"+name], worker.Facts{Facts: fact(i)})
		w.Do(w.Workers["harbour/"+name], worker.Usage{})
	}
	w.Run(time.Minute)
	// Somebody has to make room, and a worker is lost that nobody can replace.
	w.must(t, w.Root, app("urgent", 1, func(s *spec.ServiceSpec) { s.Resources.CPU, s.Placement.Priority = 1500, 9 }))
	w.Run(time.Minute)
	w.PowerOff(at(w.only(t, "urgent").ID))
	w.Run(time.Minute)
	verdicts := site.Core.(*cluster.Core).Verdicts(w.Now, []spec.Assignment{*w.RootCore().Apps.Instances(web("full"))[0].Assignment(nil)})
	plan, err := json.Marshal(verdicts)
	if err != nil || len(verdicts) != 1 || verdicts[0].Fits {
		t.Errorf("%v, %s", err, plan)
	}
	seen.Write(plan)
	told := map[string]bool{}
	for _, e := range w.Events {
		told[e.Reason] = true
	}
	for _, reason := range []string{"Migrating", "MigrationFailed", "Migrated", "SLAViolated", "NoBetterPlace", "Preempted", "Moved", "WorkerLost"} {
		if !told[reason] {
			t.Errorf("%s did not happen", reason)
		}
	}
	readable(t, w, seen, append(secret, "76.54", "77 %", "it is 170", "is free"))
}
