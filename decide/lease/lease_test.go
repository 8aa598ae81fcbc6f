package lease

import (
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/wire"
)

// leader gives the only candidate that leads, or nil.
func (w *world) leader() *candidate {
	var found *candidate
	for _, s := range w.candidates {
		if s.up && s.core.State() == Leading {
			if found != nil {
				return nil
			}
			found = s
		}
	}
	return found
}

// TestChaos has machines crash, ways break in one direction or both, messages get lost and clocks go at different speeds. At
// every step one candidate at most leads in a term, no term goes back, and whoever leads has everything that was acknowledged before. When
// all is mended one candidate leads, the others follow, and writes are acknowledged.
func TestChaos(t *testing.T) {
	seeds, took, slept := testenv.Times(40, 100), 0, map[State]int{}
	for seed := range uint64(seeds) {
		// One world in three has clocks of which no promise can be kept: that must cost time, not writes.
		drift := 0.03
		if seed%3 == 2 {
			drift = 0.6
		}
		w := newWorld(seed, 1+int(seed%5), drift)
		w.run(5 * time.Second)
		for range 25 {
			a, b := w.names[w.rng.IntN(len(w.names))], w.names[w.rng.IntN(len(w.names))]
			switch w.rng.IntN(8) {
			case 0, 1:
				if w.up(a) {
					w.stop(a)
				}
			case 2, 3:
				if !w.up(a) {
					w.start(a)
				}
			case 4: // one way
				w.cut[a+">"+b] = true
			case 5:
				for _, n := range w.names {
					if n[0] == 'w' || w.rng.IntN(3) == 0 {
						w.cut[a+">"+n], w.cut[n+">"+a] = true, w.rng.IntN(3) > 0
					}
				}
			case 6:
				clear(w.cut)
			case 7:
				w.loss = []float64{0, 0.1, 0.3}[w.rng.IntN(3)]
			}
			w.run(time.Duration(w.rng.IntN(8000)) * time.Millisecond)
		}
		clear(w.cut)
		w.loss = 0
		for _, n := range w.names {
			if !w.up(n) {
				w.start(n)
			}
		}
		w.run(2 * time.Minute)
		before := len(w.acked)
		w.run(10 * time.Second)
		if l := w.leader(); l == nil || len(w.acked) == before {
			text := ""
			for _, s := range w.candidates {
				text += fmt.Sprintf("\n%s %s term %d above %d owner %v log %d %+v", s.name, s.core.State(), s.core.Term(), s.core.Above(), s.owner, len(s.log), s.books().Voters)
			}
			for _, v := range w.workers {
				text += fmt.Sprintf("\n%s %+v link %q", v.name, v.state, v.link)
			}
			w.fault("nobody writes when all is mended:%s", text)
		}
		took += w.took
		for state, n := range w.slept {
			slept[state] += n
		}
		for _, f := range w.faults {
			t.Fatalf("seed %d: %s", seed, f)
		}
	}
	if slept[Leading] == 0 || slept[Standing] == 0 {
		t.Errorf("nobody had nothing to do: %v", slept)
	}
	if took < seeds {
		t.Errorf("only %d elections in %d worlds", took, seeds)
	}
}

// TestTakeOver: the leader dies for good, the first successor leads, with everything acknowledged; the old one comes back and
// follows.
func TestTakeOver(t *testing.T) {
	for workers := 1; workers <= 4; workers++ {
		w := newWorld(1, workers, 0)
		w.calm = true
		w.run(10 * time.Second)
		if l := w.leader(); l == nil || l.name != "a" || len(l.core.holder.now().inSync) != 2 {
			t.Fatalf("%d workers: no two heirs: %+v", workers, l)
		}
		before := len(w.acked)
		w.stop("a")
		w.run(20 * time.Second)
		if l := w.leader(); l == nil || l.name != "b" {
			t.Fatalf("%d workers: b does not lead: %v", workers, l)
		}
		if len(w.acked) == before {
			t.Errorf("%d workers: nothing was written after", workers)
		}
		w.start("a")
		w.run(10 * time.Second)
		if l := w.leader(); l == nil || l.name != "b" || w.candidates["a"].follows != "b" {
			t.Errorf("%d workers: the old one does not follow", workers)
		}
		if len(w.faults) > 0 {
			t.Fatal(w.faults)
		}
	}
}

// TestMinority: a leader that a majority of the workers cannot reach stops writing, and says why; with half of an even
// number it goes on, because the other half is no majority.
func TestMinority(t *testing.T) {
	for _, c := range []struct {
		workers, cut int
		goesOn       bool
	}{{1, 1, false}, {2, 1, true}, {2, 2, false}, {3, 1, true}, {3, 2, false}, {4, 2, true}, {4, 3, false}} {
		w := newWorld(3, c.workers, 0)
		w.calm = true
		w.run(10 * time.Second)
		a := w.candidates["a"]
		for i := range c.cut {
			for _, s := range []string{"a", "b", "c"} {
				w.cut[fmt.Sprintf("w%d>%s", i, s)] = true // one way: they hear the leader, which does not hear them
			}
		}
		w.run(10 * time.Second)
		if goesOn := a.core.Writes(a.now()); goesOn != c.goesOn {
			t.Errorf("%d of %d workers cut off: writes %v", c.cut, c.workers, goesOn)
		}
		if !c.goesOn && a.core.Why() == "" {
			t.Error("it does not say why")
		}
	}
}

