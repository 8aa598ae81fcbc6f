package sim

import (
	"maps"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// calm is a fleet of one site and one worker with one application that runs.
func calm(t *testing.T) *run {
	t.Helper()
	s := &Scenario{Seed: 3, Sites: []string{"a"}, Workers: []Machinery{{Name: "a/" + workerMark + "1", CPU: 2000, Memory: skerry.GiB}}}
	w := newWorld(t, 3)
	w.UseNetwork()
	r := &run{w: w, s: s, check: newChecker(w, workerMark), held: map[*Node]bool{}, suffering: map[*Node]float64{}}
	w.guard, w.net.tape = r.check, newTape()
	w.AddCluster("a")
	r.addWorker(0, s.Workers[0])
	w.Run(time.Second)
	r.act(Action{Verb: "apply", Target: "shop", Args: map[string]string{"replicas": "2"}})
	w.Run(time.Minute)
	if _, why := r.check.atRest(); why != "" || r.check.broken != nil {
		t.Fatal(why, r.check.broken)
	}
	return r
}

// grew lists the reasons that were counted between two moments.
func grew(before, after map[string]int) (out []string) {
	for why, n := range after {
		if n > before[why] {
			out = append(out, why)
		}
	}
	slices.Sort(out)
	return out
}

// TestBadInput has each kind of bad message arrive at each end of each link: it is counted with a reason, what runs goes on, and
// everything that comes later works.
func TestBadInput(t *testing.T) {
	codec := wire.New()
	marshal := func(v any) []byte { return codec.Marshal(v) }
	type place struct {
		name string
		put  func(r *run, key string, value []byte) error // says something in the set that goes that way
		node string
		down bool
	}
	places := []place{
		{"root", func(r *run, k string, v []byte) error {
			_, err := r.w.ClusterCore("a").Up.Observed.Put(k, v)
			return err
		}, "a", false},
		{"cluster from the root", func(r *run, k string, v []byte) error { return r.w.RootCore().Children.Put("a", k, v) }, "a", true},
		{"cluster from a worker", func(r *run, k string, v []byte) error {
			_, err := r.node("a/"+workerMark+"1").Core.(*worker.Core).Up.Observed.Put(k, v)
			return err
		}, "a/" + workerMark + "1", false},
		{"worker", func(r *run, k string, v []byte) error { return r.w.ClusterCore("a").Children.Put(workerMark+"1", k, v) },
			"a/" + workerMark + "1", true},
	}
	kinds := map[string]func(r *run, p place) (want []string){
		"replay": func(r *run, p place) []string {
			for _, data := range r.w.net.tape.frames[taped{p.node, p.down}] {
				r.arrives(r.node(p.node), p.down, data)
			}
			return []string{"stale", "stale-answer", "stale-report", "repeated-events"}
		},
		"future": func(r *run, p place) []string {
			r.inject(r.node(p.node), "future", p.down)
			return []string{"unknown-frame", "unknown-set", members.IgnoredReport, members.IgnoredEvents, members.IgnoredUnexpected}
		},
		"half a message": func(r *run, p place) []string {
			r.inject(r.node(p.node), "half", p.down)
			return []string{"frame"}
		},
		"meant for another tier": func(r *run, p place) []string {
			r.inject(r.node(p.node), "stranger", p.down)
			return []string{members.IgnoredUnexpected}
		},
		"half an item": func(r *run, p place) []string {
			if err := p.put(r, wire.AssignmentKey("ghost"), []byte{0xa3, 1, 2}); err != nil {
				t.Fatal(err)
			}
			return []string{members.IgnoredUnreadable}
		},
		"an unknown instance": func(r *run, p place) []string {
			if p.down { // only what runs is told of
				return nil
			}
			if err := p.put(r, wire.AssignmentKey("ghost"), marshal(&wire.Observation{ID: "ghost", Fence: skerry.Fence{RootEpoch: 1 << 50},
				State: skerry.Running})); err != nil {
				t.Fatal(err)
			}
			return []string{members.IgnoredUnknown}
		},
		"a lower token": func(r *run, p place) []string {
			site := r.w.ClusterCore("a")
			i := site.Instances()[0]
			var v any = &wire.Observation{ID: i.ID, Fence: skerry.Fence{RootEpoch: 1}, State: skerry.Failed}
			if p.down {
				v = &spec.Assignment{ID: i.ID, Service: i.Service, Gen: 7, Restart: 9, Fence: skerry.Fence{RootEpoch: 1},
					Spec: application(&Action{Args: map[string]string{}}).Spec.Services[0]}
			}
			if err := p.put(r, wire.AssignmentKey(i.ID), marshal(v)); err != nil {
				t.Fatal(err)
			}
			return []string{members.IgnoredToken}
		},
	}
	for _, p := range places {
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			t.Run(p.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				r := calm(t)
				before, ran := r.w.ignored(), r.check.snapshot()
				want := kinds[kind](r, p)
				// What was said goes out with the next message of whoever says it.
				for _, n := range r.w.nodes() {
					r.w.tick(n)
				}
				r.w.Run(time.Minute)
				counted := grew(before, r.w.ignored())
				if len(want) > 0 && !slices.ContainsFunc(counted, func(s string) bool { return slices.Contains(want, s) }) {
					t.Errorf("counted as %v, want one of %v", counted, want)
				}
				if now := r.check.snapshot(); !slices.Equal(now, ran) {
					t.Errorf("what runs changed: %s", difference(ran, now))
				}
				if r.check.broken != nil {
					t.Error(r.check.broken)
				}
				// And they go on.
				r.act(Action{Verb: "apply", Target: "later", Args: map[string]string{"replicas": "1"}})
				r.w.Run(2 * time.Minute)
				if _, why := r.check.atRest(); why != "" {
					t.Errorf("afterwards: %s", why)
				}
				if r.check.broken != nil {
					t.Error(r.check.broken)
				}
			})
		}
	}
}

// Only what a member did not say excuses that its parent does not believe it.
func TestGarbledClaimsAreExcused(t *testing.T) {
	r := calm(t)
	site, n := r.node("a"), r.node("a/"+workerMark+"1")
	found := wire.Effects{Events: []wire.Event{{Reason: "Implausible", Worker: skerry.WorkerName(short(n))}}}
	if r.check.believe(site, &found); len(r.check.liars) > 0 {
		t.Error("an honest member that is not believed is taken for one that lies")
	}
	r.check.garbled[n] = true
	if r.check.believe(site, &found); !r.check.liars[n] || len(r.check.liars) > 1 {
		t.Errorf("what counts as lying after a garbled message: %d members", len(r.check.liars))
	}
}
