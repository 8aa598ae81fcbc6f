package overlay

import (
	"cmp"
	"math"
	"slices"

	"skerry.dev/skerry/spec"
)

// Candidate is an instance that a service address might lead to, as its worker sees it.
type Candidate struct {
	Backend
	Ordinal int
	Millis  float64 // round trip to it, 0 for one of this worker; NaN: not known
	Km      float64 // along the great circle; NaN: not known
	Load    float64 // share of its processors that it uses, 0 to 1
	// Draining: it keeps its flows and gets no new ones, unless all others are gone.
	Draining bool
}

const (
	// near is how much longer than the shortest a round trip may be, in milliseconds or as a part of it, whichever is more,
	// for both to count as the closest: coordinates err by as much, and one instance alone should not take what two could.
	nearMillis = 0.5
	nearPart   = 0.1
	// leastShare is what an instance gets of new flows that is as busy as can be, beside one that is idle: some, or nobody
	// would find out that it has recovered.
	leastShare = 1.0 / 16
)

// Slots gives what a service address of a policy leads to: new flows take the slots in turn. Ordinal counts for the
// policy instance alone. The result depends on the candidates, not on their order.
func Slots(policy spec.Balance, ordinal int, list []Candidate) []Backend {
	list = slices.Clone(list)
	if policy == spec.BalanceInstance {
		list = slices.DeleteFunc(list, func(c Candidate) bool { return c.Ordinal != ordinal })
	}
	if fresh := slices.DeleteFunc(slices.Clone(list), func(c Candidate) bool { return c.Draining }); len(fresh) > 0 {
		list = fresh
	}
	slices.SortFunc(list, func(a, b Candidate) int { return a.Addr.Compare(b.Addr) })
	if len(list) == 0 {
		return nil
	}
	if policy == spec.BalanceClosest {
		list = closest(list)
	}
	if len(list) > MaxSlots {
		list = list[:MaxSlots]
	}
	if policy == spec.BalanceLeastLoaded {
		return weighted(list)
	}
	out := make([]Backend, len(list))
	for i, c := range list {
		out[i] = c.Backend
	}
	return out
}

// closest leaves the nearest: by measured round trip where that is known of any, else by place, else all.
func closest(list []Candidate) []Candidate {
	by := func(of func(Candidate) float64, slack func(least float64) float64) []Candidate {
		least := math.Inf(1)
		for _, c := range list {
			if v := of(c); v < least { // never true of NaN
				least = v
			}
		}
		if math.IsInf(least, 1) {
			return nil
		}
		return slices.DeleteFunc(slices.Clone(list), func(c Candidate) bool { return !(of(c) <= slack(least)) })
	}
	if near := by(func(c Candidate) float64 { return c.Millis }, func(l float64) float64 {
		if l == 0 {
			return 0 // one of this worker is nearer than all others
		}
		return l + max(nearMillis, l*nearPart)
	}); near != nil {
		return near
	}
	if near := by(func(c Candidate) float64 { return c.Km }, func(l float64) float64 { return l + max(1, l*nearPart) }); near != nil {
		return near
	}
	return list
}

// weighted gives each instance slots in proportion to what is left of it, at least one, interleaved so that none gets many
// in a row (smooth weighted round-robin, as in nginx).
func weighted(list []Candidate) []Backend {
	most, weights := 0.0, make([]float64, len(list))
	for i, c := range list {
		weights[i] = max(1-min(max(c.Load, 0), 1), leastShare)
		most = max(most, weights[i])
	}
	// In sixteenths of the idlest, and fewer where there would be more slots than there may be.
	steps := min(1/leastShare, float64(MaxSlots)/float64(len(list)))
	slots, total := make([]int, len(list)), 0
	for i, w := range weights {
		slots[i] = max(1, int(math.Round(w/most*steps)))
		total += slots[i]
	}
	total = min(total, MaxSlots)
	out, credit := make([]Backend, 0, total), make([]int, len(list))
	for range total {
		sum, next := 0, 0
		for i := range list {
			credit[i] += slots[i]
			sum += slots[i]
		}
		for i := range list {
			if cmp.Compare(credit[i], credit[next]) > 0 {
				next = i
			}
		}
		credit[next] -= sum
		out = append(out, list[next].Backend)
	}
	return out
}
