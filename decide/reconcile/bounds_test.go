package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// grower sends a replica changes that its digests agree with, as a peer may that wants to fill the memory of the other side.
type grower struct {
	r     *Replica
	inc   skerry.Incarnation
	gen   skerry.Generation
	items map[string][]byte
}

// delta adds an item, and reports whether it was taken.
func (g *grower) delta(key string, value []byte) bool {
	g.items[key] = value
	m := &wire.SetDelta{Set: "s", Incarnation: g.inc, Base: g.gen, Gen: g.gen + 1, Digest: DigestOf(g.items),
		Items: []wire.SetItem{{Key: key, Value: value, Gen: g.gen + 1}}}
	if out := g.r.Apply(m); !out.Complete {
		delete(g.items, key)
		return false
	}
	g.gen++
	return true
}

// begin begins another life of the set, with one item.
func (g *grower) begin(inc string, key string, value []byte) bool {
	g.inc, g.gen, g.items = skerry.Incarnation(inc), 1, map[string][]byte{key: value}
	out := g.r.Apply(&wire.SetChunk{Set: "s", Incarnation: g.inc, Gen: 1, Digest: DigestOf(g.items), Last: true,
		Items: []wire.SetItem{{Key: key, Value: value, Gen: 1}}})
	return out.Complete
}

// A peer cannot have more kept than Options.MaxSet, however it comes: in one transfer, change by change, or as what each of many lives of
// its set leaves behind. What it takes away makes room.
func TestReplicaIsBounded(t *testing.T) {
	const most = 1 << 20
	held := func(r *Replica) (n int) {
		for key, value := range r.All() {
			n += len(key) + len(value)
		}
		return n
	}
	value := []byte(strings.Repeat("x", 100<<10))
	g := &grower{r: NewReplica("s", "p/", Options{MaxSet: most})}
	g.begin("a", "first", value)
	for n := range 40 {
		g.delta(fmt.Sprint("delta", n), value)
	}
	if n := held(g.r); n > most || n < most/2 {
		t.Errorf("change by change %d bytes are kept, at most %d are allowed", n, most)
	}
	delete(g.items, "first")
	if out := g.r.Apply(&wire.SetDelta{Set: "s", Incarnation: g.inc, Base: g.gen, Gen: g.gen + 1, Digest: DigestOf(g.items),
		Items: []wire.SetItem{{Key: "first", Gen: g.gen + 1, Deleted: true}}}); !out.Complete {
		t.Fatalf("an item is not taken away: %+v", out)
	}
	if g.gen++; !g.delta("second", value) {
		t.Error("what was taken away makes no room")
	}
	const few = most / 4
	small := &grower{r: NewReplica("s", "p/", Options{MaxSet: few})}
	small.begin("a", "first", nil)
	for n := range 4_000 {
		if !small.delta(fmt.Sprint(n), nil) {
			break
		}
	}
	if n := small.r.Len(); n > few/keptBeside {
		t.Errorf("%d items without a value are kept, of which each takes %d bytes of memory and more", n, keptBeside)
	}
	lives := &grower{r: NewReplica("s", "p/", Options{MaxSet: most})}
	for n := range 40 {
		lives.begin(fmt.Sprint("life", n), fmt.Sprint("life", n), value)
	}
	if n := held(lives.r); n > most {
		t.Errorf("of many lives %d bytes are kept, at most %d are allowed", n, most)
	}
	for _, r := range []*Replica{g.r, small.r, lives.r} {
		if want := held(r) + keptBeside*(r.Len()+r.Orphans()); r.size != want {
			t.Errorf("it counts %d bytes, and has %d", r.size, want)
		}
	}
}

// Nor can a peer fill the memory of a source with what it says that it keeps.
func TestHeldItemsAreBounded(t *testing.T) {
	const most = 1 << 20
	s := NewSource("s", "p/", "a", Options{MaxSet: most})
	s.Connect(time.Unix(0, 0), wire.SetAck{Set: "s"})
	largest := 0
	for n := range 100 {
		s.Handle(time.Unix(0, 0), &wire.SetHeld{Set: "s", Index: uint32(n), Items: make([]wire.HeldItem, 1000)})
		if h := s.peer.heldPart; h != nil {
			largest = max(largest, len(h.items))
		}
	}
	if largest > most/keptBeside {
		t.Errorf("%d items of no length are kept while a list is not complete, want at most %d", largest, most/keptBeside)
	}
}

// The names of lives and streams are short.
func TestLongNamesOfLives(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	r := NewReplica("s", "p/", Options{})
	if out := r.Apply(&wire.SetChunk{Set: "s", Incarnation: skerry.Incarnation(long), Gen: 1, Last: true}); out.Complete || len(r.inc) > 0 {
		t.Errorf("a life whose name has %d bytes is taken: %+v", len(long), out.Complete)
	}
	i := NewInbox("p/")
	if _, _, reply := i.Accept(&wire.Events{Stream: long, First: 1, Floor: 1, Items: [][]byte{{1}}}); reply != nil || len(i.Flush()) > 0 {
		t.Errorf("a stream whose name has %d bytes is taken, and written with each of its events", len(long))
	}
}
