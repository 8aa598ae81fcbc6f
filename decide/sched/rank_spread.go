package sched

// Spread keeps the instances of a service apart: few of the same service on the worker count most, then few in its area,
// then few of the application on the worker, then room.
type Spread struct{}

func (Spread) Name() string { return "spread" }

func (Spread) For(q *Query) Rank {
	r := &spread{fit: newFit(q), same: map[int]int{}, app: map[int]int{}, areas: map[string]int{}}
	for _, p := range q.peers {
		if p.slot < 0 {
			continue
		}
		r.app[p.slot]++
		if p.Service == q.Service {
			r.same[p.slot]++
			if a := r.s.areaOf(p.slot); a != "" {
				r.areas[a]++
			}
		}
	}
	return r
}

type spread struct {
	fit
	same, app map[int]int    // by slot
	areas     map[string]int // instances of the same service
}

func (r *spread) Score(n int) float64 {
	return 0.6/float64(1+r.same[n]) + 0.25/float64(1+r.areas[r.s.areaOf(n)]) + 0.1/float64(1+r.app[n]) + 0.05*r.free(n)
}

func (r *spread) Bound(sum *summary) float64 { return 0.95 + 0.05*r.mostFree(sum) }

func (r *spread) Scores(b int, mask uint64, out *[64]float64) { eachScore(r, b, mask, out) }

func (r *spread) Levels(sum *summary, worst float64) (least, most float64) {
	return r.emptier(sum, (worst-0.95)/0.05-slack)
}
