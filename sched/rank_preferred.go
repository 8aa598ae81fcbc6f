package sched

// withPreferences adds preferred affinities to a ranking: each that is met weighs as much as a quarter of the ranking.
func withPreferences(q *Query, r Rank) Rank {
	p := &preferred{rank: r, s: q.Site}
	for _, a := range q.Spec.Placement.Affinity {
		if a.Preferred {
			p.beside = append(p.beside, q.places(a))
		}
	}
	for _, a := range q.Spec.Placement.AntiAffinity {
		if a.Preferred {
			p.apart = append(p.apart, q.places(a))
		}
	}
	if n := len(p.beside) + len(p.apart); n > 0 {
		p.unit = 1 / (1 + preferenceWeight*float64(n))
		return p
	}
	return r
}

const preferenceWeight = 0.25

type preferred struct {
	rank          Rank
	s             *Site
	beside, apart []places
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
	return sum * p.unit
}

func (p *preferred) Bound(sum *summary) float64 {
	return (p.rank.Bound(sum) + preferenceWeight*float64(len(p.beside)+len(p.apart))) * p.unit
}
