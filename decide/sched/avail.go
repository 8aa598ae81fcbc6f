package sched

import (
	"slices"

	"skerry.dev/skerry/spec"
)

// amounts hold what is left of each resource on each worker, a column for each resource: a decision mostly looks at two of them.
type amounts [spec.NumResources][]int64

func makeAmounts(size int) (a amounts) {
	for i := range a {
		a[i] = make([]int64, size)
	}
	return a
}

// grow adds a slot.
func (a *amounts) grow() {
	for i := range a {
		a[i] = append(a[i], 0)
	}
}

func (a *amounts) of(n int) (v spec.ResourceVector) {
	for i := range a {
		v[i] = a[i][n]
	}
	return v
}

func (a *amounts) set(n int, v spec.ResourceVector) {
	for i := range a {
		a[i][n] = v[i]
	}
}

func (a *amounts) clone() (out amounts) {
	for i := range a {
		out[i] = slices.Clone(a[i])
	}
	return out
}

// setLeft changes what is left on a worker, and keeps the summaries above it exact. Only one that had the most or the least of
// something has its block looked through anew; others at most widen what the summaries say.
func (s *Site) setLeft(n int, left spec.ResourceVector) {
	was, block := s.avail.of(n), n/64
	s.avail.set(n, left)
	if s.stale[block/superBlocks]>>(block%superBlocks)&1 != 0 {
		return // it will be
	}
	per := [2]float32{s.perUnit[0][n], s.perUnit[1][n]}
	sum := &s.blocks[block]
	if !sum.shift(was, left, per) || sum.open > 0 && !s.supers[block/superBlocks].shift(was, left, per) {
		s.touch(n)
		return
	}
	s.setLevel(block, n%64, meanFree(s, n))
}

// shift widens a summary by what is left on a worker under it. It gives false where that may have been what bounded it.
func (sum *summary) shift(was, left spec.ResourceVector, per [2]float32) bool {
	for i, v := range left {
		if was[i] == v {
			continue
		}
		if v < was[i] && was[i] == sum.most[i] || v > was[i] && was[i] == sum.least[i] {
			return false
		}
		sum.most[i], sum.least[i] = max(sum.most[i], v), min(sum.least[i], v)
	}
	for i, p := range per {
		before, free := float32(was[i])*p, float32(left[i])*p
		if free < before && before == sum.mostFree[i] || free > before && before == sum.leastFree[i] {
			return false
		}
		sum.leastFree[i], sum.mostFree[i] = min(sum.leastFree[i], free), max(sum.mostFree[i], free)
	}
	return true
}
