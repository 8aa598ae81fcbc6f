package sched

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// shadow is the site as its owner knows it.
type shadow map[string]*Worker

func (m shadow) names() []string { return slices.Sorted(maps.Keys(m)) }

// fresh builds the site anew, workers in another order.
func (m shadow) fresh(rng *rand.Rand) *Site {
	names := m.names()
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	s := NewSite()
	for _, n := range names {
		s.Set(m[n])
	}
	return s
}

// churn changes something of the site and of its shadow.
func churn(rng *rand.Rand, s *Site, m shadow, names []string) {
	name := nameOf(rng.IntN(len(names) + 2))
	w := m[name]
	if w == nil {
		w = randomWorker(rng, name)
		m[name] = w
		s.Set(w)
		return
	}
	switch rng.IntN(5) {
	case 0:
		own := *w
		own.Available.CPU, own.Available.Memory = skerry.MilliCPU(rng.Int64N(int64(w.Capacity.CPU)+1)), skerry.Bytes(rng.Int64N(int64(w.Capacity.Memory)+1))
		m[name] = &own
		s.SetAvailable(name, own.Available)
	case 1:
		own := *w
		own.Coordinate, own.Reported = randomCoordinate(rng), epoch.Add(-time.Duration(rng.IntN(200))*time.Second)
		m[name] = &own
		s.SetReport(name, own.Coordinate, own.Reported)
	case 2:
		delete(m, name)
		s.Remove(name)
	case 3:
		w = randomWorker(rng, name)
		m[name] = w
		s.Set(w)
	case 4:
		own := *w
		own.Load = spec.Contention{Intensity: spec.Shares{Disk: rng.Float64()}}
		m[name] = &own
		s.SetLoad(name, own.Load)
	}
}

// same compares the decision by the index with that by a scan, and both with that of a site in which the workers came in
// another order.
func same(t *testing.T, s, other *Site, p Policy, r *Request, seed uint64, keep int) {
	t.Helper()
	index, scan := s.place(epoch, p, r, seed, keep, true), s.place(epoch, p, r, seed, keep, false)
	if !reflect.DeepEqual(index, scan) {
		show(t, p, r, "index", index, "scan", scan)
	}
	if other == nil {
		return
	}
	if again := other.place(epoch, p, r, seed, keep, true); !reflect.DeepEqual(index, again) {
		show(t, p, r, "index", index, "another order", again)
	}
}

func show(t *testing.T, p Policy, r *Request, list ...any) {
	t.Helper()
	spec, _ := json.Marshal(r.Spec)
	text := ""
	for i := 0; i < len(list); i += 2 {
		d, _ := json.Marshal(list[i+1])
		text += "\n" + list[i].(string) + ": " + string(d)
	}
	t.Fatalf("%s: %s%s", p.Name, spec, text)
}

func TestIndexGivesTheScansAnswer(t *testing.T) {
	for _, c := range []struct{ workers, rounds int }{{1, 40}, {2, 40}, {63, 40}, {64, 40}, {65, 40}, {300, 40}, {5000, 6}} {
		rng := rand.New(rand.NewPCG(uint64(c.workers), 7))
		s, m := NewSite(), shadow{}
		for i := range c.workers {
			w := randomWorker(rng, nameOf(i))
			m[w.Name] = w
			s.Set(w)
		}
		for range c.rounds {
			names := m.names()
			for range min(len(names), 50) {
				churn(rng, s, m, names)
			}
			names = m.names()
			other := m.fresh(rng)
			for range 4 {
				r, seed, keep := randomRequest(rng, names), rng.Uint64(), pick(rng, 1, 1, 16)
				for _, p := range policiesByName() {
					same(t, s, other, p, r, seed, keep)
				}
			}
			if rng.IntN(3) == 0 {
				s.sort()
			}
			if rng.IntN(3) == 0 {
				s = s.Clone()
			}
		}
	}
}

// No score is above the bound of its block or of the blocks above, and none that is kept lies outside its levels.
func TestBoundsHold(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for round := range 60 {
		m := shadow{}
		n := 1 + rng.IntN(300)
		for i := range n {
			m[nameOf(i)] = randomWorker(rng, nameOf(i))
		}
		s := m.fresh(rng)
		s.refresh()
		r := randomRequest(rng, m.names())
		for _, p := range policiesByName() {
			q := s.query(epoch, p, r)
			s.each(-1, func(n int) {
				score := q.rank.Score(n)
				if !(score >= 0 && score <= 1) {
					t.Fatalf("round %d: %s scores %v", round, p.Name, score)
				}
				for _, sum := range []*summary{&s.blocks[n/64], &s.supers[n/64/superBlocks]} {
					if sum.open == 0 {
						continue
					}
					if b := q.rank.Bound(sum); score > b {
						t.Fatalf("round %d: %s scores %v above its bound %v", round, p.Name, score, b)
					}
				}
				if q.blocks == nil || q.firstFailing(n) != nil {
					return
				}
				var scores [64]float64
				q.blocks.Scores(n/64, 1<<(n%64), &scores)
				if scores[n%64] != score {
					t.Fatalf("%s scores %v alone and %v in its block", p.Name, score, scores[n%64])
				}
				sum := &s.blocks[n/64]
				for _, worst := range []float64{score, score / 2, 0} {
					least, most := q.blocks.Levels(sum, worst)
					if q.room != nil {
						least = max(least, q.room.leastLevel(sum))
					}
					if s.withinLevels(n/64, least, most)>>(n%64)&1 == 0 {
						t.Fatalf("round %d: %s scores %v, and its level is passed over for %v", round, p.Name, score, worst)
					}
				}
			})
		}
	}
}

