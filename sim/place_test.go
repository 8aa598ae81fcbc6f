package sim

import (
	"fmt"
	"maps"
	"math"
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

// line puts workers at a site on a line in the network and on the earth: w0 at 0 ms and longitude 0, w1 at 10 ms and
// longitude 1, and so on; a degree is 111 km.
func line(t *testing.T, count int) (*World, *Node) {
	t.Helper()
	w := newWorld(t, 11)
	site := w.AddCluster("a")
	for i := range count {
		f := facts(2000)
		f.Location = &spec.Location{Lon: float64(i)}
		n := w.AddWorker("a", fmt.Sprintf("w%d", i), f)
		w.Do(n, worker.Usage{Coordinate: &spec.Coordinate{Vec: [3]float64{float64(10 * i)}, Error: 0.1}})
	}
	w.Run(10 * time.Second)
	return w, site
}

func ms(n int) *spec.Duration {
	d := spec.Duration(time.Duration(n) * time.Millisecond)
	return &d
}

// where lists the workers of a service's instances.
func (w *World) where(site *Node, name string) (out []string) {
	for _, i := range site.Core.(*cluster.Core).Instances() {
		if i.Service == web(name) {
			out = append(out, string(i.Worker))
		}
	}
	return out
}

// A user is found by round trips from a few workers, and the service goes near it.
func TestPlacedNearAUser(t *testing.T) {
	w, site := line(t, 6)
	asked := 0
	w.Machine.RTT = func(name, target string) float64 {
		asked++
		at := float64(10 * int(name[1]-'0'))
		return math.Abs(at-40) + 1 // 1 ms from w4
	}
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) {
		s.Placement.Users = []spec.User{{Address: "192.0.2.7", MaxLatency: ms(8)}}
	}))
	w.Run(10 * time.Second)
	if got := w.where(site, "shop"); len(got) != 1 || got[0] != "w4" {
		t.Errorf("placed on %v", got)
	}
	if asked == 0 || asked > 8 {
		t.Errorf("%d workers measured", asked)
	}
	_, d, _ := site.Core.(*cluster.Core).Instance(w.RootCore().Apps.Instances(web("shop"))[0].ID)
	if d == nil || len(d.Users) != 1 || d.Users[0].Probes == 0 || d.Users[0].Residual > 1 {
		t.Errorf("the decision does not keep what was measured: %+v", d)
	}
}

// A user that nobody reaches, or that is too far from everybody, is told of as such, and measured again later.
func TestUserOutOfReach(t *testing.T) {
	w, _ := line(t, 3)
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) {
		s.Placement.Users = []spec.User{{Address: "192.0.2.7", MaxLatency: ms(8)}}
	}))
	w.Run(10 * time.Second)
	i := w.RootCore().Apps.Instances(web("shop"))[0]
	if i.State != skerry.Requested || len(i.Why) == 0 || i.Why[0].What != "latency" {
		t.Fatalf("%s %v", i.State, i.Why)
	}
	w.Machine.RTT = func(string, string) float64 { return 3 }
	w.Run(3 * time.Minute)
	w.check(t, "shop", 1, 1)
}

// A limited link binds whichever end comes second.
func TestLinkedServicesStayNear(t *testing.T) {
	w, site := line(t, 6)
	two := app("shop", 1, func(s *spec.ServiceSpec) {
		s.Placement.Worker = "w2"
	})
	db := two.App.Spec.Services[0]
	db.Name, db.Placement = "db", spec.Placement{}
	two.App.Spec.Services = append(two.App.Spec.Services, db)
	two.App.Spec.Services[0].Links = []spec.Link{{Service: "db", MaxLatency: ms(11), MaxDistance: 120}}
	for n := range two.App.Spec.Services {
		two.App.Spec.Services[n].Resources.CPU = 1500 // one on each worker
	}
	w.must(t, w.Root, two)
	w.Run(10 * time.Second)
	for _, i := range site.Core.(*cluster.Core).Instances() {
		if i.Service.Service == "db" && i.Worker != "w1" && i.Worker != "w3" {
			t.Errorf("db is on %s, which is not next to w2", i.Worker)
		}
	}
	if n := len(site.Core.(*cluster.Core).Instances()); n != 2 {
		t.Errorf("%d instances", n)
	}
}

