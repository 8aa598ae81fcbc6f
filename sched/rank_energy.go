package sched

// LeastPower prefers the worker whose draw grows least: by the share of its busy draw that the CPU asked for stands for,
// and by its idle draw where nothing runs yet and it could sleep. Workers that do not tell what they draw come last.
type LeastPower struct{}

func (LeastPower) Name() string { return "energy" }

func (LeastPower) For(q *Query) Rank { return leastPower{newFit(q)} }

type leastPower struct{ fit }

// Watts gives what the placement adds, or a negative number where that is not known.
func (r leastPower) watts(n int) float64 {
	x := r.s.more[n]
	if x == nil || x.power == nil {
		return -1
	}
	add := max(0, x.power.Busy-x.power.Idle) * min(1, r.need[0]*float64(r.s.perUnit[0][n]))
	if !r.s.inUse(n) {
		add += max(0, x.power.Idle)
	}
	return add
}

func (r leastPower) Score(n int) float64 {
	w := r.watts(n)
	if w < 0 {
		return 0.01 * (1 - r.free(n))
	}
	return 0.01 + 0.99/(1+w/10)
}

func (r leastPower) Bound(*summary) float64 { return 1 }
