package sched

// withPreferences adds preferred affinities to a ranking: each that is met weighs as much as a quarter of the ranking.
// For a service of which is said how many requests are expected, a runtime that stays clear of its saturation point
// there, by what the worker measured or else by published figures, weighs as much as all of the ranking.
func withPreferences(query *Query, r Rank) Rank {
	p := &preferred{rank: r, s: query.Site}
	for _, a := range query.Spec.Placement.Affinity {
		if a.Preferred {
			p.beside = append(p.beside, query.places(a))
		}
	}
	for _, a := range query.Spec.Placement.AntiAffinity {
		if a.Preferred {
			p.apart = append(p.apart, query.places(a))
		}
	}
	p.clear = clearKinds(query)
	if n := len(p.beside) + len(p.apart); n > 0 || p.clear != nil {
		p.most = preferenceWeight * float64(n)
		if p.clear != nil {
			p.most += headRoomWeight
		}
		p.unit = 1 / (1 + p.most)
		return p
	}
	return r
}

const preferenceWeight, headRoomWeight = 0.25, 1.0

// clearKinds tells of each kind of worker whether the service would be clear of its saturation point there; nil where
// all are alike in that.
func clearKinds(q *Query) []bool {
	if q.Spec.ExpectedRate <= 0 {
		return nil
	}
	out, n, all := make([]bool, len(q.Site.kinds)), 0, 0
	for id, k := range q.Site.kinds {
		runtime := q.runtimes[id]
		if k.users == 0 || runtime == "" {
			continue
		}
		all++
		if out[id] = q.Spec.Crowded(runtime, k.costs) == ""; out[id] {
			n++
		}
	}
	if n == 0 || n == all {
		return nil
	}
	return out
}

type preferred struct {
	rank          Rank
	s             *Site
	beside, apart []places
	clear         []bool  // by kind; nil: alike
	most          float64 // that all preferences add
	unit          float64 // brings the sum back to 0 to 1
}

func (p *preferred) Score(n int) float64 {
	sum := p.rank.Score(n)
	for i := range p.beside {
		if p.beside[i].at(p.s, n) > 0 {
			sum += preferenceWeight
		}
	}
	for i := range p.apart {
		sum += preferenceWeight / float64(1+p.apart[i].at(p.s, n))
	}
	if p.clear != nil && p.clear[p.s.kindOf[n]] {
		sum += headRoomWeight
	}
	return sum * p.unit
}

func (p *preferred) Bound(sum *summary) float64 {
	return (p.rank.Bound(sum) + p.most) * p.unit
}
