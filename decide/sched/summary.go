package sched

import (
	"math"
	"math/bits"

	"skerry.dev/skerry/spec"
)

// summary tells what the workers under it have at most and at least. Those that take nothing new count too, because the
// rules are asked of them as well: whether what runs there is still well placed, and why nobody fits.
type summary struct {
	open       int32  // how many take new work
	kinds      uint64 // bit k: somebody is of kind k; bit 63 stands for all kinds from 63 on
	most       spec.ResourceVector
	least      spec.ResourceVector
	leastFree  [2]float32 // share of CPU and memory that is free
	mostFree   [2]float32
	mostPer    [2]float32 // largest 1/capacity
	leastPer   [2]float32
	atLo, atHi [3]float32 // box on the unit sphere of those whose place is known
	netLo      [3]float32 // box of those whose coordinate is known
	netHi      [3]float32
	height     float32 // smallest known
	leastDraw  float32 // smallest known difference between busy and idle, in watts
}

// inf32 is beyond every number that a summary holds.
const inf32 = math.MaxFloat32

// emptySummary is the neutral element of join.
var emptySummary = summary{
	most: filled(math.MinInt64), least: filled(math.MaxInt64),
	leastFree: [2]float32{inf32, inf32}, mostFree: [2]float32{-inf32, -inf32}, mostPer: [2]float32{}, leastPer: [2]float32{inf32, inf32},
	atLo: [3]float32{inf32, inf32, inf32}, atHi: [3]float32{-inf32, -inf32, -inf32},
	netLo: [3]float32{inf32, inf32, inf32}, netHi: [3]float32{-inf32, -inf32, -inf32}, height: inf32, leastDraw: inf32,
}

func filled(v int64) (out spec.ResourceVector) {
	for i := range out {
		out[i] = v
	}
	return out
}

func kindBit(id int32) uint64 { return 1 << min(id, 63) }

// summarise works out the summary of a block.
func (s *Site) summarise(b int) {
	sum := &s.blocks[b]
	*sum = emptySummary
	sum.open = int32(bits.OnesCount64(s.open[b] & s.live[b]))
	for mask := s.live[b]; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		n := b*64 + i
		s.setLevel(b, i, meanFree(s, n))
		sum.kinds |= kindBit(s.kindOf[n])
		a := s.avail.of(n)
		for i, v := range a {
			sum.most[i], sum.least[i] = max(sum.most[i], v), min(sum.least[i], v)
		}
		for i := range s.perUnit {
			per := s.perUnit[i][n]
			free := float32(a[i]) * per
			sum.leastFree[i], sum.mostFree[i] = min(sum.leastFree[i], free), max(sum.mostFree[i], free)
			sum.mostPer[i], sum.leastPer[i] = max(sum.mostPer[i], per), min(sum.leastPer[i], per)
		}
		if p := s.at[n]; p != ([3]float32{}) {
			for i, v := range p {
				sum.atLo[i], sum.atHi[i] = min(sum.atLo[i], v), max(sum.atHi[i], v)
			}
		}
		if c := &s.net[n]; c[3] >= 0 {
			for i := range 3 {
				sum.netLo[i], sum.netHi[i] = min(sum.netLo[i], c[i]), max(sum.netHi[i], c[i])
			}
			sum.height = min(sum.height, c[3])
		}
		if x := s.more[n]; x != nil && x.power != nil {
			sum.leastDraw = min(sum.leastDraw, float32(draw(x.power)))
		}
	}
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

func (sum *summary) join(o *summary) {
	if o.open == 0 {
		return
	}
	sum.open += o.open
	sum.kinds |= o.kinds
	for i := range sum.most {
		sum.most[i], sum.least[i] = max(sum.most[i], o.most[i]), min(sum.least[i], o.least[i])
	}
	for i := range sum.leastFree {
		sum.leastFree[i], sum.mostFree[i] = min(sum.leastFree[i], o.leastFree[i]), max(sum.mostFree[i], o.mostFree[i])
		sum.mostPer[i], sum.leastPer[i] = max(sum.mostPer[i], o.mostPer[i]), min(sum.leastPer[i], o.leastPer[i])
	}
	for i := range sum.atLo {
		sum.atLo[i], sum.atHi[i] = min(sum.atLo[i], o.atLo[i]), max(sum.atHi[i], o.atHi[i])
		sum.netLo[i], sum.netHi[i] = min(sum.netLo[i], o.netLo[i]), max(sum.netHi[i], o.netHi[i])
	}
	sum.height = min(sum.height, o.height)
	sum.leastDraw = min(sum.leastDraw, o.leastDraw)
}

// boxDistance2 gives the square of the distance from a point to a box; 0 inside, infinite for an empty box.
func boxDistance2(p, lo, hi [3]float32) float64 {
	d2 := 0.0
	for i := range p {
		d := max(float64(lo[i])-float64(p[i]), float64(p[i])-float64(hi[i]), 0)
		d2 += d * d
	}
	return d2
}

func distance2(p, q [3]float32) float64 {
	d2 := 0.0
	for i := range p {
		d := float64(p[i]) - float64(q[i])
		d2 += d * d
	}
	return d2
}

// rtt estimates the round trip between two known coordinates, in milliseconds.
func rtt(p, q [4]float32) float64 {
	return math.Sqrt(distance2([3]float32(p[:3]), [3]float32(q[:3]))) + float64(p[3]) + float64(q[3])
}

// leastRTT gives the shortest round trip from a coordinate to anybody under the summary.
func (sum *summary) leastRTT(p [4]float32) float64 {
	// Added up in the order of rtt, so that rounding cannot make the bound exceed what it bounds.
	return math.Sqrt(boxDistance2([3]float32(p[:3]), sum.netLo, sum.netHi)) + float64(sum.height) + float64(p[3])
}
