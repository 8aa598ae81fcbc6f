package root

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Apps lists the applications.
func (s *Server) Apps(ctx context.Context) ([]view.AppView, error) {
	return tier.View(ctx, s.Role, func(c *Core) ([]view.AppView, error) {
		out := []view.AppView{}
		for _, a := range c.Apps.Apps() {
			v := c.Apps.View(a, "root", false)
			c.showIngress(&v)
			out = append(out, v)
		}
		return out, nil
	})
}

// App shows one application with its manifest.
func (s *Server) App(ctx context.Context, key skerry.AppKey) (view.AppView, error) {
	return tier.View(ctx, s.Role, func(c *Core) (view.AppView, error) {
		a := c.Apps.App(key)
		if a == nil {
			return view.AppView{}, skerry.Errorf(skerry.CodeNotFound, "there is no application %s", key).WithHint("`skerry get apps` lists them")
		}
		v := c.Apps.View(a, "root", true)
		c.showIngress(&v)
		return v, nil
	})
}

// Instances lists all instances, without anything of their workers.
func (s *Server) Instances(ctx context.Context) ([]wire.Instance, error) {
	return tier.View(ctx, s.Role, func(c *Core) ([]wire.Instance, error) {
		out := []wire.Instance{}
		for _, a := range c.Apps.Apps() {
			for _, i := range c.Apps.InstancesOf(a.Key()) {
				out = append(out, i.Shown())
			}
		}
		return out, nil
	})
}

// Explain tells how an instance came to its cluster.
func (s *Server) Explain(ctx context.Context, id skerry.InstanceID) (view.Explanation, error) {
	return tier.View(ctx, s.Role, func(c *Core) (view.Explanation, error) {
		i := c.Apps.Instance(id)
		if i == nil {
			return view.Explanation{}, noInstance(id)
		}
		e := view.Explanation{Instance: i.Shown(), Decision: i.Decision, Deadline: i.Deadline, RetryAt: i.RetryAt, Tried: i.Rejected, Scale: c.Apps.Scale(i.Service)}
		if i.Spec != nil {
			e.Runtimes = i.Spec.RuntimeChoices(i.Runtime, nil)
			for n := range e.Runtimes { // of the one that it has its site knows more than what is published
				r := &e.Runtimes[n]
				r.Workers = workersWith(c, r.Runtime)
				if r.Chosen {
					r.Crowded = ""
					if k := slices.IndexFunc(i.Conditions, func(k skerry.Condition) bool { return k.Type == skerry.HeadRoom }); k >= 0 {
						r.Crowded = i.Conditions[k].Reason
					}
				}
			}
		}
		return e, nil
	})
}

// workersWith counts the workers, of clusters in touch, that have a runtime.
func workersWith(c *Core, runtime string) (n int) {
	for _, name := range c.Children.Names() {
		if r := c.reports[name]; r != nil && c.Children.Get(name).Connected {
			for _, k := range r.report.Classes {
				if slices.ContainsFunc(k.Class.Runtimes, func(has string) bool { return spec.Offers(has, runtime) }) {
					n += max(k.Workers, 0)
				}
			}
		}
	}
	return n
}

func noInstance(id skerry.InstanceID) error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no instance %q", id).WithHint("`skerry get instances` lists them")
}

// Orgs lists the organisations.
func (s *Server) Orgs(ctx context.Context) ([]apps.Org, error) {
	return tier.View(ctx, s.Role, func(c *Core) ([]apps.Org, error) { return tier.Copied(c.Apps.Orgs()), nil })
}

// Namespaces lists the namespaces.
func (s *Server) Namespaces(ctx context.Context) ([]apps.Namespace, error) {
	return tier.View(ctx, s.Role, func(c *Core) ([]apps.Namespace, error) { return tier.Copied(c.Apps.Namespaces()), nil })
}

// Usage sums what an organisation asks for and has pushed.
func (s *Server) Usage(ctx context.Context, org string) (apps.Usage, error) {
	u, err := tier.View(ctx, s.Role, func(c *Core) (apps.Usage, error) { return c.Apps.Usage(org, skerry.AppKey{}), nil })
	if err == nil {
		err = tier.AddPushed(ctx, s.opt.Images, s, org, &u)
	}
	return u, err
}

// Clusters lists the sites, as aggregates.
func (s *Server) Clusters(ctx context.Context) ([]view.ClusterView, error) {
	return tier.View(ctx, s.Role, func(c *Core) ([]view.ClusterView, error) { return c.Sites(), nil })
}

