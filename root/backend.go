package root

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// AppPage lists a part of the applications.
func (s *Server) AppPage(ctx context.Context, page apps.AppPage) ([]view.AppView, bool, error) {
	return tier.ViewPage(ctx, s.Role, func(c *core.Core) ([]view.AppView, bool) { return c.Views().AppPage(&page) })
}

// App shows one application with its manifest, that of an earlier generation if gen says so.
func (s *Server) App(ctx context.Context, key skerry.AppKey, gen skerry.Generation) (view.AppView, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (view.AppView, error) { return c.Views().AppView(key, gen) })
}

// Instances lists all instances, without anything of their workers.
func (s *Server) Instances(ctx context.Context) ([]wire.Instance, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]wire.Instance, error) {
		out := []wire.Instance{}
		for _, a := range c.Apps.Apps() {
			for _, i := range c.Apps.InstancesOf(a.Key()) {
				out = append(out, i.Shown())
			}
		}
		return out, nil
	})
}

// InstancePage lists a part of the instances.
func (s *Server) InstancePage(ctx context.Context, page apps.InstancePage) ([]wire.Instance, bool, error) {
	return tier.ViewPage(ctx, s.Role, func(c *core.Core) ([]wire.Instance, bool) {
		picked, more := c.Apps.Page(&page)
		out := make([]wire.Instance, 0, len(picked))
		for _, i := range picked {
			out = append(out, i.Shown())
		}
		return out, more
	})
}

// Instance shows an instance, without anything of its worker.
func (s *Server) Instance(ctx context.Context, id skerry.InstanceID) (wire.Instance, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (wire.Instance, error) { return c.Views().Instance(id) })
}

// Explain tells how an instance came to its cluster.
func (s *Server) Explain(ctx context.Context, id skerry.InstanceID) (view.Explanation, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (view.Explanation, error) { return c.Views().Explain(id) })
}

// Orgs lists the organisations.
func (s *Server) Orgs(ctx context.Context) ([]apps.Org, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]apps.Org, error) { return tier.Copied(c.Apps.Orgs()), nil })
}

// Namespaces lists the namespaces.
func (s *Server) Namespaces(ctx context.Context) ([]apps.Namespace, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]apps.Namespace, error) { return tier.Copied(c.Apps.Namespaces()), nil })
}

// Usage sums what an organisation asks for and has pushed.
func (s *Server) Usage(ctx context.Context, org string) (apps.Usage, error) {
	u, err := tier.View(ctx, s.Role, func(c *core.Core) (apps.Usage, error) { return c.Apps.Usage(org, skerry.AppKey{}), nil })
	if err == nil {
		err = tier.AddPushed(ctx, s.opt.Images, s, org, &u)
	}
	return u, err
}

// Clusters lists the sites, as aggregates.
func (s *Server) Clusters(ctx context.Context) ([]view.ClusterView, error) {
	list, err := tier.View(ctx, s.Role, func(c *core.Core) ([]view.ClusterView, error) { return c.Views().Sites(), nil })
	if err != nil {
		return nil, err
	}
	expires := map[string]time.Time{}
	for _, e := range s.Authority().List() {
		expires[e.Name] = e.Expires
	}
	for n := range list {
		list[n].Expires = expires[string(list[n].Name)]
	}
	return list, nil
}

// CordonCluster keeps new instances from a cluster; an empty reason ends that.
func (s *Server) CordonCluster(ctx context.Context, name, reason string) error {
	_, err := s.Role.Do(ctx, core.CordonCluster{Name: name, Reason: reason})
	return err
}

// DrainCluster has what can leave a cluster.
func (s *Server) DrainCluster(ctx context.Context, name string, r view.ClusterDrainRequest) error {
	_, err := s.Role.Do(ctx, core.DrainCluster{Name: name, Reason: r.Reason, Parallel: r.Parallel})
	return err
}

// LabelCluster changes the labels of a cluster.
func (s *Server) LabelCluster(ctx context.Context, name string, change view.ClusterLabels) error {
	_, err := s.Role.Do(ctx, core.LabelCluster{Name: name, Set: change.Set, Remove: change.Remove})
	return err
}

// TrustCluster has a cluster believed again, whatever was counted against it.
func (s *Server) TrustCluster(ctx context.Context, name string) error {
	_, err := s.Role.Do(ctx, core.TrustCluster{Name: name})
	return err
}

