package lease

import (
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// TestVotesOfOthers: the vote of a worker that is no voter of the site, or is none any more, counts for nothing, whenever it comes.
func TestVotesOfOthers(t *testing.T) {
	now := time.Unix(1000, 0)
	offer := func(s *Candidate, voter string, term uint64, holder string) {
		s.Offered(now, voter, &wire.Vote{Term: term, Holder: holder, LeaseTerm: 3, LeaseHolder: "a", InSync: []wire.LeaseCandidate{{Name: "b"}}})
	}
	asking := func(voters ...string) *Candidate {
		s := newCandidate("b", Books{LeaseTerm: 3, Voters: voters, Order: []string{"b"}})
		for _, w := range []string{"w1", "w2", "w3"} {
			offer(s, w, 3, "a")
		}
		if s.Tick(now); len(s.Take()) == 0 {
			t.Fatal("it asks nobody")
		}
		return s
	}
	s := asking("w1", "w2")
	offer(s, "w1", 4, "b")
	offer(s, "stranger", 4, "b")
	if s.State() != Standing {
		t.Errorf("%s with the vote of one of its two voters, and one of somebody else", s.State())
	}
	if offer(s, "w2", 4, "b"); s.State() != Founding {
		t.Errorf("%s with all votes", s.State())
	}
	// A worker that votes is revoked: the copy of the store that arrives meanwhile names it no more.
	s = asking("w1", "w2", "w3")
	offer(s, "w3", 4, "b")
	s.SetBooks(Books{LeaseTerm: 3, Voters: []string{"w1", "w2"}, Order: []string{"b"}})
	if offer(s, "w1", 4, "b"); s.State() != Standing {
		t.Errorf("%s with the vote of one of its two voters, and one of a worker that was one before", s.State())
	}
}

// TestLiarDeposes: a worker that always claims to have promised itself for a later term ends a term now and then, and ever more seldom.
func TestLiarDeposes(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newCandidate("a", Books{LeaseTerm: 3, Voters: []string{"w1", "w2", "liar"}, Order: []string{"a", "b"}})
	deposed := 0
	for range int(time.Hour / time.Second) {
		now = now.Add(time.Second)
		if s.State() == Standing {
			s.holder, s.state = newHolder(now, s.Above()+1, s.books.Voters, 0), Leading
		}
		s.Promised(now, "liar", &wire.Promise{Term: s.Term() + 1, Holder: "b"})
		if s.State() == Standing {
			deposed++
		}
	}
	if deposed == 0 || deposed > 8 {
		t.Errorf("%d reigns ended in an hour", deposed)
	}
}

// TestPromiseOutlivesAStart: a voter that is started again keeps what it has promised for as long as it has promised, also where leases
// are longer than usual: an in-sync replica that asks meanwhile gets no vote.
func TestPromiseOutlivesAStart(t *testing.T) {
	now := time.Unix(1000, 0)
	v := NewVoter(VoterState{}, now, ttl)
	lease := wire.Lease{Term: 3, Holder: "a", Seq: 1, InSync: []wire.LeaseCandidate{{Name: "b"}}, TTL: uint32(30 * ttl / time.Millisecond)}
	if _, save := v.Lease(now, &lease); !save {
		t.Error("it is not written down")
	}
	again := NewVoter(v.VoterState, now, ttl)
	if a, _ := again.Ask(now.Add(29*ttl), &wire.Ask{Term: 4, Candidate: "b"}); a.Holder != "a" {
		t.Errorf("it broke its promise: %+v", a)
	}
	if a, _ := again.Ask(now.Add(31*ttl), &wire.Ask{Term: 4, Candidate: "b"}); a.Holder != "b" {
		t.Errorf("it does not vote when that has run out: %+v", a)
	}
	if _, save := v.Lease(now, &lease); save {
		t.Error("a lease that says nothing new is written down")
	}
}
