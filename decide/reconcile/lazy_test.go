package reconcile

import (
	"maps"
	"testing"
	"time"
)

// TestForgettingWaits: that a peer has confirmed an end asks for no commit. The next one takes it along; before that, a
// start finds the end again, and forgets it again once the peer has said what it holds.
func TestForgettingWaits(t *testing.T) {
	now := time.Unix(1000, 0)
	s, r, disk := NewSource("s", "s/", "x", Options{}), NewReplica("s", "r/", Options{}), map[string][]byte{}
	put(t, s, "a", "1")
	put(t, s, "b", "1")
	keep(disk, s.Flush())
	exchange(now, s, r)
	s.Delete("a")
	keep(disk, s.Flush())
	exchange(now, s, r)
	if s.Told("a") || !s.Settled() {
		t.Fatal("the end of a is not confirmed")
	}
	if writes := s.Flush(); len(writes) > 0 {
		t.Fatalf("a confirmed end is to be written at once: %d records", len(writes))
	}

	for name, next := range map[string]func(*Source){
		"nothing":        func(*Source) {},
		"another change": func(s *Source) { put(t, s, "b", "2") },
		"the same item":  func(s *Source) { put(t, s, "a", "2") },
		"another end":    func(s *Source) { s.Delete("b") },
		"another life":   func(s *Source) { s.Reincarnate("y") },
	} {
		t.Run(name, func(t *testing.T) {
			// Power is cut before the next commit.
			disk := maps.Clone(disk)
			again, err := LoadSource("s", "s/", "x", disk, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !again.Told("a") {
				t.Fatal("the end of a was lost before it was forgotten")
			}
			peer := NewReplica("s", "r/", Options{})
			exchange(now, again, peer) // a peer that knows nothing gets all
			if peer.Digest() != again.Digest() || again.Told("a") {
				t.Fatalf("%d items came, of %d", peer.Len(), again.Len())
			}
			next(again)
			keep(disk, again.Flush())
			exchange(now, again, peer)
			if peer.Digest() != again.Digest() || !again.Settled() {
				t.Errorf("the copy has %d items, the source %d", peer.Len(), again.Len())
			}
			if _, kept := disk["s/i/a"]; kept != (name == "nothing" || name == "the same item") {
				t.Errorf("the record of a is kept: %v", kept)
			}
			loaded, err := LoadSource("s", "s/", "x", disk, Options{})
			if err != nil || loaded.Digest() != again.Digest() || loaded.Gen() != again.Gen() {
				t.Errorf("what is kept is %v of %v: %v", loaded, again, err)
			}
			keep(disk, again.Erase())
			if len(disk) > 0 {
				t.Errorf("a set that was erased leaves %v", disk)
			}
		})
	}
}
