package sched

import "math/bits"

// Pack fills as few workers as possible: first those in use, the fullest before the others.
type Pack struct{}

func (Pack) Name() string { return "pack" }

func (Pack) For(q *Query) Rank { return pack{newFit(q)} }

type pack struct{ fit }

// Score is above a half for workers in use.
func (r pack) Score(n int) float64 {
	score := 0.5 * (1 - r.free(n))
	if r.s.inUse(n) {
		score += 0.5
	}
	return score
}

func (r pack) Bound(sum *summary) float64 {
	bound := 0.5 * (1 - r.leastFree(sum))
	if sum.leastFree[0] < 1-slack || sum.leastFree[1] < 1-slack {
		bound += 0.5
	}
	return bound
}

func (r pack) Scores(b int, mask uint64, out *[64]float64) {
	r.frees(b, mask, out)
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		score := 0.5 * (1 - out[i])
		if r.s.inUse(b*64 + i) {
			score += 0.5
		}
		out[i] = score
	}
}

func (r pack) Levels(sum *summary, worst float64) (least, most float64) {
	if worst <= 0.5 {
		return everyLevel()
	}
	return r.fuller(sum, 2*(1-worst))
}

// inUse reports whether something is reserved on a worker.
func (s *Site) inUse(n int) bool {
	for i := range s.perUnit {
		if per := s.perUnit[i][n]; per > 0 && float32(s.avail[n][i])*per < 1-2*slack {
			return true
		}
	}
	return false
}