func TestLevelsAreARange(t *testing.T) {
	s := &Site{levels: make([][8]uint64, 1)}
	for i := range 64 {
		s.setLevel(0, i, float64(i)/63)
	}
	for lo := range 65 {
		for hi := range 65 {
			least, most := float64(lo)/64, float64(hi)/64
			mask := s.withinLevels(0, least, most)
			for i := range 64 {
				free, in := float64(i)/63, mask>>i&1 == 1
				if must := free >= least && free <= most; must && !in {
					t.Fatalf("%v is missing from %v to %v", free, least, most)
				}
				if far := free < least-3.0/topLevel || free > most+3.0/topLevel; far && in {
					t.Fatalf("%v is taken for %v to %v", free, least, most)
				}
			}
		}
	}
}

// program runs operations read from bytes, and compares index and scan after each few.
func program(t *testing.T, code []byte) {
	s, m := NewSite(), shadow{}
	policies := policiesByName()
	for i := 0; i+1 < len(code) && i < 512; i += 2 {
		op, arg := code[i], code[i+1]
		rng := rand.New(rand.NewPCG(uint64(op), uint64(arg)))
		names := m.names()
		switch {
		case op < 100: // some workers come
			for range int(op)%16 + 1 {
				w := randomWorker(rng, nameOf(rng.IntN(300)))
				m[w.Name] = w
				s.Set(w)
			}
		case op < 180 && len(names) > 0:
			churn(rng, s, m, names)
		case op < 190:
			s.sort()
		default:
			same(t, s, nil, policies[int(arg)%len(policies)], randomRequest(rng, names), uint64(arg), 1+int(op)%3)
		}
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(code))))
	r := randomRequest(rng, m.names())
	for _, p := range policies {
		same(t, s, m.fresh(rng), p, r, 1, 1)
	}
	if s.Len() != len(m) {
		t.Fatalf("%d workers, %d were set", s.Len(), len(m))
	}
	checkNames(t, s)
}

// checkNames walks the table of names: every worker stands in it once, and nobody else.
func checkNames(t *testing.T, s *Site) {
	t.Helper()
	found := 0
	for hash, n := range s.slots {
		for ; n >= 0; n = s.next[n] {
			if found++; found > s.count {
				t.Fatal("the table of names runs in a circle")
			}
			if s.hash[n] != hash || hashOf(s.names[n]) != hash || s.live[n/64]>>(n%64)&1 == 0 {
				t.Fatalf("slot %d, %q, stands under the wrong hash", n, s.names[n])
			}
		}
	}
	if found != s.count {
		t.Fatalf("%d names are found of %d", found, s.count)
	}
}

func FuzzSite(f *testing.F) {
	f.Add([]byte{1, 1, 200, 1})
	f.Add([]byte{99, 1, 99, 2, 99, 3, 99, 4, 99, 5, 99, 6, 185, 0, 200, 2, 101, 3, 102, 4, 200, 5, 210, 6})
	f.Fuzz(program)
}

// Names with the same hash are told apart, whichever of them goes first.
func TestNamesWithTheSameHash(t *testing.T) {
	seen, pairs := map[uint32]string{}, [][2]string{}
	for i := 0; len(pairs) < 3; i++ {
		name := nameOf(i)
		if other, ok := seen[hashOf(name)]; ok {
			pairs = append(pairs, [2]string{other, name})
		}
		seen[hashOf(name)] = name
	}
	for _, pair := range pairs {
		for _, gone := range []int{0, 1} {
			s := NewSite()
			s.Set(worker(pair[0], 1000, skerry.GiB))
			s.Set(worker(pair[1], 2000, skerry.GiB))
			s.Set(worker(pair[0], 3000, skerry.GiB)) // again, not a third one
			s.sort()
			s.Remove(pair[gone])
			checkNames(t, s)
			s.Remove(pair[gone])
			left := pair[1-gone]
			if s.Len() != 1 || s.find(pair[gone]) >= 0 || s.names[s.find(left)] != left {
				t.Fatalf("%v without %s: %v", pair, pair[gone], s.names)
			}
			if got, ok := s.Available(left); !ok || got.CPU != map[int]skerry.MilliCPU{0: 2000, 1: 3000}[gone] {
				t.Errorf("%s has %v", left, got)
			}
			s.Remove(left)
			s.Set(worker(pair[gone], 1, 1))
			if s.Len() != 1 || s.find(left) >= 0 || s.find(pair[gone]) < 0 {
				t.Error("slots are not used anew")
			}
			s.Set(worker(left, 1, 1))
			s.Remove(pair[gone])
			checkNames(t, s)
		}
	}
}
