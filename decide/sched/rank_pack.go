package sched

import "math/bits"

// Pack fills as few workers as possible: first those in use, the fullest before the others; where another has to be
// opened, the one with the most room.
type Pack struct{}

func (Pack) Name() string { return "pack" }

func (Pack) For(q *Query) Rank { return pack{newFit(q)} }

type pack struct{ fit }

// Score is at least a half for workers in use.
func (r pack) Score(n int) float64 { return r.score(n, r.free(n)) }

func (r pack) score(n int, free float64) float64 {
	if r.s.inUse(n) {
		return 0.5 + 0.5*(1-free)
	}
	return 0.5 * free
}

func (r pack) Bound(sum *summary) float64 {
	if sum.leastFree[0] < 1-slack || sum.leastFree[1] < 1-slack {
		return 0.5 + 0.5*(1-r.leastFree(sum))
	}
	return 0.5 * r.mostFree(sum)
}

func (r pack) Scores(b int, mask uint64, out *[64]float64) {
	r.frees(b, mask, out)
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		out[i] = r.score(b*64+i, out[i])
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
		if per := s.perUnit[i][n]; per > 0 && float32(s.avail[i][n])*per < 1-2*slack {
			return true
		}
	}
	return false
}
