package reconcile

import (
	"encoding/binary"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// script reads small numbers and words out of fuzz input.
type script struct{ b []byte }

func (s *script) num() byte {
	if len(s.b) == 0 {
		return 0
	}
	n := s.b[0]
	s.b = s.b[1:]
	return n
}

func (s *script) gen() skerry.Generation {
	n := s.num()
	if n == 255 && len(s.b) >= 8 {
		v := binary.BigEndian.Uint64(s.b)
		s.b = s.b[8:]
		return skerry.Generation(v)
	}
	return skerry.Generation(n % 16)
}

func (s *script) inc() skerry.Incarnation {
	return []skerry.Incarnation{"", "a", "b", "a~1", "a~9223372036854775807"}[s.num()%5]
}

func (s *script) items() (out []wire.SetItem) {
	for n := s.num() % 5; n > 0; n-- {
		out = append(out, wire.SetItem{Key: string('k' + rune(s.num()%4)), Value: []byte{s.num()}, Gen: s.gen(), Deleted: s.num()%4 == 0})
	}
	return out
}

// digest is the right one for the items on top of the replica half of the time.
func (s *script) digest(r *Replica, items []wire.SetItem, whole bool) wire.Digest {
	if s.num()%4 == 0 {
		return wire.Digest{s.num()}
	}
	m := map[string][]byte{}
	if !whole {
		for k, it := range r.items {
			m[k] = it.value
		}
	}
	for _, it := range items {
		delete(m, it.Key)
		if !it.Deleted {
			m[it.Key] = it.Value
		}
	}
	return DigestOf(m)
}

// FuzzReplica applies frames of a broken or hostile parent. What is held always adds up, comes back from its records as it
// was, and survives whatever was refused.
func FuzzReplica(f *testing.F) {
	f.Add([]byte{0, 1, 0, 3, 2, 1, 65, 2, 1, 2, 66, 3, 1, 1, 1, 0})
	f.Add([]byte{1, 1, 1, 5, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4})
	f.Add([]byte{1, 1, 0, 2, 1, 1, 65, 1, 1, 1, 0, 1, 0, 1, 2, 0, 3, 1, 1, 66, 1, 1, 1, 0, 1, 0, 2, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &script{b}
		r := NewReplica("s", "p/", Options{MaxSet: 1 << 16})
		disk := map[string][]byte{}
		for len(s.b) > 0 {
			before, held := r.State(), r.Len()+r.Orphans()
			var out Outcome
			switch s.num() % 3 {
			case 0:
				d := &wire.SetDelta{Set: "s", Incarnation: s.inc(), Base: s.gen(), Gen: s.gen(), Items: s.items()}
				d.Digest = s.digest(r, d.Items, false)
				out = r.Apply(d)
			case 1:
				c := &wire.SetChunk{Set: "s", Incarnation: s.inc(), Base: s.gen(), Gen: s.gen(), Items: s.items(), Index: uint32(s.num() % 3),
					Last: s.num()%2 == 0, Delta: s.num()%3 == 0}
				c.Digest = s.digest(r, c.Items, !c.Delta)
				out = r.Apply(c)
			case 2:
				out = r.Apply(&wire.SetHeldWant{Set: "s", Next: uint32(s.num())})
			}
			if after := r.State(); out.Refused != "" && (after.Gen != before.Gen || after.Digest != before.Digest || r.Len()+r.Orphans() != held) {
				t.Fatalf("refused (%s) and yet changed: %+v, was %+v", out.Refused, after, before)
			}
			persist(disk, r.Flush())
		}
		live, orphans := map[string][]byte{}, map[string][]byte{}
		for k, v := range r.All() {
			if _, orphan, _ := r.Get(k); orphan {
				orphans[k] = v
			} else {
				live[k] = v
			}
		}
		if r.Digest() != DigestOf(live) || r.State().OrphanDigest != DigestOf(orphans) {
			t.Fatal("the digests do not add up")
		}
		again, err := LoadReplica("s", "p/", disk, Options{})
		if err != nil || again.sum != r.sum || again.orphanSum != r.orphanSum || again.gen != r.gen || again.inc != r.inc {
			t.Fatalf("came back as %+v (%v), was %+v", again, err, r)
		}
	})
}

// FuzzSource feeds answers of a broken or hostile child. The set itself never changes by them, its generation never falls,
// and what it offers stays within the window.
func FuzzSource(f *testing.F) {
	f.Add([]byte{0, 1, 1, 1, 1, 2, 2, 3, 1, 4, 1, 1, 0})
	f.Add([]byte{1, 1, 5, 1, 1, 2, 3, 1, 1, 2, 3, 4, 5, 6})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &script{b}
		now := time.Unix(1000, 0)
		opt := Options{Chunk: 64, Window: 2}
		src := NewSource("s", "p/", "a", opt)
		disk := map[string][]byte{}
		for i := range 6 {
			if _, err := src.Put(string('k'+rune(i)), make([]byte, 30)); err != nil {
				t.Fatal(err)
			}
		}
		src.Delete("k")
		digest := src.Digest()
		for len(s.b) > 0 {
			gen := src.Gen()
			ack := &wire.SetAck{Set: "s", Incarnation: s.inc(), Gen: s.gen(), Digest: digest, PartIncarnation: s.inc(), PartGen: s.gen(),
				PartDigest: digest, PartNext: uint32(s.num() % 5), Orphans: uint32(s.num() % 2), OrphanDigest: wire.Digest{s.num() % 2}}
			switch s.num() % 5 {
			case 0:
				src.Connect(now, *ack)
			case 1:
				src.Handle(now, ack)
			case 2:
				src.Handle(now, &wire.SetWant{Set: "s", Incarnation: s.inc(), Gen: s.gen(), Of: s.inc(),
					Reason: []wire.SetWantReason{wire.WantGap, wire.WantSnapshot, wire.WantRetired, "x"}[s.num()%4]})
			case 3:
				src.Handle(now, &wire.SetHeld{Set: "s", Digest: wire.Digest{s.num() % 2}, Index: uint32(s.num() % 3), Last: s.num()%2 == 0,
					Items: []wire.HeldItem{{Key: "o", Value: []byte{s.num()}}}})
			case 4:
				now = now.Add(7 * time.Second)
			}
			persist(disk, src.Flush())
			if n := len(src.Next(now)); n > 2*opt.Window+1 {
				t.Fatalf("%d frames at once", n)
			}
			if src.Digest() != digest || src.Len() != 5 || src.Gen() < gen {
				t.Fatalf("an answer changed the set: generation %d, was %d", src.Gen(), gen)
			}
		}
		again, err := LoadSource("s", "p/", "x", disk, opt)
		if len(disk) > 0 && (err != nil || again.sum != src.sum || again.gen != src.gen || again.inc != src.inc || len(again.tombs) != len(src.tombs)) {
			t.Fatalf("came back as %+v (%v), was %+v", again, err, src)
		}
	})
}

// FuzzRecords loads damaged records: an error, or a set that adds up.
func FuzzRecords(f *testing.F) {
	w := newWorld(f, 1)
	w.put("a", "1")
	w.put("b", "2")
	w.delete("b")
	w.settle()
	f.Add(w.srcDisk["src/meta"], w.srcDisk["src/i/a"])
	f.Add(w.repDisk["rep/meta"], w.repDisk["rep/i/a"])
	f.Add([]byte{1, 1, 'x', 200, 200}, []byte{1, 5, 0, 9, 'x'})
	f.Fuzz(func(t *testing.T, meta, item []byte) {
		disk := map[string][]byte{"p/meta": meta, "p/i/k": item, "p/e/0000000000000001": item}
		if s, err := LoadSource("s", "p/", "a", disk, Options{}); err == nil {
			s.Connect(time.Unix(0, 0), wire.SetAck{})
			s.Next(time.Unix(0, 0))
		}
		LoadReplica("s", "p/", disk, Options{})
		LoadInbox("p/", disk)
		if o, err := LoadOutbox("x", "p/", disk, OutboxLimits{}, Options{}); err == nil {
			o.Connect(wire.EventsAck{})
			o.Next(time.Unix(0, 0))
		}
	})
}
