package sim

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// balanced is a site of so many equal workers that moves instances to better places by itself, or not.
func balanced(t *testing.T, workers int, by bool) *World {
	t.Helper()
	w := newWorld(t, 3)
	w.Rebalance, w.Audit = by, true
	w.AddCluster("a")
	for i := range workers {
		w.AddWorker("a", fmt.Sprintf("w%d", i+1), facts(4000))
	}
	w.Run(time.Second)
	return w
}

func spread(s *spec.ServiceSpec) { s.Placement.Policy = spec.PolicySpread }

// perWorker counts what runs on each worker, in order.
func (w *World) perWorker(n int) (out []int) {
	for i := range n {
		out = append(out, w.Workers[fmt.Sprintf("a/w%d", i+1)].Tasks())
	}
	return out
}

// plan asks a site what it would move.
func (w *World) plan(t *testing.T) view.RebalancePlan {
	t.Helper()
	p, ok := w.Do(w.Clusters["a"], cluster.Rebalance{DryRun: true}).(view.RebalancePlan)
	if !ok {
		t.Fatal("no plan")
	}
	return p
}

// A worker that was lost and comes back gets a part of what is spread again, one by one and make before break; without being asked for
// that, nothing moves.
func TestRebalanceAfterReturn(t *testing.T) {
	for _, by := range []string{"nobody", "the operator", "the site"} {
		t.Run(by, func(t *testing.T) {
			w := balanced(t, 3, by == "the site")
			w.must(t, w.Root, app("shop", 6, spread))
			w.Run(3 * time.Second)
			if n := w.perWorker(3); n[0] != 2 || n[1] != 2 || n[2] != 2 {
				t.Fatal(n)
			}
			w.PowerOff(w.Workers["a/w3"])
			w.Run(20 * time.Second)
			w.check(t, "shop", 6, 6)
			w.Restart(w.Workers["a/w3"], w.Workers["a/w3"].facts)
			w.Run(10 * time.Second)
			if n := w.perWorker(3); n[0] != 3 || n[1] != 3 || n[2] != 0 {
				t.Fatal(n)
			}
			want := []int{2, 2, 2}
			plan := w.plan(t)
			if len(plan.Moves) != 2 || plan.Moves[0].To != "w3" || plan.Moves[1].To != "w3" || plan.Moves[0].From == plan.Moves[1].From || !strings.Contains(plan.Moves[0].Why, "policy spread rates worker w3") {
				t.Fatalf("%+v", plan)
			}
			w.booksHold(t)
			switch by {
			case "nobody":
				want = []int{3, 3, 0}
			case "the operator":
				w.must(t, w.Clusters["a"], cluster.Rebalance{})
			}
			for range 40 * 60 {
				w.Run(time.Second)
				if w.ready("shop") < 6 {
					t.Fatal("fewer serve")
				}
			}
			w.check(t, "shop", 6, 6)
			w.booksHold(t)
			if n := w.perWorker(3); fmt.Sprint(n) != fmt.Sprint(want) {
				t.Errorf("%v, want %v", n, want)
			}
			if told := w.texts("Migrated"); by != "nobody" && (len(told) != 2 || !strings.Contains(told[0], "for a better place: policy spread")) {
				t.Error(told)
			}
			if p := w.plan(t); by != "nobody" && len(p.Moves) != 0 {
				t.Errorf("there is more to gain: %+v", p)
			}
		})
	}
}

// What says so is not moved, and the plan tells why; nor is what was packed by the site's own choice.
func TestRebalanceLeavesAlone(t *testing.T) {
	none := 0.0
	for name, x := range map[string]struct {
		edit func(*spec.ServiceSpec)
		why  string
	}{
		"stops when cut off": {func(s *spec.ServiceSpec) { spread(s); s.OnDisconnect = spec.StopAfter(time.Minute) }, "stopAfter"},
		"rigid":              {func(s *spec.ServiceSpec) { spread(s); s.Placement.Rigidness = &none }, "rigidness 0"},
		"held":               {spread, "held"},
		"best fit":           {func(*spec.ServiceSpec) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := balanced(t, 1, true)
			w.must(t, w.Root, app("shop", 4, x.edit))
			w.Run(3 * time.Second)
			if name == "held" {
				w.must(t, w.Workers["a/w1"], worker.FreezeLocal{Reason: "on the road"})
			}
			w.AddWorker("a", "w2", facts(4000))
			w.Run(10 * time.Second)
			p := w.plan(t)
			if len(p.Moves) > 0 || (x.why == "") != (len(p.Stays) == 0) || x.why != "" && !strings.Contains(p.Stays[0].Reason, x.why) {
				t.Errorf("%+v", p)
			}
			w.must(t, w.Clusters["a"], cluster.Rebalance{})
			w.Run(40 * time.Minute)
			if n := w.perWorker(2); n[0] != 4 || n[1] != 0 {
				t.Error(n)
			}
			w.booksHold(t)
		})
	}
}

