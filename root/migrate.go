package root

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// Migrate moves an instance: to another worker of its cluster, which chooses one, or to another cluster.
func (s *Server) Migrate(ctx context.Context, id skerry.InstanceID, r view.MigrateRequest, actor string) (view.Migrating, error) {
	ctx, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	if r.To == "" {
		return s.migrateWithin(ctx, id, r, actor)
	}
	item, err := tier.View(ctx, s.Role, func(c *core.Core) (*spec.Assignment, error) { return c.Movable(time.Now(), id, r.To) })
	if err != nil {
		return view.Migrating{}, err
	}
	verdicts, err := s.planAt(ctx, r.To, []spec.Assignment{*item})
	if err != nil {
		return view.Migrating{}, skerry.Errorf(skerry.CodeUnavailable, "cluster %s does not answer: %w", r.To, err)
	}
	if !verdicts[0].Fits {
		return view.Migrating{}, core.Unfit(id, r.To, verdicts[0].Why)
	}
	why := "asked for by " + cmp.Or(actor, "the system")
	if r.Reason != "" {
		why += ": " + r.Reason
	}
	v, err := s.Role.Do(ctx, core.MoveToCluster{ID: id, To: r.To, Why: why})
	n, _ := v.(skerry.InstanceID)
	return view.Migrating{Instance: id, Cluster: skerry.ClusterName(r.To), Copy: n}, err
}

// migrateWithin passes the request on to the cluster that has the instance.
func (s *Server) migrateWithin(ctx context.Context, id skerry.InstanceID, r view.MigrateRequest, actor string) (view.Migrating, error) {
	site, err := s.holder(ctx, id)
	if err != nil {
		return view.Migrating{}, err
	}
	body, err := json.Marshal(view.RootMigrate{Actor: actor, Reason: r.Reason, Force: r.Force})
	if err != nil {
		return view.Migrating{}, err
	}
	res, err := s.askSite(ctx, site, "/instances/"+string(id)+"/migrate", body)
	if err != nil {
		return view.Migrating{}, skerry.Errorf(skerry.CodeUnavailable, "cluster %s does not answer: %w", site, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		return view.Migrating{}, tier.ReadProblem(res)
	}
	return view.Migrating{Instance: id, Cluster: skerry.ClusterName(site)}, nil
}

// holder gives the cluster that has an instance.
func (s *Server) holder(ctx context.Context, id skerry.InstanceID) (string, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (string, error) { return c.Views().Holder(id) })
}

// askSite posts something to a cluster over its link.
func (s *Server) askSite(ctx context.Context, site, path string, body []byte) (*http.Response, error) {
	down := s.Down()
	if down == nil {
		return nil, skerry.Errorf(skerry.CodeUnavailable, "the role is starting")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://child"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return down.RoundTripper(site).RoundTrip(req)
}
