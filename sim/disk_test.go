package sim

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/testenv"
)

// failing adds a disk that fails to a scenario full of other faults, and the power cut that brings it out.
func failing(seed uint64, fault string, node func(s *Scenario, rng *rand.Rand) string) *Scenario {
	s := Generate(seed)
	rng := rand.New(rand.NewPCG(seed, 11))
	n := node(s, rng)
	end := s.Actions[len(s.Actions)-1].At
	at := time.Duration(rng.Int64N(int64(end) + 1))
	s.Actions = append(s.Actions, Action{Verb: "disk", Target: n, Args: map[string]string{"fault": fault}}, Action{At: at, Verb: "off", Target: n},
		Action{At: at + time.Duration(rng.IntN(5000))*time.Millisecond, Verb: "start", Target: n})
	slices.SortStableFunc(s.Actions, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
	return s
}

func aWorker(s *Scenario, rng *rand.Rand) string { return s.Workers[rng.IntN(len(s.Workers))].Name }

// A worker whose store went back in time, or was damaged and set aside, is told again what it should have, and all that is promised
// holds.
func TestWorkerLosesStore(t *testing.T) {
	for _, fault := range []string{"lying", "rotten"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(15) {
				s := failing(seed, fault, aWorker)
				if b := Run(s, RunOptions{}).Broken; b != nil {
					t.Errorf("seed %d: %v\n%s", seed, b, s)
				}
			}
		})
	}
}

// A root or site whose store went back in time without a new incarnation may give numbers, room and tokens away twice: nothing in the
// design tells it. It still ends nothing that it does not know, does not panic, tells nothing of workers, and goes on.
func TestTailLost(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Times(10, 30)) {
		s := failing(seed, "lying", func(s *Scenario, rng *rand.Rand) string {
			return append([]string{"root"}, s.Sites...)[rng.IntN(1+len(s.Sites))]
		})
		if b := Run(s, RunOptions{}).Broken; b != nil {
			if slices.Contains([]string{BrokenSane, BrokenSecret, BrokenTwice, BrokenWrite}, b.Invariant) {
				t.Errorf("seed %d: %v\n%s", seed, b, s)
			} else {
				t.Logf("seed %d: %v", seed, b)
			}
		}
	}
}

// A role whose disk is full refuses what it is asked, keeps nothing of it, and goes on by itself when there is room.
func TestFullDisk(t *testing.T) {
	w := New(1)
	w.UseNetwork()
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(2000))
	w.Run(5 * time.Second)
	for _, partly := range []bool{false, true} {
		d := &w.Root.disk
		if d.full = true; partly {
			d.full, d.short, d.slow = false, 1, time.Millisecond
		}
		var told error
		w.ask(w.Root, app("shop", 1), func(result any) { told, _ = result.(error) })
		w.Run(50 * time.Millisecond)
		var e *skerry.Error
		if !errors.As(told, &e) || e.Code != skerry.CodeFull || strings.Contains(e.Error(), "nothing was changed") == partly {
			t.Errorf("partly %v: the answer is %v", partly, told)
		}
		if w.Root.Up {
			t.Error("a core that is ahead of its store lives on")
		}
		if !partly {
			if w.Run(5 * time.Second); w.Root.Up {
				t.Error("it lives on a full disk")
			}
		}
		d.mend()
		if w.Run(10 * time.Second); !w.Root.Up {
			t.Fatal("it does not go on by itself")
		}
		if there := w.RootCore().Apps.App(web("shop").App) != nil; there && !partly {
			t.Error("something of what was refused is kept")
		}
	}
	w.must(t, w.Root, app("shop", 1))
	w.Run(time.Minute)
	w.check(t, "shop", 1, 1)
	w.must(t, w.Root, apps.Delete{Key: web("shop").App})
	if len(w.Faults) > 0 {
		t.Error(w.Faults)
	}
}
