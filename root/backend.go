package root

import (
	"context"
	"net/http"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/apps"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/journal"
)

// view runs fn with the core and returns what it gives.
func view[T any](ctx context.Context, s *Server, fn func(c *Core) (T, error)) (out T, err error) {
	if e := s.Role.View(ctx, func(c loop.Core) { out, err = fn(c.(*Core)) }); e != nil {
		return out, e
	}
	return out, err
}

// Tier and the methods below implement api.Backend.
func (s *Server) Tier() skerry.Tier          { return skerry.TierRoot }
func (s *Server) Name() string               { return s.opt.Name }
func (s *Server) Journal() *journal.Journal  { return s.journal }
func (s *Server) Authority() *auth.Authority { return s.authority }
func (s *Server) Registry() http.Handler     { return s.opt.Images }
func (s *Server) Started() time.Time         { return s.started }

// Apps lists the applications.
func (s *Server) Apps(ctx context.Context) ([]skerry.AppView, error) {
	return view(ctx, s, func(c *Core) ([]skerry.AppView, error) {
		out := []skerry.AppView{}
		for _, a := range c.Apps.Apps() {
			out = append(out, c.Apps.View(a, "root", false))
		}
		return out, nil
	})
}

// App shows one application with its manifest.
func (s *Server) App(ctx context.Context, key skerry.AppKey) (skerry.AppView, error) {
	return view(ctx, s, func(c *Core) (skerry.AppView, error) {
		a := c.Apps.App(key)
		if a == nil {
			return skerry.AppView{}, skerry.Errorf(skerry.CodeNotFound, "there is no application %s", key).WithHint("`skerry get apps` lists them")
		}
		return c.Apps.View(a, "root", true), nil
	})
}

// Instances lists all instances, without anything of their workers.
func (s *Server) Instances(ctx context.Context) ([]skerry.Instance, error) {
	return view(ctx, s, func(c *Core) ([]skerry.Instance, error) {
		out := []skerry.Instance{}
		for _, a := range c.Apps.Apps() {
			for _, i := range c.Apps.InstancesOf(a.Key()) {
				out = append(out, i.Instance)
			}
		}
		return out, nil
	})
}

// Explain tells how an instance came to its cluster.
func (s *Server) Explain(ctx context.Context, id skerry.InstanceID) (skerry.Explanation, error) {
	return view(ctx, s, func(c *Core) (skerry.Explanation, error) {
		i := c.Apps.Instance(id)
		if i == nil {
			return skerry.Explanation{}, noInstance(id)
		}
		return skerry.Explanation{Instance: i.Instance, Decision: i.Decision, Deadline: i.Deadline, RetryAt: i.RetryAt, Tried: i.Rejected}, nil
	})
}

func noInstance(id skerry.InstanceID) error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no instance %q", id).WithHint("`skerry get instances` lists them")
}

// Orgs lists the organisations.
func (s *Server) Orgs(ctx context.Context) ([]apps.Org, error) {
	return view(ctx, s, func(c *Core) ([]apps.Org, error) { return copied(c.Apps.Orgs()), nil })
}

// Namespaces lists the namespaces.
func (s *Server) Namespaces(ctx context.Context) ([]apps.Namespace, error) {
	return view(ctx, s, func(c *Core) ([]apps.Namespace, error) { return copied(c.Apps.Namespaces()), nil })
}

func copied[T any](list []*T) []T {
	out := make([]T, 0, len(list))
	for _, x := range list {
		out = append(out, *x)
	}
	return out
}

// Usage sums what an organisation asks for.
func (s *Server) Usage(ctx context.Context, org string) (apps.Usage, error) {
	return view(ctx, s, func(c *Core) (apps.Usage, error) { return c.Apps.Usage(org, skerry.AppKey{}), nil })
}

// Clusters lists the sites, as aggregates.
func (s *Server) Clusters(ctx context.Context) ([]skerry.ClusterView, error) {
	return view(ctx, s, func(c *Core) ([]skerry.ClusterView, error) { return c.Sites(), nil })
}

// Workers is answered by clusters only: the root does not know any.
func (s *Server) Workers(context.Context) ([]skerry.WorkerView, error) {
	return nil, wrongTier("workers")
}

// HoldWorker is answered by clusters only.
func (s *Server) HoldWorker(context.Context, string, string) error { return wrongTier("workers") }

func wrongTier(what string) error {
	return skerry.Errorf(skerry.CodeWrongTier, "the root does not know %s; each cluster knows its own", what).
		WithHint("log in at the cluster (`skerry login --server https://CLUSTER`) or choose its context (`skerry context use NAME`)")
}

// RemoveChild forgets a cluster that is not connected, and revokes it.
func (s *Server) RemoveChild(ctx context.Context, name, actor string) error {
	if _, err := s.Role.Do(ctx, RemoveCluster{Name: name}); err != nil {
		return err
	}
	return s.authority.Revoke(ctx, skerry.TierCluster, name, actor, "removed")
}

// ServeInstance passes a request on to the cluster that holds the instance.
func (s *Server) ServeInstance(w http.ResponseWriter, r *http.Request, id skerry.InstanceID, rest string) {
	holder, err := view(r.Context(), s, func(c *Core) (string, error) {
		i := c.Apps.Instance(id)
		if i == nil {
			return "", noInstance(id)
		}
		if i.Holder == "" {
			return "", skerry.Errorf(skerry.CodeUnavailable, "instance %s has no place yet", id).WithHint("`skerry explain %s` tells why", id)
		}
		return i.Holder, nil
	})
	down := s.down.Load()
	if err == nil && down == nil {
		err = skerry.Errorf(skerry.CodeUnavailable, "the role is starting")
	}
	if err != nil {
		tier.WriteProblem(w, skerry.AsError(err))
		return
	}
	down.Proxy(w, r, holder, "/instances/"+string(id)+rest)
}

// Disconnect ends a cluster's connection; one that is still enrolled may come back.
func (s *Server) Disconnect(name string) {
	if d := s.down.Load(); d != nil {
		d.Disconnect(name)
	}
}

// Scrapes lists the instances whose service declares metrics.
func (s *Server) Scrapes(ctx context.Context) ([]skerry.Scrape, error) {
	return view(ctx, s, func(c *Core) ([]skerry.Scrape, error) {
		out := []skerry.Scrape{}
		for _, a := range c.Apps.Apps() {
			for _, i := range c.Apps.InstancesOf(a.Key()) {
				if i.Spec != nil && i.Spec.Metrics != nil && i.State == skerry.Running {
					out = append(out, skerry.Scrape{Instance: i.Instance, Metrics: *i.Spec.Metrics})
				}
			}
		}
		return out, nil
	})
}

// WriteMetrics writes the root's Prometheus text.
func (s *Server) WriteMetrics(ctx context.Context, w http.ResponseWriter) {
	m := tier.RoleMetrics{Role: s.Role, Down: s.down.Load(), Ready: s.Ready()}
	m.Apps, _ = s.Apps(ctx)
	m.Instances, _ = s.Instances(ctx)
	m.Write(w)
}