// TrustCluster has a cluster believed again, whatever was counted against it.
func (s *Server) TrustCluster(ctx context.Context, name string) error {
	_, err := s.Role.Do(ctx, TrustCluster{Name: name})
	return err
}

// Workers is answered by clusters only: the root does not know any.
func (s *Server) Workers(context.Context) ([]view.WorkerView, error) {
	return nil, wrongTier("workers")
}

// HoldWorker is answered by clusters only.
func (s *Server) HoldWorker(context.Context, string, string) error { return wrongTier("workers") }

// WorkerOverlay is answered by clusters only.
func (s *Server) WorkerOverlay(context.Context, string) (view.OverlayView, error) {
	return view.OverlayView{}, wrongTier("workers")
}

// UpgradeWorker is answered by clusters only.
func (s *Server) UpgradeWorker(context.Context, string, view.UpgradeRequest) error {
	return wrongTier("workers")
}

// DrainWorker is answered by clusters only.
func (s *Server) DrainWorker(context.Context, string, view.DrainRequest) error {
	return wrongTier("workers")
}

// Unadmitted lists what applications and organisations have that takes no effect, or would be refused, today. Sites list what they run.
func (s *Server) Unadmitted(ctx context.Context) ([]view.Unadmitted, error) {
	var used []tier.UsedImage
	list, err := tier.View(ctx, s.Role, func(c *Core) ([]view.Unadmitted, error) {
		for _, a := range c.Apps.Apps() {
			for i := range a.Manifest.Spec.Services {
				sv := &a.Manifest.Spec.Services[i]
				used = append(used, tier.ImagesOf(skerry.ServiceKey{App: a.Key(), Service: sv.Name}, a.Org, sv)...)
			}
		}
		return c.Apps.Restricted(), nil
	})
	if err != nil {
		return nil, err
	}
	more, err := tier.Restricted(ctx, s.opt.Images, s, used)
	return append(list, more...), err
}

// Rebalance is answered by clusters only.
func (s *Server) Rebalance(context.Context, bool) (view.RebalancePlan, error) {
	return view.RebalancePlan{}, wrongTier("workers")
}

func wrongTier(what string) error {
	return skerry.Errorf(skerry.CodeWrongTier, "the root does not know %s; each cluster knows its own", what).
		WithHint("log in at the cluster (`skerry login --server https://CLUSTER`) or choose its context (`skerry context use NAME`)")
}

// RemoveChild forgets a cluster that is not connected, and revokes it.
func (s *Server) RemoveChild(ctx context.Context, name, actor string) error {
	if _, err := s.Role.Do(ctx, RemoveCluster{Name: name}); err != nil {
		return err
	}
	return s.Authority().Revoke(ctx, wire.TierCluster, name, actor, "removed")
}

// ServeInstance passes a request on to the cluster that holds the instance.
func (s *Server) ServeInstance(w http.ResponseWriter, r *http.Request, id skerry.InstanceID, rest string) {
	holder, err := s.holder(r.Context(), id)
	s.Proxy(w, r, holder, "/instances/"+string(id)+rest, err)
}

// Scrapes lists the instances whose service declares metrics.
func (s *Server) Scrapes(ctx context.Context) ([]view.Scrape, error) {
	return tier.View(ctx, s.Role, func(c *Core) ([]view.Scrape, error) {
		out := []view.Scrape{}
		for _, a := range c.Apps.Apps() {
			for _, i := range c.Apps.InstancesOf(a.Key()) {
				if i.Spec != nil && i.Spec.Metrics != nil && i.State == skerry.Running {
					out = append(out, view.Scrape{Instance: i.Instance, Metrics: *i.Spec.Metrics})
				}
			}
		}
		return out, nil
	})
}

// WriteMetrics writes the root's Prometheus text.
func (s *Server) WriteMetrics(ctx context.Context, w http.ResponseWriter) {
	m := tier.RoleMetrics{Role: s.Role, Down: s.Down(), Ready: s.Ready(), Images: s.opt.Images}
	m.Apps, _ = s.Apps(ctx)
	m.Instances, _ = s.Instances(ctx)
	orphans, _ := s.Orphans(ctx)
	m.Orphans = len(orphans)
	m.Refused, _ = tier.View(ctx, s.Role, func(c *Core) (map[string]int, error) { return maps.Clone(c.relations.counts), nil })
	m.Ignored, _ = tier.View(ctx, s.Role, func(c *Core) (map[string]int, error) { return c.Children.Ignored.All(), nil })
	m.Write(w)
}

// Classes is answered by clusters only.
func (s *Server) Classes(context.Context, skerry.InstanceID) ([]wire.ClassVerdict, error) {
	return nil, nil
}
