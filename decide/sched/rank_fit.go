package sched

import "math/bits"

// BestFit prefers the worker that is fullest after the placement, so that large holes stay for large services. The score
// is the mean share in use over CPU and memory after placing.
type BestFit struct{}

func (BestFit) Name() string { return "best-fit" }

func (BestFit) For(q *Query) Rank { return bestFit{newFit(q)} }

// WorstFit prefers the worker that is emptiest after the placement.
type WorstFit struct{}

func (WorstFit) Name() string { return "worst-fit" }

func (WorstFit) For(q *Query) Rank { return worstFit{newFit(q)} }

// FirstFit prefers nobody; its policy breaks ties by name.
type FirstFit struct{}

func (FirstFit) Name() string { return "first-fit" }

func (FirstFit) For(*Query) Rank { return firstFit{} }

type firstFit struct{}

func (firstFit) Score(int) float64      { return 1 }
func (firstFit) Bound(*summary) float64 { return 1 }

// fit works out how full a worker is after the placement.
type fit struct {
	s    *Site
	need [2]float64
}

func newFit(q *Query) fit {
	v := q.Need.Vector()
	return fit{q.Site, [2]float64{float64(v[0]), float64(v[1])}}
}

// free is the mean share of CPU and memory that a worker has left after the placement; resources of which it has none
// do not count.
func (f *fit) free(n int) float64 {
	if a, b := float64(f.s.perUnit[0][n]), float64(f.s.perUnit[1][n]); a > 0 && b > 0 {
		return clamp(((float64(f.s.avail[0][n])-f.need[0])*a + (float64(f.s.avail[1][n])-f.need[1])*b) / 2)
	}
	sum, parts := 0.0, 0.0
	for i := range f.need {
		if per := float64(f.s.perUnit[i][n]); per > 0 {
			sum += (float64(f.s.avail[i][n]) - f.need[i]) * per
			parts++
		}
	}
	if parts == 0 {
		return 1
	}
	return clamp(sum / parts)
}

func clamp(x float64) float64 { return max(0, min(1, x)) }

// slack makes up for the rounding between the summaries' float32 and the scores.
const slack = 1e-5

// leastFree and mostFree bound free under a summary. Where somebody lacks a resource altogether they say nothing.
func (f *fit) leastFree(sum *summary) float64 {
	if sum.leastPer[0] == 0 || sum.leastPer[1] == 0 {
		return 0
	}
	a := float64(sum.leastFree[0]) - f.need[0]*float64(sum.mostPer[0])
	b := float64(sum.leastFree[1]) - f.need[1]*float64(sum.mostPer[1])
	return clamp((a+b)/2 - slack)
}

func (f *fit) mostFree(sum *summary) float64 {
	if sum.leastPer[0] == 0 || sum.leastPer[1] == 0 {
		return 1
	}
	a := float64(sum.mostFree[0]) - f.need[0]*float64(sum.leastPer[0])
	b := float64(sum.mostFree[1]) - f.need[1]*float64(sum.leastPer[1])
	return clamp((a+b)/2 + slack)
}

// eachScore scores the workers of a block one by one.
func eachScore(r Rank, b int, mask uint64, out *[64]float64) {
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		out[i] = r.Score(b*64 + i)
	}
}

// frees works out free for the workers of a block.
func (f *fit) frees(b int, mask uint64, out *[64]float64) {
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		out[i] = f.free(b*64 + i)
	}
}

type bestFit struct{ fit }

func (r bestFit) Score(n int) float64        { return 1 - r.free(n) }
func (r bestFit) Bound(sum *summary) float64 { return 1 - r.leastFree(sum) }

func (r bestFit) Scores(b int, mask uint64, out *[64]float64) {
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		out[i] = r.Score(b*64 + i)
	}
}

func (r bestFit) Levels(sum *summary, worst float64) (least, most float64) {
	return r.fuller(sum, 1-worst)
}

type worstFit struct{ fit }

func (r worstFit) Score(n int) float64        { return r.free(n) }
func (r worstFit) Bound(sum *summary) float64 { return r.mostFree(sum) }

func (r worstFit) Scores(b int, mask uint64, out *[64]float64) { r.frees(b, mask, out) }

func (r worstFit) Levels(sum *summary, worst float64) (least, most float64) {
	return r.emptier(sum, worst)
}
