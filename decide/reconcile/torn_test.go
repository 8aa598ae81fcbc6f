package reconcile

import (
	"maps"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// TestCommitCutShort: of what a replica commits any first part may be all that is kept. What it says after that must not prove its
// source rolled back: a source that thinks so forgets what it deleted, and what is deleted stays as an orphan.
func TestCommitCutShort(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, story := range []struct {
		name          string
		before, after func(s *Source)
	}{
		{"first snapshot", func(*Source) {}, func(s *Source) { put(t, s, "a", "1"); put(t, s, "b", "1") }},
		{"delta", func(s *Source) { put(t, s, "a", "1"); put(t, s, "b", "1"); put(t, s, "c", "1") },
			func(s *Source) { s.Delete("a"); put(t, s, "b", "2"); put(t, s, "d", "1") }},
		{"snapshot of another life", func(s *Source) { put(t, s, "a", "1"); put(t, s, "b", "1") },
			func(s *Source) { s.Reincarnate("y"); put(t, s, "b", "2"); put(t, s, "c", "1"); s.Delete("a") }},
	} {
		for cut := 0; ; cut++ {
			s := NewSource("s", "s/", "x", Options{})
			r, disk := NewReplica("s", "r/", Options{}), map[string][]byte{}
			story.before(s)
			exchange(now, s, r)
			keep(disk, r.Flush())
			story.after(s)
			inc := s.Incarnation()
			exchange(now, s, r)
			writes := r.Flush()
			if cut > len(writes) {
				break
			}
			keep(disk, writes[:cut])

			// The replica's process starts again, and the source changes something at the same time.
			r, err := LoadReplica("s", "r/", disk, Options{})
			if err != nil {
				t.Fatal(err)
			}
			put(t, s, "e", "1")
			s.Delete("d")
			s.Disconnect()
			exchange(now, s, r)
			keep(disk, r.Flush())
			if s.Incarnation() != inc {
				t.Errorf("%s, %d of %d records: the source thinks it was rolled back: %s", story.name, cut, len(writes), s.Incarnation())
			}
			if !s.Settled() || r.Digest() != s.Digest() || r.Len() != s.Len() {
				t.Errorf("%s, %d of %d records: the copy has %d items, the source %d", story.name, cut, len(writes), r.Len(), s.Len())
			}
			if again, err := LoadReplica("s", "r/", disk, Options{}); err != nil || again.Digest() != s.Digest() || again.Gen() != s.Gen() {
				t.Errorf("%s, %d of %d records: what is kept is %d items of %d: %v", story.name, cut, len(writes), again.Len(), s.Len(), err)
			}
		}
	}
}

func put(t *testing.T, s *Source, key, value string) {
	t.Helper()
	if _, err := s.Put(key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func keep(disk map[string][]byte, list []wire.Write) {
	for _, w := range list {
		disk[w.Key] = w.Value
	}
	maps.DeleteFunc(disk, func(_ string, v []byte) bool { return v == nil })
}

// exchange connects the two where they are not, and carries frames until there are none.
func exchange(now time.Time, s *Source, r *Replica) {
	if !s.Connected() {
		s.Connect(now, r.State())
	}
	for list := s.Next(now); len(list) > 0; list = s.Next(now) {
		for _, m := range list {
			for _, reply := range r.Apply(m).Reply {
				s.Handle(now, reply)
			}
		}
	}
}
