package core

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Search finds out where the instances of a manifest would go, changing nothing. Sites are asked in the order in which they would be
// offered the instances:
//
//	Search ─► Next: whom to ask about what ─► Answer of each ─┐
//	           ▲   └ nobody: Plan                             │
//	           └──────────────────────────────────────────────┘
type Search struct {
	kept view.Plan
	list []*Planned
	left []*Planned // without a place, and with a site that may be asked
}

// Planned is an instance of a plan on its way through the sites.
type Planned struct {
	i    *apps.Instance
	d    wire.Decision
	site string // empty: none is left
	done bool
}

// Search begins with what the store knows.
func (c *Core) Search(now time.Time, app spec.Application, digests map[string]string) (*Search, error) {
	p, err := c.Apps.Plan(now, app, digests)
	if err != nil {
		return nil, err
	}
	s := &Search{kept: view.Plan{Tier: string(wire.TierRoot), Key: p.Key, Lost: p.Lost}}
	for _, i := range p.Kept {
		s.kept.List = append(s.kept.List, view.PlannedCopy{Service: i.Service.Service, Instance: i.ID, Cluster: i.Holder, Kept: true,
			Resized: p.Resized[i.ID], Copies: i.Want})
	}
	for _, i := range p.New {
		s.list = append(s.list, &Planned{i: i})
	}
	s.left = slices.Clone(s.list)
	return s, nil
}

// Next chooses the next site for each instance that has not found one, and gives them by site; none: it is over.
func (s *Search) Next(c *Core, now time.Time) map[string][]*Planned {
	s.left = slices.DeleteFunc(s.left, func(p *Planned) bool { return p.done })
	s.rank(c, now)
	s.left = slices.DeleteFunc(s.left, func(p *Planned) bool { return p.site == "" })
	bySite := map[string][]*Planned{}
	for _, p := range s.left {
		bySite[p.site] = append(bySite[p.site], p)
	}
	return bySite
}

func (s *Search) rank(core *Core, now time.Time) {
	near := &around{seen: map[[2]string]bool{}}
	for _, p := range s.list {
		if p.done {
			near.at(p.site, p.i)
		} else {
			near.waits(p.i)
		}
	}
	round := map[skerry.AppKey]*around{}
	for _, item := range s.left {
		round[item.i.Service.App] = near
		if item.i.Target != "" {
			item.site = item.i.Target
			if len(item.i.Rejected) > 0 {
				item.site = ""
			} else if r := unknownMode(core, item.site, item.i.Spec); r != nil {
				item.site, item.d.Why = "", append(item.d.Why, *r)
			}
			continue
		}
		names, d := core.fed.Rank(now, core.request(item.i, round), core.rounds, 1)
		why := item.d.Why
		item.d, item.site = d, ""
		if len(names) == 0 {
			item.d.Why = append(slices.Clone(why), d.Why...)
			continue
		}
		item.site = names[0]
		item.d.Why = append(slices.Clone(why), d.Why...)
		near.at(item.site, item.i)
		near.whole = near.whole.Sub(item.i.Spec.LeastCost())
	}
}

// Plan is what was found out.
func (s *Search) Plan() view.Plan {
	out := s.kept
	for _, p := range s.list {
		k := view.PlannedCopy{Service: p.i.Service.Service, Cluster: p.site, Decision: &p.d}
		if p.i.Spec.Mode.HasCopies() {
			k.Copies = p.i.Want
		}
		out.List = append(out.List, k)
	}
	return out
}

// Item is what the site is asked about.
func (p *Planned) Item() spec.Assignment { return *p.i.Assignment(nil) }

// Answer takes what the site says of an item, or that it does not answer.
func (p *Planned) Answer(v view.PlanVerdict, err error) {
	switch {
	case err != nil:
		p.i.Rejected = append(p.i.Rejected, p.site)
		p.d.Why = append(p.d.Why, wire.Reason{What: "connected", Count: 1, Text: p.site + " does not answer: " + err.Error()})
	case v.Fits:
		p.done, p.i.Want = true, v.Copies
	default:
		p.i.Rejected = append(p.i.Rejected, p.site)
		for _, r := range v.Why {
			r.Text = p.site + ": " + r.Text
			p.d.Why = append(p.d.Why, r)
		}
	}
}
