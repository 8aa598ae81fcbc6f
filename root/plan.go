package root

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// planTime bounds what all sites together may take to answer.
const planTime = 10 * time.Second

// Plan tells where the instances of a manifest would go, changing nothing.
func (s *Server) Plan(ctx context.Context, app spec.Application) (view.Plan, error) {
	digests, err := s.ResolveImages(ctx, &app)
	if err != nil {
		return view.Plan{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	now := time.Now()
	search, err := tier.ViewAbout(ctx, s.Role, app, func(c *core.Core) (*core.Search, error) { return c.Search(now, app, digests) })
	if err != nil {
		return view.Plan{}, err
	}
	for {
		bySite, err := tier.ViewAbout(ctx, s.Role, app, func(c *core.Core) (map[string][]*core.Planned, error) {
			return search.Next(c, now), nil
		})
		if err != nil {
			return view.Plan{}, err
		}
		if len(bySite) == 0 {
			return search.Plan(), nil
		}
		for site, want := range bySite {
			s.askPlan(ctx, site, want)
		}
	}
}

// askPlan asks a site about instances that would be offered to it.
func (s *Server) askPlan(ctx context.Context, site string, want []*core.Planned) {
	var items []spec.Assignment
	for _, p := range want {
		items = append(items, p.Item())
	}
	verdicts, err := s.planAt(ctx, site, items)
	if err != nil {
		verdicts = make([]view.PlanVerdict, len(want))
	}
	for n, p := range want {
		p.Answer(verdicts[n], err)
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
