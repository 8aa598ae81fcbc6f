package network

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// yard is a site whose workers can be reached at the addresses; "" stands for one that cannot.
type yard struct {
	at   map[string]string
	told map[string]*wire.Peers
	deaf map[string]bool // cannot be told anything
}

func (y *yard) Reachable() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, at := range y.at {
			if at != "" && !yield(name, at) {
				return
			}
		}
	}
}

func (y *yard) Measuring() iter.Seq[string] { return maps.Keys(y.at) }

func (y *yard) Tell(name string, p *wire.Peers) bool {
	if !y.deaf[name] {
		y.told[name] = p
	}
	return !y.deaf[name]
}

// TestPeersOfFew: whoever can measure is told of those that can be reached, once for each change, under a key that changes when one leaves.
func TestPeersOfFew(t *testing.T) {
	y := &yard{at: map[string]string{"nat": ""}, told: map[string]*wire.Peers{}, deaf: map[string]bool{}}
	p := NewPeers(y, []byte{1})
	now := time.Unix(1e9, 0)
	review := func(want int) (record []byte) {
		t.Helper()
		clear(y.told)
		p.Touch(now)
		if record = p.Review(now); record != nil || len(y.told) > 0 {
			t.Error("reviewed before it was time")
		}
		now = now.Add(ReviewLater)
		if record = p.Review(now); len(y.told) != want {
			t.Errorf("%d were told, want %d: %v", len(y.told), want, y.told)
		}
		if faults := p.Audit(func(name string) bool { _, known := y.at[name]; return known }); len(faults) > 0 {
			t.Error(faults)
		}
		return record
	}
	if review(0) != nil || !p.Due().IsZero() {
		t.Error("a site where nobody can be reached has a key, or waits for something")
	}
	y.at["a"], y.at["b"] = "192.0.2.1:1", "192.0.2.2:1"
	record := review(3)
	for name, want := range map[string][]string{"a": {"192.0.2.2:1"}, "b": {"192.0.2.1:1"}, "nat": {"192.0.2.1:1", "192.0.2.2:1"}} {
		if got := y.told[name]; got == nil || !slices.Equal(got.List, want) || len(got.Key) != 32 {
			t.Errorf("%s was told %+v", name, got)
		}
	}
	key := p.Key
	if review(0) != nil || p.At("192.0.2.2:1") != "b" || p.At("192.0.2.3:1") != "" {
		t.Error("a review without a change writes a record, or a worker is not found by its address")
	}
	y.deaf["a"] = true
	y.at["b"] = "192.0.2.9:1"
	review(1) // and not b, whose own peers are the same
	delete(y.deaf, "a")
	review(1)
	p = NewPeers(y, []byte{1}) // another life
	if err := p.Load(record); err != nil {
		t.Fatal(err)
	}
	if review(3) != nil || !bytes.Equal(y.told["a"].Key, key) {
		t.Error("the key is not kept over a restart")
	}
	delete(y.at, "b")
	p.Remove(now, "b")
	if review(2) == nil || bytes.Equal(y.told["a"].Key, key) {
		t.Error("who was removed knows the key")
	}
	y.at["a"] = ""
	if review(2); y.told["a"] != nil || y.told["nat"] != nil {
		t.Errorf("there is nobody to measure to, and they have %v", y.told)
	}
}

// TestAuditOfPeers: what the ring and the lists should not hold is found.
func TestAuditOfPeers(t *testing.T) {
	for want, spoil := range map[string]func(p *Peers){
		"the ring is out of order":                   func(p *Peers) { slices.Reverse(p.ring) },
		"gone was told of peers":                     func(p *Peers) { p.given["gone"] = 1 },
		"workers have peers, and no key":             func(p *Peers) { p.Key = nil },
		"192.0.2.9:1 leads to gone, not on the ring": func(p *Peers) { p.at["192.0.2.9:1"] = "gone" },
	} {
		y := &yard{at: map[string]string{"a": "192.0.2.1:1", "b": "192.0.2.2:1"}, told: map[string]*wire.Peers{}}
		p := NewPeers(y, []byte{1})
		p.Touch(time.Unix(0, 1))
		p.Review(time.Unix(60, 0))
		known := func(name string) bool { return y.at[name] != "" }
		if faults := p.Audit(known); len(faults) > 0 {
			t.Fatal(faults)
		}
		if spoil(p); !slices.Contains(p.Audit(known), want) {
			t.Errorf("%v, want %q among them", p.Audit(known), want)
		}
	}
}

func TestPeersOfMany(t *testing.T) {
	ring := func(n int) *Peers {
		p := &Peers{}
		for i := range n {
			name := fmt.Sprint("worker-", i)
			p.ring = append(p.ring, spot{hash: Spot(name), name: name, addr: fmt.Sprintf("10.0.%d.%d:7000", i/250, i%250+1)})
		}
		slices.SortFunc(p.ring, func(a, b spot) int {
			if a.hash < b.hash {
				return -1
			}
			return 1
		})
		return p
	}
	const n = 1000
	now := time.Unix(1e9, 0)
	many := ring(n)
	asked := map[string]int{}
	for i := range n {
		list := many.of(fmt.Sprint("worker-", i), now)
		if len(slices.Compact(slices.Clone(list))) != PeersEach || slices.Contains(list, fmt.Sprintf("10.0.%d.%d:7000", i/250, i%250+1)) {
			t.Fatalf("worker %d: %v", i, list)
		}
		for _, a := range list {
			asked[a]++
		}
	}
	most := 0
	for _, k := range asked {
		most = max(most, k)
	}
	if most > 12*PeersEach {
		t.Errorf("one worker is asked by %d", most)
	}
	// One more changes the peers of few.
	more, changed := ring(n+1), 0
	for i := range n {
		if name := fmt.Sprint("worker-", i); !slices.Equal(many.of(name, now), more.of(name, now)) {
			changed++
		}
	}
	if changed > n/10 {
		t.Errorf("one more worker changes the peers of %d of %d", changed, n)
	}
	// Peers turn over slowly, and half of them not at all.
	differ := func(a, b []string) (k int) {
		for _, x := range a {
			if !slices.Contains(b, x) {
				k++
			}
		}
		return k
	}
	first := many.of("worker-7", now)
	for m := range 12 {
		a, b := many.of("worker-7", now.Add(time.Duration(m)*rotateEvery)), many.of("worker-7", now.Add(time.Duration(m+1)*rotateEvery))
		if k := differ(a, b); k > 2 {
			t.Errorf("%d peers are replaced at once", k)
		}
		if k := differ(first, b); k > PeersEach-peersStable {
			t.Errorf("%d peers are replaced after %d turns", k, m+1)
		}
	}
	if k := differ(first, many.of("worker-7", now.Add(12*rotateEvery))); k < 3 {
		t.Errorf("only %d peers were replaced in two hours", k)
	}
}
