package sched

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

// inUse reports whether something is reserved on a worker.
func (s *Site) inUse(n int) bool {
	return float32(s.avail[n][0])*s.perUnit[0][n] < 1-2*slack || float32(s.avail[n][1])*s.perUnit[1][n] < 1-2*slack
}
