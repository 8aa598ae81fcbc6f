package root

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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

// MoveToCluster moves an instance to a certain other cluster, because somebody wants that. The result is the name of the
// instance there; what stands against it is an error.
type MoveToCluster struct {
	ID      skerry.InstanceID
	To, Why string
}

func (c *Core) moveToCluster(now time.Time, m MoveToCluster, fx *wire.Effects) {
	i, err := c.movable(now, m.ID, m.To)
	if err != nil {
		fx.Err = err
		return
	}
	id, refused := c.Apps.MoveTo(now, i, m.To, m.Why, fx)
	if refused != nil {
		fx.Err = refused
		return
	}
	fx.Result = id
}

// movable gives an instance that may be offered to a certain other cluster, or why it may not.
func (c *Core) movable(now time.Time, id skerry.InstanceID, to string) (*apps.Instance, error) {
	i := c.Apps.Instance(id)
	switch {
	case i == nil:
		return nil, noInstance(id)
	case c.Children.Get(to) == nil:
		return nil, skerry.Errorf(skerry.CodeNotFound, "there is no cluster %q", to).WithHint("`skerry get clusters` lists them")
	case i.Holder == to:
		return nil, skerry.Errorf(skerry.CodeInvalid, "instance %s is at cluster %s already", id, to).WithHint("without a cluster it moves to another worker of its own")
	case i.Spec == nil || i.Holder == "":
		return nil, skerry.Errorf(skerry.CodeConflict, "instance %s has no place yet", id).WithHint("`skerry explain %s` shows why", id)
	}
	r := c.request(i, map[skerry.AppKey]*around{})
	r.Avoid = nil
	for _, name := range c.Children.Names() {
		if name != to {
			r.Avoid = append(r.Avoid, name)
		}
	}
	if names, d := c.fed.Rank(now, r, c.rounds, 1); len(names) == 0 {
		var why []wire.Reason
		for _, k := range d.Top {
			if k.Name == to && k.Out != nil {
				why = []wire.Reason{*k.Out}
			}
		}
		if why == nil {
			why = slices.DeleteFunc(d.Why, func(r wire.Reason) bool { return r.What == "rejected" })
		}
		return nil, unfit(id, to, why)
	}
	return i, nil
}

func unfit(id skerry.InstanceID, to string, why []wire.Reason) error {
	err := skerry.Errorf(skerry.CodeConflict, "cluster %s cannot take instance %s", to, id)
	for _, r := range why {
		err.Problems = append(err.Problems, skerry.Problem{Path: r.What, Message: r.Text, Hint: r.Hint})
	}
	return err
}

// Migrate moves an instance: to another worker of its cluster, which chooses one, or to another cluster.
func (s *Server) Migrate(ctx context.Context, id skerry.InstanceID, r view.MigrateRequest, actor string) (view.Migrating, error) {
	ctx, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	if r.To == "" {
		return s.migrateWithin(ctx, id, r, actor)
	}
	item, err := tier.View(ctx, s.Role, func(c *Core) (*spec.Assignment, error) {
		i, err := c.movable(time.Now(), id, r.To)
		if err != nil {
			return nil, err
		}
		return i.Assignment(nil), nil
	})
	if err != nil {
		return view.Migrating{}, err
	}
	verdicts, err := s.planAt(ctx, r.To, []spec.Assignment{*item})
	if err != nil {
		return view.Migrating{}, skerry.Errorf(skerry.CodeUnavailable, "cluster %s does not answer: %w", r.To, err)
	}
	if !verdicts[0].Fits {
		return view.Migrating{}, unfit(id, r.To, verdicts[0].Why)
	}
	why := "asked for by " + cmp.Or(actor, "the system")
	if r.Reason != "" {
		why += ": " + r.Reason
	}
	v, err := s.Role.Do(ctx, MoveToCluster{ID: id, To: r.To, Why: why})
	n, _ := v.(skerry.InstanceID)
	return view.Migrating{Instance: id, Cluster: skerry.ClusterName(r.To), Copy: n}, err
}

// migrateWithin passes the wish on to the cluster that has the instance.
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
	return tier.View(ctx, s.Role, func(c *Core) (string, error) {
		i := c.Apps.Instance(id)
		if i == nil {
			return "", noInstance(id)
		}
		if i.Holder == "" {
			return "", skerry.Errorf(skerry.CodeUnavailable, "instance %s has no place yet", id).WithHint("`skerry explain %s` shows why", id)
		}
		return i.Holder, nil
	})
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