// What a site's workers have, one by one, never reaches the root, not even in the reasons of a refusal.
func TestRefusalsTellNoWorker(t *testing.T) {
	w := newWorld(t, 4)
	w.AddCluster("a")
	for i, cpu := range []skerry.MilliCPU{1234, 1235, 1236, 1237} {
		w.AddWorker("a", fmt.Sprintf("secret%d", i), facts(cpu))
	}
	w.Run(time.Second)
	// The aggregate allows 1237 for somebody; 1236.9 do not exist, so the site must refuse.
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) {
		s.Resources.CPU = 1237
		s.Placement.Labels = map[string]string{"none": "has"}
	}))
	w.Run(20 * time.Second)
	i := w.RootCore().Apps.Instances(web("shop"))[0]
	if len(i.Why) == 0 {
		t.Fatal("no reasons")
	}
	for _, r := range i.Why {
		if text := r.Text + r.Hint; strings.Contains(text, "1.23") || strings.Contains(text, "secret") {
			t.Errorf("the root reads %q", text)
		}
	}
}

func TestUnknownPluginIsNamed(t *testing.T) {
	w, _ := line(t, 1)
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) { s.Placement.Policy = "plugin/greenest" }))
	w.Run(5 * time.Second)
	i := w.RootCore().Apps.Instances(web("shop"))[0]
	if len(i.Why) == 0 || !strings.Contains(i.Why[0].Text, `"greenest"`) {
		t.Errorf("%v", i.Why)
	}
}

func job(name string, completions, parallelism int, finish, estimate time.Duration) apps.Apply {
	a := app(name, 1)
	s := &a.App.Spec.Services[0]
	f, e := spec.Duration(finish), spec.Duration(estimate)
	s.Mode, s.Replicas, s.Job = spec.ModeJob, nil, &spec.JobSpec{Completions: &completions, Parallelism: &parallelism, FinishBefore: &f, Estimate: &e}
	return a
}

// A job that cannot be done in time fails at once, and says by how much.
func TestDeadlineThatCannotBeMet(t *testing.T) {
	w, _ := line(t, 2)
	w.must(t, w.Root, job("nightly", 10, 2, 4*time.Minute, time.Minute))
	w.Run(time.Second)
	r := w.RootCore().Apps.View(w.RootCore().Apps.App(web("nightly").App), "root", false).Services[0].Runs
	if len(r) != 1 || r[0].Result != "Failed" || !strings.Contains(r[0].Reason, "take 5m0s by the estimate, and 4m0s are left") {
		t.Errorf("%+v", r)
	}
}

// Of jobs that wait for room the one with the least slack comes first, whichever was asked for first.
func TestLeastSlackFirst(t *testing.T) {
	w := newWorld(t, 8)
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(500))
	w.Run(time.Second)
	var order []string
	w.Machine.Started = func(a *spec.Assignment, _ string, _ int) { order = append(order, a.Service.App.Name) }
	w.Machine.Exit = func(*spec.Assignment, string, int) (time.Duration, wire.Exit) {
		return 30 * time.Second, wire.Exit{}
	}
	w.must(t, w.Root, job("first", 1, 1, time.Hour, 30*time.Second))
	w.Run(time.Second)
	w.must(t, w.Root, job("relaxed", 1, 1, time.Hour, 30*time.Second))
	w.must(t, w.Root, job("urgent", 1, 1, 5*time.Minute, 30*time.Second))
	w.Run(5 * time.Minute)
	if got := strings.Join(order, " "); got != "first urgent relaxed" {
		t.Errorf("ran %s", got)
	}
}

// A user who moves is found again, and the service follows.
func TestServiceFollowsItsUser(t *testing.T) {
	w, site := line(t, 6)
	user := 40.0
	w.Machine.RTT = func(name, target string) float64 { return math.Abs(float64(10*int(name[1]-'0'))-user) + 1 }
	w.must(t, w.Root, app("shop", 1, rigid(0.9), func(s *spec.ServiceSpec) {
		s.Placement.Users = []spec.User{{Address: "192.0.2.7", MaxLatency: ms(8)}}
	}))
	w.Run(10 * time.Second)
	if got := w.where(site, "shop"); len(got) != 1 || got[0] != "w4" {
		t.Fatalf("placed on %v", got)
	}
	id := w.RootCore().Apps.Instances(web("shop"))[0].ID
	w.Do(w.Workers["a/w4"], worker.Usage{Instances: map[skerry.InstanceID]wire.QoS{id: {CPU: 10}}, Coordinate: &spec.Coordinate{Vec: [3]float64{40}, Error: 0.1}})
	user = 10
	w.Run(10 * time.Minute)
	if got := w.where(site, "shop"); len(got) != 1 || got[0] != "w1" {
		t.Errorf("it is on %v", got)
	}
	w.check(t, "shop", 1, 1)
}