// A preference that could not be met is met when it can be.
func TestRebalanceMeetsPreferences(t *testing.T) {
	w := balanced(t, 1, true)
	apart := func(s *spec.ServiceSpec) {
		s.Labels = map[string]string{"tier": "web"}
		s.Placement.AntiAffinity = []spec.Affinity{{Labels: map[string]string{"tier": "web"}, Preferred: true}}
	}
	w.must(t, w.Root, app("shop", 2, apart))
	w.Run(3 * time.Second)
	w.AddWorker("a", "w2", facts(4000))
	w.Run(30 * time.Minute)
	w.check(t, "shop", 2, 2)
	if n := w.perWorker(2); n[0] != 1 || n[1] != 1 {
		t.Error(n)
	}
}

// Over three simulated days of load that goes up and down, at workers that come and go, no instance moves more than once an hour, and few at
// all, as many serve as are to, and the books hold.
func TestRebalanceDoesNotFlap(t *testing.T) {
	days := testenv.Times(1, 3)
	t.Run(fmt.Sprintf("%d days", days), func(t *testing.T) { doesNotFlap(t, days) }) // each has a digest of its own
}

func doesNotFlap(t *testing.T, days int) {
	w := balanced(t, 3, true)
	w.must(t, w.Root, app("shop", 5, spread))
	w.must(t, w.Root, app("calc", 6))
	w.Run(3 * time.Second)
	born := w.Now
	moved := map[string]time.Time{}
	moves, seen := 0, len(w.Events)
	for minute := range days * 24 * 60 {
		if minute%5 == 0 {
			w.tellDay(w.Now.Sub(born))
		}
		if minute == 8*60 {
			w.PowerOff(w.Workers["a/w2"])
		}
		if minute == 8*60+30 {
			w.Restart(w.Workers["a/w2"], w.Workers["a/w2"].facts)
		}
		w.Run(time.Minute)
		for _, e := range w.Events[seen:] {
			if e.Reason != "Migrating" || !strings.Contains(e.Text, "better place") {
				continue
			}
			moves++
			id := string(e.Instance)
			if at, ok := moved[id]; ok && e.At.Sub(at) < time.Hour {
				t.Errorf("%s moved after %s again: %s", id, e.At.Sub(at), e.Text)
			}
			moved[id] = e.At
		}
		seen = len(w.Events)
		if w.ready("shop") < 5 && minute > 8*60+2 {
			t.Fatalf("minute %d: fewer serve", minute)
		}
	}
	w.booksHold(t)
	t.Logf("%d moves in %d days", moves, days)
	if moves == 0 || moves > 24 {
		t.Errorf("%d moves", moves)
	}
}

// tellDay has all workers use what the time of the day says; what calculates at noon uses all that it may.
func (w *World) tellDay(since time.Duration) {
	day := (1 - math.Cos(2*math.Pi*since.Hours()/24)) / 2
	for _, n := range w.nodes() {
		if n.facts == nil || !n.Up {
			continue
		}
		u := worker.Usage{Instances: map[skerry.InstanceID]wire.QoS{}}
		u.Used.CPU = 1500 // of others, on one machine
		if n.Name != "a/w1" {
			u.Used.CPU = 100
		}
		for _, v := range n.Core.(*worker.Core).Views() {
			q := wire.QoS{CPU: skerry.MilliCPU(500 * day)}
			u.Used.CPU += q.CPU
			u.Instances[v.ID] = q
		}
		w.tell(n, u)
	}
}
