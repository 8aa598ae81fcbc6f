package reconcile

import (
	"errors"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

func TestReincarnateAtEveryStart(t *testing.T) {
	s := NewSource("s", "p/", "x", Options{})
	s.Connect(time.Unix(1000, 0), wire.SetAck{Set: "s", Incarnation: "x", Gen: 9}) // the peer is ahead: rolled back
	if s.Incarnation() != "x~1000" || s.Gen() <= 9 {
		t.Fatalf("%s/%d", s.Incarnation(), s.Gen())
	}
	gen := s.Gen()
	if s.Reincarnate("x"); s.Incarnation() != "x~1000" || s.Gen() != gen {
		t.Errorf("an ordinary start made it %s/%d", s.Incarnation(), s.Gen())
	}
	if s.Reincarnate("y"); s.Incarnation() != "y" || s.Gen() <= gen {
		t.Errorf("a restore made it %s/%d", s.Incarnation(), s.Gen())
	}
}

// TestRenew: a set made again has another life than before, at once and after a restart, and an ordinary start leaves it that.
func TestRenew(t *testing.T) {
	disk := map[string][]byte{}
	keep := func(s *Source) {
		for _, w := range s.Flush() {
			disk[w.Key] = w.Value
		}
	}
	s := NewSource("s", "p/", "x", Options{})
	s.Renew(time.Unix(1000, 0))
	if _, err := s.Put("a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	keep(s)
	again := NewSource("s", "p/", "x", Options{})
	if again.Renew(time.Unix(1060, 0)); again.Incarnation() == s.Incarnation() {
		t.Errorf("both live in %s", s.Incarnation())
	}
	loaded, err := LoadSource("s", "p/", "x", disk, Options{})
	if err != nil {
		t.Fatal(err)
	}
	loaded.Reincarnate("x")
	if loaded.Incarnation() != "x~1000" || loaded.Gen() != s.Gen() || loaded.Digest() != s.Digest() {
		t.Errorf("an ordinary start made it %s/%d", loaded.Incarnation(), loaded.Gen())
	}
}

func TestTooLarge(t *testing.T) {
	s := NewSource("s", "p/", "x", Options{MaxItem: 10})
	var e *TooLargeError
	if _, err := s.Put("key", make([]byte, 8)); !errors.As(err, &e) || s.Len() != 0 || e.Size != 11 {
		t.Errorf("%v", err)
	}
	o := NewOutbox("x", "o/", OutboxLimits{}, Options{MaxItem: 10})
	if _, err := o.Append(make([]byte, 11)); !errors.As(err, &e) || o.Len() != 0 {
		t.Errorf("%v", err)
	}
}

func TestDueSaysWhenToComeBack(t *testing.T) {
	now := time.Unix(1000, 0)
	s := NewSource("s", "p/", "x", Options{Resend: 5 * time.Second, MaxResend: 20 * time.Second})
	s.Put("a", []byte("1"))
	if !s.Due().IsZero() {
		t.Error("due without a peer")
	}
	s.Connect(now, wire.SetAck{})
	for _, wait := range []time.Duration{5, 10, 20, 20} {
		if n := len(s.Next(now)); n != 1 {
			t.Fatalf("%d frames", n)
		}
		due := s.Due()
		if due.Sub(now) != wait*time.Second {
			t.Fatalf("due after %s, want %d s", due.Sub(now), wait)
		}
		if n := len(s.Next(due.Add(-1))); n != 0 {
			t.Fatal("sent again too early")
		}
		now = due
	}
}

// TestPeerIsToldOfAnotherLife has something else than the source name another life of its set to the peer, which has all of it and
// hears of nothing new: the source learns that from the peer's answer, and the peer has it all again.
func TestPeerIsToldOfAnotherLife(t *testing.T) {
	now := time.Unix(1000, 0)
	s, r := NewSource("s", "s/", "x", Options{}), NewReplica("s", "r/", Options{})
	s.Put("a", []byte("1"))
	s.Connect(now, r.State())
	talk := func() {
		for range 8 {
			s.Flush()
			for _, m := range s.Next(now) {
				for _, reply := range r.Apply(m).Reply {
					s.Handle(now, reply)
				}
			}
			r.Flush()
			now = now.Add(time.Minute)
		}
	}
	talk()
	if !s.Settled() || r.Len() != 1 {
		t.Fatalf("%d items, settled %v", r.Len(), s.Settled())
	}
	for _, reply := range r.Apply(&wire.SetChunk{Set: "s", Incarnation: "y", Gen: 1, Last: true}).Reply {
		s.Handle(now, reply)
	}
	if _, orphaned, ok := r.Get("a"); ok && !orphaned {
		t.Fatal("the peer has the item though it was told of a life without")
	}
	talk()
	if v, orphaned, ok := r.Get("a"); !ok || orphaned || string(v) != "1" || !s.Settled() {
		t.Errorf("the peer holds %q, settled %v", v, s.Settled())
	}
}

// BenchmarkChange is one change of a set of 1,000 items, with its delta and acknowledgement.
func BenchmarkChange(b *testing.B) {
	now := time.Unix(0, 0)
	s, r := NewSource("s", "s/", "x", Options{}), NewReplica("s", "r/", Options{})
	value := make([]byte, 500)
	for i := range 1000 {
		s.Put(string(rune('a'+i)), value)
	}
	s.Connect(now, r.State())
	turn := func() {
		s.Flush()
		for _, m := range s.Next(now) {
			for _, reply := range r.Apply(m).Reply {
				s.Handle(now, reply)
			}
		}
		r.Flush()
	}
	for !s.Settled() {
		turn()
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		value := make([]byte, 500)
		value[0], value[1], value[2] = byte(i), byte(i>>8), byte(i>>16)|1
		s.Put(string(rune('a'+i%1000)), value)
		turn()
	}
	if !s.Settled() {
		b.Fatal("not settled")
	}
}

// TestPending: an item is pending, and so is its end, until the peer has acknowledged just that; also after a connection and a life.
func TestPending(t *testing.T) {
	now := time.Unix(1000, 0)
	s := NewSource("s", "p/", "x", Options{})
	expect := func(pending, told bool) {
		t.Helper()
		if s.Pending("a") != pending || s.Told("a") != told {
			t.Errorf("pending %v, told %v", s.Pending("a"), s.Told("a"))
		}
	}
	ack := func() { s.Handle(now, &wire.SetAck{Set: "s", Incarnation: "x", Gen: s.Gen(), Digest: s.Digest()}) }
	put := func(key, value string) {
		t.Helper()
		if _, err := s.Put(key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	expect(false, false)
	put("a", "1")
	expect(true, true)
	s.Connect(now, wire.SetAck{Set: "s"})
	s.Next(now)
	expect(true, true)
	ack()
	expect(false, true)
	put("b", "1")
	expect(false, true)
	put("a", "2")
	expect(true, true)
	s.Disconnect()
	expect(true, true)
	s.Connect(now, wire.SetAck{Set: "s", Incarnation: "x", Gen: s.Gen(), Digest: s.Digest()})
	expect(false, true)
	s.Delete("a")
	expect(true, true)
	s.Next(now)
	ack()
	expect(false, false)
}
