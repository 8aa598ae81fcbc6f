package root

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// planned is an instance of a plan on its way through the sites.
type planned struct {
	i    *apps.Instance
	d    wire.Decision
	site string // empty: none is left
	done bool
}

// planTime bounds what all sites together may take to answer.
const planTime = 10 * time.Second

// Plan tells where the instances of a manifest would go, changing nothing: sites are asked in the order in which they
// would be offered the instances.
func (s *Server) Plan(ctx context.Context, app spec.Application) (view.Plan, error) {
	digests, err := s.ResolveImages(ctx, &app)
	if err != nil {
		return view.Plan{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	now := time.Now()
	out := view.Plan{Tier: string(wire.TierRoot)}
	var list []*planned
	_, err = tier.ViewAbout(ctx, s.Role, app, func(c *Core) (struct{}, error) {
		p, err := c.Apps.Plan(now, app, digests)
		if err != nil {
			return struct{}{}, err
		}
		out.Key, out.Lost = p.Key, p.Lost
		for _, i := range p.Kept {
			out.List = append(out.List, view.PlannedCopy{Service: i.Service.Service, Instance: i.ID, Cluster: i.Holder, Kept: true, Resized: p.Resized[i.ID], Copies: i.Want})
		}
		for _, i := range p.New {
			list = append(list, &planned{i: i})
		}
		return struct{}{}, nil
	})
	if err != nil {
		return out, err
	}
	for left := slices.Clone(list); len(left) > 0; {
		if _, err := tier.ViewAbout(ctx, s.Role, app, func(c *Core) (struct{}, error) { c.rankPlanned(now, left, list); return struct{}{}, nil }); err != nil {
			return out, err
		}
		bySite := map[string][]*planned{}
		for _, p := range left {
			if p.site != "" {
				bySite[p.site] = append(bySite[p.site], p)
			}
		}
		for site, want := range bySite {
			s.askPlan(ctx, site, want)
		}
		left = slices.DeleteFunc(left, func(p *planned) bool { return p.done || p.site == "" })
	}
	for _, p := range list {
		k := view.PlannedCopy{Service: p.i.Service.Service, Cluster: p.site, Decision: &p.d}
		if p.i.Spec.Mode == spec.ModePerWorker {
			k.Copies = p.i.Want
		}
		out.List = append(out.List, k)
	}
	return out, nil
}

// rankPlanned chooses the next site for each instance that has not found one.
func (c *Core) rankPlanned(now time.Time, left, all []*planned) {
	near := &around{seen: map[[2]string]bool{}}
	for _, p := range all {
		if p.done {
			near.at(p.site, p.i)
		} else {
			near.waits(p.i)
		}
	}
	round := map[skerry.AppKey]*around{}
	for _, p := range left {
		round[p.i.Service.App] = near
		if p.i.Target != "" {
			p.site = p.i.Target
			if len(p.i.Rejected) > 0 {
				p.site = ""
			}
			continue
		}
		names, d := c.fed.Rank(now, c.request(p.i, round), c.rounds, 1)
		why := p.d.Why
		p.d, p.site = d, ""
		if len(names) == 0 {
			p.d.Why = append(slices.Clone(why), d.Why...)
			continue
		}
		p.site = names[0]
		p.d.Why = append(slices.Clone(why), d.Why...)
		near.at(p.site, p.i)
		near.whole = near.whole.Sub(p.i.Spec.LeastCost())
	}
}

// askPlan asks a site about instances that would be offered to it.
func (s *Server) askPlan(ctx context.Context, site string, want []*planned) {
	var items []spec.Assignment
	for _, p := range want {
		items = append(items, *p.i.Assignment(nil))
	}
	verdicts, err := s.planAt(ctx, site, items)
	for n, p := range want {
		switch {
		case err != nil:
			p.i.Rejected = append(p.i.Rejected, site)
			p.d.Why = append(p.d.Why, wire.Reason{What: "connected", Count: 1, Text: site + " does not answer: " + err.Error()})
		case verdicts[n].Fits:
			p.done, p.i.Want = true, verdicts[n].Copies
		default:
			p.i.Rejected = append(p.i.Rejected, site)
			for _, r := range verdicts[n].Why {
				r.Text = site + ": " + r.Text
				p.d.Why = append(p.d.Why, r)
			}
		}
	}
}

func (s *Server) planAt(ctx context.Context, site string, items []spec.Assignment) ([]view.PlanVerdict, error) {
	body, err := json.Marshal(items)
	if err != nil {
		return nil, err
	}
	res, err := s.askSite(ctx, site, "/plan", body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it says %s", res.Status)
	}
	var out []view.PlanVerdict
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, err
	}
	if len(out) != len(items) {
		return nil, fmt.Errorf("it speaks of %d instances instead of %d", len(out), len(items))
	}
	return out, nil
}
