package overlay

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"skerry.dev/skerry/spec"
)

func at(n int) Backend { return Backend{Net: 7, Addr: netip.AddrFrom4([4]byte{10, 64, 0, byte(n)})} }

func counts(slots []Backend) map[Backend]int {
	out := map[Backend]int{}
	for _, s := range slots {
		out[s]++
	}
	return out
}

func TestSlots(t *testing.T) {
	nan := math.NaN()
	c := func(n int, millis, km, load float64) Candidate {
		return Candidate{Backend: at(n), Ordinal: n, Millis: millis, Km: km, Load: load}
	}
	draining := c(9, 1, 1, 0)
	draining.Draining = true
	for _, tt := range []struct {
		name    string
		policy  spec.Balance
		ordinal int
		list    []Candidate
		want    map[int]int
	}{
		{"nobody", spec.BalanceRoundRobin, 0, nil, nil},
		{"each in turn", spec.BalanceRoundRobin, 0, []Candidate{c(1, 5, 1, 0), c(2, 500, 1, 1)}, map[int]int{1: 1, 2: 1}},
		{"one instance", spec.BalanceInstance, 2, []Candidate{c(1, 5, 1, 0), c(2, 500, 1, 1)}, map[int]int{2: 1}},
		{"no such instance", spec.BalanceInstance, 5, []Candidate{c(1, 5, 1, 0)}, nil},
		{"nearest by round trip", spec.BalanceClosest, 0, []Candidate{c(1, 20, 1, 0), c(2, 5, 900, 1), c(3, nan, 0, 0)}, map[int]int{2: 1}},
		{"as good as nearest", spec.BalanceClosest, 0, []Candidate{c(1, 20, 1, 0), c(2, 21.5, 1, 0), c(3, 23, 1, 0)}, map[int]int{1: 1, 2: 1}},
		{"own before near", spec.BalanceClosest, 0, []Candidate{c(1, 0, 0, 0), c(2, 0.1, 0, 0)}, map[int]int{1: 1}},
		{"nearest by place", spec.BalanceClosest, 0, []Candidate{c(1, nan, 50, 0), c(2, nan, 400, 0)}, map[int]int{1: 1}},
		{"nothing known", spec.BalanceClosest, 0, []Candidate{c(1, nan, nan, 0), c(2, nan, nan, 0)}, map[int]int{1: 1, 2: 1}},
		{"draining ones get nothing new", spec.BalanceClosest, 0, []Candidate{draining, c(1, 50, 1, 0)}, map[int]int{1: 1}},
		{"but are better than nobody", spec.BalanceRoundRobin, 0, []Candidate{draining}, map[int]int{9: 1}},
		{"by load", spec.BalanceLeastLoaded, 0, []Candidate{c(1, 1, 1, 0), c(2, 1, 1, 0.5), c(3, 1, 1, 1)}, map[int]int{1: 16, 2: 8, 3: 1}},
		{"as busy as another", spec.BalanceLeastLoaded, 0, []Candidate{c(1, 1, 1, 0.9), c(2, 1, 1, 0.9)}, map[int]int{1: 16, 2: 16}},
	} {
		got := counts(Slots(tt.policy, tt.ordinal, tt.list))
		if len(got) != len(tt.want) {
			t.Errorf("%s: %v", tt.name, got)
		}
		for n, k := range tt.want {
			if got[at(n)] != k {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
	}
}

// Whatever the candidates: slots are few, everybody who may get something gets some, more of it with less load, and the
// order in which candidates were told makes no difference.
func TestSlotsProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var list []Candidate
		for i := range 1 + rng.IntN(90) {
			list = append(list, Candidate{Backend: at(i), Ordinal: i, Millis: rng.Float64() * 100, Km: rng.Float64() * 1000, Load: rng.Float64() * 1.2, Draining: rng.IntN(5) == 0})
		}
		fresh := slices.DeleteFunc(slices.Clone(list), func(c Candidate) bool { return c.Draining })
		for _, p := range spec.Balances() {
			slots := Slots(p, 0, list)
			rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			if again := Slots(p, 0, list); !slices.Equal(slots, again) {
				t.Fatalf("%s: the order of candidates makes a difference", p)
			}
			if len(slots) == 0 || len(slots) > MaxSlots {
				t.Fatalf("%s: %d slots", p, len(slots))
			}
			n := counts(slots)
			if p != spec.BalanceLeastLoaded || len(fresh) == 0 {
				continue
			}
			for _, a := range fresh {
				if len(fresh) <= MaxSlots && n[a.Backend] == 0 {
					t.Fatalf("%v gets nothing", a)
				}
				for _, b := range fresh {
					if len(fresh) <= MaxSlots/4 && a.Load < b.Load && n[a.Backend] < n[b.Backend] {
						t.Fatalf("%v gets %d, and %v, which is busier, %d", a, n[a.Backend], b, n[b.Backend])
					}
				}
			}
		}
	}
}
