package lease

import (
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

func newCandidate(name string, b Books) *Candidate {
	s := New(Options{Me: wire.LeaseCandidate{Name: name, Addr: name + ":1"}, TTL: ttl, Patience: patience})
	s.SetBooks(b)
	return s
}

// TestWritesEndWithThePromises: who leads writes nothing from the moment on at which a majority could be against it, before its next tick.
func TestWritesEndWithThePromises(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newCandidate("a", Books{})
	s.state, s.holder = Leading, newHolder(now, 3, []string{"w"}, 0)
	s.holder.name([]wire.LeaseCandidate{{Name: "b"}})
	if s.Writes(now) {
		t.Error("it writes before a voter has promised anything")
	}
	l := s.holder.lease(now, s.opt.Me, ttl)
	s.Promised(now, "w", &wire.Promise{Term: l.Term, Holder: "a", Seq: l.Seq, Stamp: l.Stamp})
	if !s.Writes(now) || !s.Writes(now.Add(ttl/2)) {
		t.Error("it does not write")
	}
	if s.Writes(now.Add(ttl)) {
		t.Error("it writes when the promise has ended")
	}
}

// TestNothingIsReleasedWhileFounding: what is on the disk of a candidate that enough voters have not heard of is acknowledged to nobody.
func TestNothingIsReleasedWhileFounding(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newHolder(now, 3, []string{"w"}, 7)
	h.local = 9
	if h.release(); h.released != 7 {
		t.Errorf("up to %d is released", h.released)
	}
	h.promise("w", &wire.Promise{Term: 3, Holder: "a", Seq: 1}, now, ttl)
	if !h.founded || h.released != 9 {
		t.Errorf("founded %v, up to %d is released", h.founded, h.released)
	}
}

// TestOldCopyDoesNotStand: an in-sync replica whose copy is of an earlier term than the one that voters know of asks for no votes: it
// lacks what was acknowledged since.
func TestOldCopyDoesNotStand(t *testing.T) {
	for term, stands := range map[uint64]bool{2: false, 3: true, 4: true} {
		now := time.Unix(1000, 0)
		s := newCandidate("b", Books{LeaseTerm: term, Voters: []string{"w"}, Order: []string{"b"}})
		s.Offered(now, "w", &wire.Vote{Term: 3, Holder: "a", LeaseTerm: 3, LeaseHolder: "a", InSync: []wire.LeaseCandidate{{Name: "b"}}})
		s.Tick(now.Add(time.Millisecond))
		if asks := len(s.Take()) > 0; asks != stands {
			t.Errorf("its copy is of reign %d, and it asks: %v", term, asks)
		}
	}
}

// TestGoneLeavesWorkToDo: a candidate whose last voter has gone sleeps only once it has given up what it had begun with that vote. Else the
// next voter would find it late, or asking out of turn.
func TestGoneLeavesWorkToDo(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	successor := New(Options{Me: wire.LeaseCandidate{Name: "b"}, TTL: ttl, Patience: patience})
	successor.SetBooks(Books{LeaseTerm: 2, Revision: 5, Voters: []string{"w"}, Order: []string{"a", "b"}})
	offer := func() {
		t.Helper()
		successor.Offered(now, "w", &wire.Vote{Term: 2, Holder: "a", LeaseTerm: 2, LeaseHolder: "a", InSync: []wire.LeaseCandidate{{Name: "b"}}})
	}
	asleep := func(what string, want bool) {
		t.Helper()
		if successor.Asleep() != want {
			t.Errorf("%s: asleep %v", what, !want)
		}
	}
	asleep("nobody is there", true)
	offer()
	asleep("there is a vote", false)
	successor.Gone("w")
	asleep("it waits for its turn", false)
	successor.Tick(now)
	asleep("its turn is over", true)
	offer()
	now = now.Add(successor.delay())
	successor.Tick(now)
	if out := successor.Take(); len(out) != 1 || successor.asked == 0 {
		t.Fatalf("it asked for %d votes in term %d", len(out), successor.asked)
	}
	successor.Gone("w")
	asleep("an answer could come", false)
	now = now.Add(ttl / 2)
	successor.Tick(now)
	successor.Tick(now)
	asleep("it has given up", true)
}
