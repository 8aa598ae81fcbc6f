package reconcile

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// TestRefusedWhole: what is not what its digest says, or is of a life of the set that was replaced, changes nothing and is asked for anew.
func TestRefusedWhole(t *testing.T) {
	item := func(key, value string, gen skerry.Generation) wire.SetItem {
		return wire.SetItem{Key: key, Value: []byte(value), Gen: gen}
	}
	digest := func(kv ...string) wire.Digest {
		m := map[string][]byte{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = []byte(kv[i+1])
		}
		return DigestOf(m)
	}
	chunk := func(inc skerry.Incarnation, gen skerry.Generation, d wire.Digest, items ...wire.SetItem) *wire.SetChunk {
		return &wire.SetChunk{Set: "s", Incarnation: inc, Gen: gen, Digest: d, Items: items, Last: true}
	}
	delta := func(inc skerry.Incarnation, base, gen skerry.Generation, d wire.Digest, items ...wire.SetItem) *wire.SetDelta {
		return &wire.SetDelta{Set: "s", Incarnation: inc, Base: base, Gen: gen, Digest: d, Items: items}
	}
	r := NewReplica("s", "p/", Options{})
	first, second := chunk("a", 3, digest("k", "1"), item("k", "1", 3)), chunk("b", 4, digest("k", "2"), item("k", "2", 4))
	for _, m := range []wire.Message{first, second} {
		if out := r.Apply(m); !out.Complete {
			t.Fatalf("%+v: %+v", m, out)
		}
	}
	was := r.State()
	for what, x := range map[string]struct {
		m    wire.Message
		want wire.SetWantReason // "": it is answered with what is held
	}{
		"a delta of another digest":        {delta("b", 4, 5, digest("k", "2", "l", "4"), item("l", "3", 5)), wire.WantSnapshot},
		"a delta that lacks a change":      {delta("b", 4, 6, digest("l", "3"), item("l", "3", 5)), wire.WantSnapshot},
		"a snapshot of another digest":     {chunk("b", 5, digest("k", "3"), item("k", "4", 5)), wire.WantSnapshot},
		"a snapshot with an item twice":    {chunk("b", 5, digest("k", "3"), item("k", "3", 5), item("k", "3", 5)), wire.WantSnapshot},
		"a delta of the life before":       {delta("a", 3, 9, digest("k", "9"), item("k", "9", 9)), wire.WantRetired},
		"a snapshot of the life before":    {chunk("a", 9, digest("k", "9"), item("k", "9", 9)), wire.WantRetired},
		"an old delta":                     {delta("b", 3, 4, digest("k", "5"), item("k", "5", 4)), ""},
		"an old snapshot":                  {chunk("b", 4, digest("k", "5"), item("k", "5", 4)), ""},
		"a delta with something left out":  {delta("b", 6, 7, digest("k", "7"), item("k", "7", 7)), wire.WantGap},
		"a delta of a life nobody told of": {delta("c", 4, 7, digest("k", "7"), item("k", "7", 7)), wire.WantSnapshot},
	} {
		out := r.Apply(x.m)
		if out.Complete || out.Refused == "" || r.State() != was || len(out.Changed)+len(out.Deleted) > 0 {
			t.Errorf("%s is taken: %+v, now %+v", what, out, r.State())
		}
		var want wire.SetWantReason
		for _, m := range out.Reply {
			if w, ok := m.(*wire.SetWant); ok {
				want = w.Reason
			}
		}
		if want != x.want {
			t.Errorf("%s: it asks for %q, not %q", what, want, x.want)
		}
	}
	if v, _, _ := r.Get("k"); string(v) != "2" {
		t.Errorf("it holds %q", v)
	}
}