// TestVoter: one vote in a term, none while the promise lasts, none for a candidate that is no in-sync replica.
func TestVoter(t *testing.T) {
	now := time.Unix(100, 0)
	v := NewVoter(VoterState{}, now, ttl)
	if a, save := v.Ask(now, &wire.Ask{Term: 9, Candidate: "b"}); save || a.Holder != "" {
		t.Error("it voted for somebody of whom it knows nothing")
	}
	inSync := []wire.LeaseCandidate{{Name: "b", Addr: "b:1"}}
	p, save := v.Lease(now, &wire.Lease{Term: 3, Holder: "a", Seq: 2, InSync: inSync, TTL: 5000, Stamp: 7, At: "a:1"})
	if !save || p.Term != 3 || p.Seq != 2 || p.Stamp != 7 {
		t.Fatalf("%+v %v", p, save)
	}
	if _, save := v.Lease(now, &wire.Lease{Term: 3, Holder: "a", Seq: 2, InSync: inSync, TTL: 5000, Stamp: 8}); save {
		t.Error("a lease that says nothing new is written down")
	}
	if _, save := v.Ask(now.Add(4*time.Second), &wire.Ask{Term: 4, Candidate: "b"}); save {
		t.Error("it broke its promise")
	}
	later := now.Add(6 * time.Second)
	if _, save := v.Ask(later, &wire.Ask{Term: 4, Candidate: "c"}); save {
		t.Error("it voted for a seat that is no heir")
	}
	if _, save := v.Ask(later, &wire.Ask{Term: 3, Candidate: "b"}); save {
		t.Error("it voted in a term that another holds")
	}
	if a, save := v.Ask(later, &wire.Ask{Term: 4, Candidate: "b"}); !save || a.Holder != "b" || a.Term != 4 || !v.Strayed {
		t.Errorf("it did not vote: %+v", a)
	}
	if p, _ := v.Lease(later, &wire.Lease{Term: 3, Holder: "a", Seq: 9, TTL: 5000}); p.Term != 4 || p.Holder != "b" {
		t.Errorf("it hears a lease of a lower term: %+v", p)
	}
	if a, _ := v.Ask(later.Add(time.Minute), &wire.Ask{Term: 4, Candidate: "a"}); a.Holder != "b" {
		t.Error("it voted twice in one term")
	}
	again := NewVoter(v.VoterState, later, ttl)
	if a, _ := again.Ask(later, &wire.Ask{Term: 5, Candidate: "a"}); a.Holder != "b" {
		t.Error("a voter that was started again broke a promise whose age it does not know")
	}
	if s := again.Candidates(); len(s) != 2 || s[0].Name != "a" || s[1].Addr != "b:1" {
		t.Errorf("seats %v", s)
	}
}

// TestNumbers: no majority without one of those that a holder must keep, and half of an even number is enough.
func TestNumbers(t *testing.T) {
	for n := 1; n < 20; n++ {
		if Majority(n)+Blocking(n) != n+1 || 2*Majority(n) <= n {
			t.Errorf("%d voters: %d depose, %d hold", n, Majority(n), Blocking(n))
		}
	}
}

// TestStrayed: half of an even number of workers suffices for who has led last only if they have voted for nobody else since. One
// that has may belong to the majority of another.
func TestStrayed(t *testing.T) {
	for _, strayed := range []bool{false, true} {
		now := time.Unix(100, 0)
		s := New(Options{Me: wire.LeaseCandidate{Name: "a", Addr: "a:1"}, TTL: ttl, Patience: patience})
		s.SetBooks(Books{LeaseTerm: 3, Revision: 9, Voters: []string{"w1", "w2"}, Order: []string{"a", "b"}})
		s.Offered(now, "w2", &wire.Vote{Term: 5, Holder: "a", LeaseTerm: 3, LeaseHolder: "a", Strayed: strayed})
		if asks := len(s.Take()); asks != 0 == strayed {
			t.Errorf("strayed %v: %d workers are asked", strayed, asks)
		}
	}
}

// TestAbsurdTerm: a worker that claims a term which nobody can have come to is not believed.
func TestAbsurdTerm(t *testing.T) {
	s := New(Options{Me: wire.LeaseCandidate{Name: "a"}, TTL: ttl, Patience: patience})
	s.SetBooks(Books{LeaseTerm: 3, Voters: []string{"w1"}})
	s.Offered(time.Unix(100, 0), "w1", &wire.Vote{Term: 1 << 63, LeaseTerm: 3, LeaseHolder: "a", Holder: "a"})
	if s.Above() != 3 || len(s.Take()) != 0 {
		t.Errorf("it is at %d now", s.Above())
	}
}