// Workers is answered by clusters only: the root does not know any.
func (s *Server) Workers(context.Context) ([]view.WorkerView, error) {
	return nil, wrongTier("workers")
}

// CordonWorker is answered by clusters only.
func (s *Server) CordonWorker(context.Context, string, string) error { return wrongTier("workers") }

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

// Grants is answered by clusters only: each site gives its own.
func (s *Server) Grants(context.Context) ([]wire.Granted, error) { return nil, wrongTier("grants") }

// SetGrant is answered by clusters only.
func (s *Server) SetGrant(context.Context, wire.Grant, bool, string) error {
	return wrongTier("grants")
}

// Unadmitted lists what applications and organisations have that takes no effect, or would be refused, today. Sites list what they run.
func (s *Server) Unadmitted(ctx context.Context) ([]view.Unadmitted, error) {
	var used []tier.UsedImage
	list, err := tier.View(ctx, s.Role, func(c *core.Core) ([]view.Unadmitted, error) {
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

// History is answered by clusters only; no site gives it away.
func (s *Server) History(context.Context, view.HistoryQuery) (view.History, error) {
	return view.History{}, wrongTier("workers")
}

func wrongTier(what string) error {
	return skerry.Errorf(skerry.CodeWrongTier, "the root does not know %s; each cluster knows its own", what).
		WithHint("log in at the cluster (`skerry login --server https://CLUSTER`) or choose its context (`skerry context use NAME`)")
}

// RemoveChild forgets a cluster that is not connected, and revokes it.
func (s *Server) RemoveChild(ctx context.Context, name, actor string) error {
	if _, err := s.Role.Do(ctx, core.RemoveCluster{Name: name}); err != nil {
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
	return tier.View(ctx, s.Role, func(c *core.Core) ([]view.Scrape, error) {
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
func (s *Server) WriteMetrics(ctx context.Context, w io.Writer) {
	m := tier.RoleMetrics{Role: s.Role, Down: s.Down(), Ready: s.Ready(), Images: s.opt.Images}
	var failed [5]error
	m.Apps, _, failed[0] = s.AppPage(ctx, apps.AppPage{})
	m.Instances, failed[1] = s.Instances(ctx)
	orphans, err := s.Orphans(ctx)
	m.Orphans, failed[2] = len(orphans), err
	m.Refused, failed[3] = tier.View(ctx, s.Role, func(c *core.Core) (map[string]int, error) { return c.Views().Refused(), nil })
	m.Ignored, failed[4] = tier.View(ctx, s.Role, func(c *core.Core) (map[string]int, error) { return c.Children.Ignored.All(), nil })
	m.Unknown = errors.Join(failed[:]...)
	m.Write(w)
}

// Classes is answered by clusters only.
func (s *Server) Classes(context.Context, skerry.InstanceID) ([]wire.ClassVerdict, error) {
	return nil, nil
}

// Certificates lists the certificates of an organisation.
func (s *Server) Certificates(ctx context.Context, org string) ([]view.CertificateView, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]view.CertificateView, error) { return c.Apps.Certificates(org), nil })
}

// IngressAuthority is answered by clusters only: each site has its own.
func (s *Server) IngressAuthority(context.Context) ([]byte, error) {
	return nil, wrongTier("authorities of ingresses")
}

// Orphans lists what sites run of the root's and its store does not know.
func (s *Server) Orphans(ctx context.Context) ([]view.Orphan, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]view.Orphan, error) { return c.Views().Orphans(), nil })
}

// Volumes lists the local volumes of all applications, and those that are kept without.
func (s *Server) Volumes(ctx context.Context) ([]view.VolumeView, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]view.VolumeView, error) { return c.Views().Volumes(), nil })
}

// Secrets lists the secrets of a namespace, without what they hold.
func (s *Server) Secrets(ctx context.Context, namespace string) ([]view.SecretView, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]view.SecretView, error) { return c.Apps.Secrets(namespace), nil })
}

// findSecret gives a site a secret that something uses which it holds.
func (s *Server) findSecret(ctx context.Context, site string, n spec.SecretName) ([]byte, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]byte, error) {
		sealed := c.Views().Secret(site, n)
		if sealed == nil {
			return nil, skerry.Errorf(skerry.CodeNotFound, "no instance that site %s holds uses such a secret", site)
		}
		return sealed, nil
	})
}
