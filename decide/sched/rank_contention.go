package sched

import "skerry.dev/skerry/spec"

// LeastContention prefers the worker on which the placement slows down the service and its neighbours least. The
// slow-down is predicted as the sum, over the resources that neighbours share, of what is there times what suffers from
// it, both ways (thesis, chapter 2: interference by kind of resource); so unlike loads come together.
type LeastContention struct{}

func (LeastContention) Name() string { return "contention" }

func (LeastContention) For(q *Query) Rank {
	return &leastContention{newFit(q), q.Contention.Intensity.Vector(), q.Contention.Sensitivity.Vector()}
}

type leastContention struct {
	fit
	intensity, sensitivity [spec.NumShares]float64
}

// Slowdown gives the predicted slow-down that a placement causes: of the newcomer by what runs on the worker, and of
// what runs there by the newcomer, summed. 0 is none, 1 is twice as slow for one of them.
func (r *leastContention) slowdown(n int) float64 {
	x := r.s.more[n]
	if x == nil {
		return 0
	}
	sum := 0.0
	for i := range r.intensity {
		sum += r.sensitivity[i]*float64(x.load[i]) + r.intensity[i]*float64(x.suffers[i])
	}
	return sum
}

func (r *leastContention) Score(n int) float64 {
	return 0.9/(1+max(0, r.slowdown(n))) + 0.1*r.free(n)
}

func (r *leastContention) Bound(sum *summary) float64 { return 0.9 + 0.1*r.mostFree(sum) }

func (r *leastContention) Scores(b int, mask uint64, out *[64]float64) { eachScore(r, b, mask, out) }

func (r *leastContention) Levels(sum *summary, worst float64) (least, most float64) {
	return r.emptier(sum, (worst-0.9)/0.1-slack)
}

// Slowdown predicts what a service with one contention does to, and suffers from, a neighbourhood with another.
func Slowdown(of, among spec.Contention) float64 {
	a, b, c, d := of.Intensity.Vector(), of.Sensitivity.Vector(), among.Intensity.Vector(), among.Sensitivity.Vector()
	sum := 0.0
	for i := range a {
		sum += b[i]*c[i] + a[i]*d[i]
	}
	return sum
}
