package sched

import (
	"math"

	"skerry.dev/skerry/wire"
)

// LeastPower prefers the worker whose draw grows least: by the share of its busy draw that the CPU asked for stands for,
// and by its idle draw where nothing runs yet and it could sleep. Workers that do not tell what they draw come last.
type LeastPower struct{}

func (LeastPower) Name() string { return "energy" }

func (LeastPower) For(q *Query) Rank { return leastPower{newFit(q)} }

type leastPower struct{ fit }

// draw is what all cores add to doing nothing; numbers that cannot be count as nothing.
func draw(p *wire.Power) float64 {
	if d := p.Busy - p.Idle; d > 0 && d <= math.MaxFloat32 {
		return d
	}
	return 0
}

// watts gives what the placement adds, or a negative number where that is not known.
func (r leastPower) watts(n int) float64 {
	x := r.s.more[n]
	if x == nil || x.power == nil {
		return -1
	}
	add := draw(x.power) * min(1, max(0, r.need[0])*float64(r.s.perUnit[0][n]))
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

// Bound takes the least that the CPU asked for can add anywhere under the summary, on a worker that is awake.
func (r leastPower) Bound(sum *summary) float64 {
	if sum.leastDraw == inf32 { // nobody tells
		return 0.01
	}
	return 0.01 + 0.99/(1+max(0, float64(sum.leastDraw))*min(1, max(0, r.need[0])*float64(sum.leastPer[0]))/10) + slack
}