// holders counts an application's instances by site.
func (w *World) holders(name string) map[string]int {
	out := map[string]int{}
	for _, i := range w.RootCore().Apps.Instances(web(name)) {
		out[i.Holder]++
	}
	return out
}

// An application goes as a whole to a site that can hold it, and is split where none can.
func TestSplitOnlyWhereNoSiteHoldsAll(t *testing.T) {
	w := newWorld(t, 21)
	sizes := map[string]int{"small": 3, "large": 9}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		workers := sizes[name]
		w.AddCluster(name)
		for i := range workers {
			w.AddWorker(name, fmt.Sprintf("w%d", i), facts(500)) // one instance each
		}
	}
	w.Run(time.Second)
	w.must(t, w.Root, app("whole", 6))
	w.Run(10 * time.Second)
	if h := w.holders("whole"); h["large"] != 6 {
		t.Errorf("whole is at %v", h)
	}
	w.must(t, w.Root, deleteApp("whole"))
	w.Run(10 * time.Second)
	w.must(t, w.Root, app("split", 11))
	w.Run(30 * time.Second)
	if h := w.holders("split"); h["large"] != 9 || h["small"] != 2 {
		t.Errorf("split is at %v", h)
	}
	w.check(t, "split", 11, 11)
}

// Two workers die in turn, again and again: each time the other takes over as soon as the loss is noticed, however often
// that was before.
func TestWorkersDieInTurn(t *testing.T) {
	w := newWorld(t, 31)
	site := w.AddCluster("a")
	f := facts(2000)
	for _, name := range []string{"w1", "w2"} {
		w.AddWorker("a", name, f)
	}
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 1))
	w.Run(5 * time.Second)
	f.Runtimes, f.Arch, f.Address = []wire.RuntimeReport{{Name: "oci", Passed: true}}, "amd64", "x.test"
	for round := range 20 {
		at := w.where(site, "shop")
		n := w.Workers["a/"+at[0]]
		w.PowerOff(n)
		w.Run(5 * time.Second)
		if now := w.where(site, "shop"); len(now) != 1 || now[0] == at[0] || now[0] == "" || w.ready("shop") != 1 {
			t.Fatalf("round %d: from %v to %v, %d ready", round, at, now, w.ready("shop"))
		}
		w.Restart(n, &f)
		w.Run(5 * time.Second)
	}
	w.check(t, "shop", 1, 1)
}

// After a power cut the machines of a site start at their own pace: what a worker starts by itself is not placed anew
// because the orchestrator was up before it.
func TestSiteComesBackSlowly(t *testing.T) {
	w := newWorld(t, 33)
	site := w.AddCluster("a")
	f := facts(2000)
	f.Runtimes, f.Arch, f.Address = []wire.RuntimeReport{{Name: "oci", Passed: true}}, "amd64", "x.test"
	for _, name := range []string{"w1", "w2"} {
		w.AddWorker("a", name, f)
	}
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 2))
	w.Run(5 * time.Second)
	w.check(t, "shop", 2, 2)
	before := w.where(site, "shop")
	w.Kill(site)
	for _, n := range ordered(w.Workers) {
		w.PowerOff(n)
	}
	w.Run(10 * time.Second)
	w.Restart(site, nil)
	w.Run(15 * time.Second)
	for _, n := range ordered(w.Workers) {
		w.Restart(n, &f)
	}
	w.Run(20 * time.Second)
	w.check(t, "shop", 2, 2)
	if after := w.where(site, "shop"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("from %v to %v", before, after)
	}
	for _, e := range w.Events {
		if e.Reason == "WorkerLost" || e.Reason == "Moved" {
			t.Errorf("%s: %s", e.Reason, e.Text)
		}
	}
	// One that stays away is lost in the end.
	w.Kill(site)
	w.PowerOff(w.Workers["a/"+before[0]])
	w.Run(time.Second)
	w.Restart(site, nil)
	w.Run(40 * time.Second)
	w.check(t, "shop", 2, 2)
}
