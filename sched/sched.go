// Package sched decides where instances go. It is pure: a decision depends on the view, the request and the seed alone,
// and carries its reasons. Root and cluster cores import it; it imports nothing but the nouns.
package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"skerry.dev/skerry"
)

// Request is what an instance needs.
type Request struct {
	Instance skerry.InstanceID
	Spec     *skerry.ServiceSpec
	Need     skerry.Resources
	Avoid    []string // names tried in this round
}

// Worker is a cluster's view of one worker.
type Worker struct {
	Name      string
	Arch      string
	Runtimes  []string // that passed their self-test
	Area      string
	Location  *skerry.Location
	Capacity  skerry.Resources
	Available skerry.Resources // capacity less what is reserved
	HostPorts map[string]bool  // taken, as "tcp/8080"
	Refusing  string           // why it takes nothing new; empty: it does
	Lost      bool             // not in touch
}

// Filter rules workers out. A nil reason lets the worker pass.
type Filter interface {
	Name() string
	Check(r *Request, w *Worker) *skerry.Reason
}

// Scorer orders the workers that are left; a higher score is better.
type Scorer interface {
	Name() string
	Score(r *Request, w *Worker) float64
}

// Policy is a chain of filters and the scorer that chooses among what they leave. Policies are values, so that a site can
// put its own together.
type Policy struct {
	Name    string
	Filters []Filter
	Scorer  Scorer
}

// maxShown bounds the candidates that a decision keeps as examples.
const maxShown = 8

// Place chooses a worker. Ties are broken by the seed. The decision's Chosen is empty when nobody fits.
func Place(now time.Time, p Policy, r *Request, workers []*Worker, seed uint64) skerry.Decision {
	d := skerry.Decision{At: now, Instance: r.Instance, Tier: "cluster", Policy: p.Name, Seed: seed, Considered: len(workers)}
	rng := rand.New(rand.NewPCG(seed, uint64(len(workers))))
	var tally Tally
	best, ties := -1, 0
	var bestScore float64
	for n, w := range workers {
		if out := firstReason(p.Filters, r, w); out != nil {
			tally.Add(*out)
			if len(d.Top) < maxShown {
				d.Top = append(d.Top, skerry.Candidate{Name: w.Name, Out: out})
			}
			continue
		}
		s := p.Scorer.Score(r, w)
		switch {
		case best < 0 || s > bestScore:
			best, bestScore, ties = n, s, 1
		case s == bestScore:
			if ties++; rng.IntN(ties) == 0 {
				best = n
			}
		}
		d.Top = keepBest(d.Top, skerry.Candidate{Name: w.Name, Score: s})
	}
	d.Why = tally.Reasons()
	if best < 0 {
		if len(workers) == 0 {
			d.Why = []skerry.Reason{{What: "workers", Text: "the site has no workers", Hint: "join one with `skerry token create --role worker`"}}
		}
		return d
	}
	d.Chosen = workers[best].Name
	for i := range d.Top {
		d.Top[i].Chosen = d.Top[i].Name == d.Chosen
	}
	if !slices.ContainsFunc(d.Top, func(c skerry.Candidate) bool { return c.Chosen }) {
		d.Top = append(d.Top, skerry.Candidate{Name: d.Chosen, Score: bestScore, Chosen: true})
	}
	return d
}

// keepBest keeps a bounded list with fitting candidates before those ruled out.
func keepBest(list []skerry.Candidate, c skerry.Candidate) []skerry.Candidate {
	if len(list) < maxShown {
		return append(list, c)
	}
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Out != nil || list[i].Score < c.Score {
			list[i] = c
			return list
		}
	}
	return list
}

func firstReason(filters []Filter, r *Request, w *Worker) *skerry.Reason {
	for _, f := range filters {
		if out := f.Check(r, w); out != nil {
			return out
		}
	}
	return nil
}

// Tally counts reasons by what they are about and keeps the text of the nearest miss, which is the one whose Count field
// (used as a shortfall) is smallest.
type Tally struct {
	order []string
	by    map[string]*skerry.Reason
	near  map[string]int
}

// Add counts one reason.
func (t *Tally) Add(r skerry.Reason) {
	if t.by == nil {
		t.by, t.near = map[string]*skerry.Reason{}, map[string]int{}
	}
	short := r.Count
	if have := t.by[r.What]; have == nil {
		c := r
		c.Count = 1
		t.by[r.What], t.near[r.What] = &c, short
		t.order = append(t.order, r.What)
	} else {
		have.Count++
		if short < t.near[r.What] {
			have.Text, have.Hint, t.near[r.What] = r.Text, r.Hint, short
		}
	}
}

// Reasons gives the reasons, most frequent first.
func (t *Tally) Reasons() []skerry.Reason {
	out := make([]skerry.Reason, 0, len(t.order))
	for _, k := range t.order {
		r := *t.by[k]
		if r.Count > 1 {
			r.Text = fmt.Sprintf("%d workers: nearest: %s", r.Count, r.Text)
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b skerry.Reason) int { return b.Count - a.Count })
	return out
}
