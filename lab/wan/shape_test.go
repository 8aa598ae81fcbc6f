package wan

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

var (
	a, b = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	ab   = Pair{a, b}
	ba   = Pair{b, a}
)

func ids(vs []verdict) (out []uint32) {
	for _, v := range vs {
		out = append(out, v.id)
	}
	return out
}

func TestDelayOneWay(t *testing.T) {
	l := newLine(1)
	l.set(Shapes{ab: {Delay: 20 * time.Millisecond}})
	if v, done := l.arrive(0, 1, ba); !done || v.drop {
		t.Error("the way back is not shaped")
	}
	if _, done := l.arrive(0, 2, ab); done {
		t.Error("a packet did not wait")
	}
	if _, done := l.arrive(time.Millisecond, 3, ab); done {
		t.Error("a packet did not wait")
	}
	if due, ok := l.next(); !ok || due != 20*time.Millisecond {
		t.Error(due, ok)
	}
	if got := l.leave(20*time.Millisecond-1, 10, nil); len(got) != 0 {
		t.Error("too early", got)
	}
	if got := ids(l.leave(20*time.Millisecond, 10, nil)); !slices.Equal(got, []uint32{2}) {
		t.Error(got)
	}
	if got := ids(l.leave(time.Hour, 10, nil)); !slices.Equal(got, []uint32{3}) {
		t.Error(got)
	}
	if c := l.counters(); c != (Counters{Packets: 3}) {
		t.Error(c)
	}
}

func TestJitterKeepsOrder(t *testing.T) {
	l := newLine(2)
	l.set(Shapes{ab: {Delay: 5 * time.Millisecond, Jitter: 5 * time.Millisecond}})
	var out []verdict
	var want []uint32
	for i := range uint32(1000) {
		now := time.Duration(i) * 100 * time.Microsecond
		out = l.leave(now, 1000, out)
		want = append(want, i)
		if v, done := l.arrive(now, i, ab); done {
			out = append(out, v)
		}
	}
	out = l.leave(time.Hour, 1000, out)
	if !slices.Equal(ids(out), want) {
		t.Error("packets overtook each other")
	}
}

// Those that are overtaken come all the same, and nothing else waits for them.
func TestReorder(t *testing.T) {
	l := newLine(4)
	l.set(Shapes{ab: {Reorder: 0.2}})
	var out []verdict
	for i := range uint32(1000) {
		now := time.Duration(i) * time.Millisecond
		out = l.leave(now, 1000, out)
		if v, done := l.arrive(now, i, ab); done {
			out = append(out, v)
		}
	}
	out = l.leave(time.Hour, 1000, out)
	got, overtaken := ids(out), 0
	for i := range got[1:] {
		if got[i+1] < got[i] {
			overtaken++
		}
	}
	slices.Sort(got)
	if len(slices.Compact(got)) != 1000 || overtaken < 100 || overtaken > 300 {
		t.Errorf("%d of 1000 came, %d of them were overtaken", len(got), overtaken)
	}
}

func TestLoss(t *testing.T) {
	l := newLine(3)
	l.set(Shapes{ab: {Loss: 0.1}})
	lost := 0
	for i := range uint32(10000) {
		v, done := l.arrive(0, i, ab)
		if !done {
			t.Fatal("nothing waits without a delay")
		}
		if v.drop {
			lost++
		}
	}
	if lost < 800 || lost > 1200 || l.counters().Lost != uint64(lost) {
		t.Error(lost, l.counters())
	}
}

func TestFullLineDrops(t *testing.T) {
	l := newLine(4)
	l.max = 2
	l.set(Shapes{ab: {Delay: time.Second}})
	for i := range uint32(3) {
		v, done := l.arrive(0, i, ab)
		if done != (i == 2) || v.drop != (i == 2) {
			t.Error(i, v, done)
		}
	}
	if c := l.counters(); c.Dropped != 1 || c.Waiting != 2 {
		t.Error(c)
	}
}

func TestNewShapesKeepWhatWaits(t *testing.T) {
	l := newLine(5)
	l.set(Shapes{ab: {Delay: time.Second}})
	l.arrive(0, 1, ab)
	l.set(Shapes{ab: {Delay: time.Millisecond}})
	l.arrive(0, 2, ab) // may not overtake
	if got := ids(l.leave(time.Second, 10, nil)); !slices.Equal(got, []uint32{1, 2}) {
		t.Error(got)
	}
	l.set(nil)
	if _, done := l.arrive(0, 3, ab); !done {
		t.Error("shaped for no reason")
	}
}
