package sched

import (
	"time"
)

// Sample chooses a few random workers, by the seed, of those that pass a policy's rules but for the limits of users, and
// whose place in the network is known: rnd(W) of Algorithm 2, line 11.
func (s *Site) Sample(p Policy, r *Request, seed uint64, count int) []string {
	rules := []Rule{located{}}
	for _, rule := range p.Rules {
		if _, users := rule.(Users); !users {
			rules = append(rules, rule)
		}
	}
	p.Rules = rules
	p.Rank = atRandom{seed}
	d := s.Best(time.Time{}, p, r, seed, count) // at no time: who told something long ago is as likely as the others
	var out []string
	for _, k := range d.Top {
		if k.Out == nil && len(out) < count {
			out = append(out, k.Name)
		}
	}
	return out
}

// atRandom ranks by a hash of seed and name.
type atRandom struct{ seed uint64 }

func (atRandom) Name() string { return "random" }

func (r atRandom) For(q *Query) Rank { return random{q.Site, r.seed} }

type random struct {
	s    *Site
	seed uint64
}

func (r random) Score(n int) float64  { return float64(mix(r.seed, r.s.hash[n])>>11) / (1 << 53) }
func (random) Bound(*summary) float64 { return 1 }
