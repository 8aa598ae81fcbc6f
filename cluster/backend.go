package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/certs"
	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// AppPage lists a part of the site's own applications and of what it holds of the root's, which is summed up from all its instances anyway.
func (s *Server) AppPage(ctx context.Context, page apps.AppPage) ([]view.AppView, bool, error) {
	return tier.ViewPage(ctx, s.Role, func(c *core.Core) ([]view.AppView, bool) {
		return page.Cut(c.AppViews(false))
	})
}

// App shows one application; the manifest, that of an earlier generation if gen says so, is there for the site's own.
func (s *Server) App(ctx context.Context, key skerry.AppKey, gen skerry.Generation) (view.AppView, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (view.AppView, error) { return c.AppView(key, gen) })
}

// Instances lists the instances at the site.
func (s *Server) Instances(ctx context.Context) ([]wire.Instance, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]wire.Instance, error) { return c.Instances(), nil })
}

// InstancePage lists a part of the instances at the site.
func (s *Server) InstancePage(ctx context.Context, page apps.InstancePage) ([]wire.Instance, bool, error) {
	return tier.ViewPage(ctx, s.Role, func(c *core.Core) ([]wire.Instance, bool) { return c.InstancePage(&page) })
}

// Instance shows an instance.
func (s *Server) Instance(ctx context.Context, id skerry.InstanceID) (wire.Instance, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (wire.Instance, error) {
		i, _, ok := c.Instance(id)
		if !ok {
			return wire.Instance{}, core.NoInstance(id)
		}
		return i, nil
	})
}

// Explain tells how an instance came to its worker.
func (s *Server) Explain(ctx context.Context, id skerry.InstanceID) (view.Explanation, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (view.Explanation, error) {
		i, d, ok := c.Instance(id)
		if !ok {
			return view.Explanation{}, core.NoInstance(id)
		}
		return view.Explanation{Instance: i, Decision: d, Scale: c.ScaleOf(i.Service), Runtimes: c.RuntimeChoices(id)}, nil
	})
}

// Orgs lists the organisations known here.
func (s *Server) Orgs(ctx context.Context) ([]apps.Org, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]apps.Org, error) { return tier.Copied(c.Apps.Orgs()), nil })
}

// Namespaces lists the namespaces of the site's own applications, and those of the root in which it runs something.
func (s *Server) Namespaces(ctx context.Context) ([]apps.Namespace, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]apps.Namespace, error) {
		list := tier.Copied(c.Apps.Namespaces())
		for _, a := range c.RootApps() {
			if !slices.ContainsFunc(list, func(n apps.Namespace) bool { return n.Name == a.Key.Namespace }) {
				list = append(list, apps.Namespace{Name: a.Key.Namespace, Org: a.Org})
			}
		}
		return list, nil
	})
}

// Usage sums what an organisation asks for and has pushed here.
func (s *Server) Usage(ctx context.Context, org string) (apps.Usage, error) {
	u, err := tier.View(ctx, s.Role, func(c *core.Core) (apps.Usage, error) { return c.Apps.Usage(org, skerry.AppKey{}), nil })
	if err == nil {
		err = tier.AddPushed(ctx, s.opt.Images, s, org, &u)
	}
	return u, err
}

// Workers lists the site's workers.
func (s *Server) Workers(ctx context.Context) ([]view.WorkerView, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]view.WorkerView, error) { return c.Workers(), nil })
}

// Grants lists what the users of the root may do at the site.
func (s *Server) Grants(ctx context.Context) ([]wire.Granted, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]wire.Granted, error) { return c.Grants(), nil })
}

// SetGrant gives something to the users of the root, or takes it back.
func (s *Server) SetGrant(ctx context.Context, g wire.Grant, given bool, by string) error {
	if given && s.opt.Root == nil {
		return skerry.Errorf(skerry.CodeUnsupported, "cluster %s has no root whose users could be granted anything", s.opt.Name)
	}
	_, err := s.Role.Do(ctx, core.SetGrant{Grant: g, Given: given, By: by})
	return err
}

// Unadmitted lists what the site has and would be refused, or takes no effect, today.
func (s *Server) Unadmitted(ctx context.Context) ([]view.Unadmitted, error) {
	var used []tier.UsedImage
	list, err := tier.View(ctx, s.Role, func(c *core.Core) ([]view.Unadmitted, error) {
		for a := range c.Admitted() {
			used = append(used, tier.ImagesOf(a.Service, a.Org, &a.Spec)...)
		}
		return append(c.Unadmitted(), c.Apps.Restricted()...), nil
	})
	if err != nil {
		return nil, err
	}
	more, err := tier.Restricted(ctx, s.opt.Images, s, used)
	return append(list, more...), err
}

// CordonWorker keeps new work from a worker; an empty reason ends that.
func (s *Server) CordonWorker(ctx context.Context, name, reason string) error {
	_, err := s.Role.Do(ctx, core.CordonWorker{Name: name, Reason: reason})
	return err
}

// DrainWorker has everything that can leave a worker.
func (s *Server) DrainWorker(ctx context.Context, name string, r view.DrainRequest) error {
	_, err := s.Role.Do(ctx, core.DrainWorker{Name: name, Reason: r.Reason, Parallel: r.Parallel, To: r.To, Force: r.Force})
	return err
}

// Rebalance has the site look for better places for what runs, and with dryRun only tell of them.
func (s *Server) Rebalance(ctx context.Context, dryRun bool) (view.RebalancePlan, error) {
	v, err := s.Role.Do(ctx, core.Rebalance{DryRun: dryRun})
	plan, _ := v.(view.RebalancePlan)
	return plan, err
}

// overlayTime is how long a worker may take to tell of its ways to others.
const overlayTime = 10 * time.Second

// WorkerOverlay asks a worker how it fares in the overlay.
func (s *Server) WorkerOverlay(ctx context.Context, name string) (shown view.OverlayView, err error) {
	connected, err := tier.View(ctx, s.Role, func(c *core.Core) (bool, error) {
		if !c.HasWorker(name) {
			return false, skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", name).WithHint("`skerry get workers` lists them")
		}
		k := c.Children.Get(name)
		return k != nil && k.Connected, nil
	})
	if err != nil {
		return shown, err
	}
	if !connected {
		return shown, skerry.Errorf(skerry.CodeUnavailable, "worker %s is not connected, so it cannot be asked", name)
	}
	ctx, cancel := context.WithTimeout(ctx, overlayTime)
	defer cancel()
	if err := s.askWorker(ctx, name, "/overlay", 1<<20, &shown); err != nil {
		return view.OverlayView{}, skerry.Errorf(skerry.CodeUnavailable, "worker %s does not report its paths: %s", name, err)
	}
	shown.Peers = shown.Peers[:min(len(shown.Peers), view.MaxPathViews)]
	return shown, nil
}

// UpgradeWorker has a worker's agent go over to another program.
func (s *Server) UpgradeWorker(ctx context.Context, name string, r view.UpgradeRequest) error {
	pinned, err := s.opt.Images.Resolve(ctx, r.Image)
	if err != nil {
		return err
	}
	r.Image = cmp.Or(pinned.Digest, r.Image)
	_, err = s.Role.Do(ctx, core.UpgradeWorker{Name: name, UpgradeRequest: r})
	return err
}

// RemoveChild forgets a worker that is not connected, and revokes it.
func (s *Server) RemoveChild(ctx context.Context, name, actor string) error {
	if _, err := s.Role.Do(ctx, core.RemoveWorker{Name: name}); err != nil {
		return err
	}
	return s.Authority().Revoke(ctx, wire.TierWorker, name, actor, "removed")
}

// ServeInstance passes a request on to the worker that runs the instance. The main instance of a perWorker service leads
// to one of its copies, one that is ready if there is any.
func (s *Server) ServeInstance(w http.ResponseWriter, r *http.Request, id skerry.InstanceID, rest string) {
	type target struct {
		worker string
		id     skerry.InstanceID
	}
	t, err := tier.View(r.Context(), s.Role, func(c *core.Core) (target, error) {
		worker, at, err := c.Serving(id)
		return target{worker, at}, err
	})
	if err == nil && t.worker == "" {
		err = skerry.Errorf(skerry.CodeUnavailable, "instance %s has no worker yet", id).WithHint("`skerry explain %s` shows why", id)
	}
	s.Proxy(w, r, t.worker, "/instances/"+string(t.id)+rest, err)
}

// Scrapes lists the instances whose service declares metrics.
func (s *Server) Scrapes(ctx context.Context) ([]view.Scrape, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]view.Scrape, error) { return c.Scrapes(), nil })
}

// WriteMetrics writes the cluster's Prometheus text.
func (s *Server) WriteMetrics(ctx context.Context, w io.Writer) {
	m := tier.RoleMetrics{Role: s.Role, Down: s.Down(), External: s.External(), Up: s.up.Load(), Ready: s.Ready(), Images: s.opt.Images}
	var failed [5]error
	m.Apps, _, failed[0] = s.AppPage(ctx, apps.AppPage{})
	m.Instances, failed[1] = s.Instances(ctx)
	orphans, err := s.Orphans(ctx)
	m.Orphans, failed[2] = view.OrphansRunning(orphans), err
	m.Refused, failed[3] = tier.View(ctx, s.Role, func(c *core.Core) (map[string]int, error) { return c.Refused(), nil })
	m.Ignored, failed[4] = tier.View(ctx, s.Role, func(c *core.Core) (map[string]int, error) { return c.Ignored(), nil })
	m.Unknown = errors.Join(failed[:]...)
	if c, err := tier.View(ctx, s.Role, func(c *core.Core) (certs.Metrics, error) { return c.CertificateMetrics(), nil }); err == nil {
		m.Certificates = &tier.CertificateMetrics{Hosts: c.Hosts, Valid: c.Valid, Unserved: c.Unserved, Failing: c.Failing,
			Issued: c.Issued, Failed: c.Failed, Ends: c.Ends}
	}
	m.Write(w)
}

// Plan tells where the instances of a manifest would go, changing nothing.
func (s *Server) Plan(ctx context.Context, app spec.Application) (view.Plan, error) {
	digests, err := s.ResolveImages(ctx, &app)
	if err != nil {
		return view.Plan{}, err
	}
	return tier.ViewAbout(ctx, s.Role, app, func(c *core.Core) (view.Plan, error) { return c.PlanApp(time.Now(), app, digests) })
}

// Classes tells how each class of the site's workers stands to an instance now.
func (s *Server) Classes(ctx context.Context, id skerry.InstanceID) ([]wire.ClassVerdict, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]wire.ClassVerdict, error) { return c.Explain(time.Now(), id), nil })
}

// servePlan tells the root whether the site would take instances, in terms that the root may know.
func (s *Server) servePlan(w http.ResponseWriter, r *http.Request) {
	var items []spec.Assignment
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20))
	if err == nil {
		err = json.Unmarshal(body, &items)
	}
	if err != nil {
		tier.WriteProblem(w, skerry.Errorf(skerry.CodeInvalid, "the plan cannot be read: %v", err))
		return
	}
	out, err := tier.ViewAbout(r.Context(), s.Role, items, func(c *core.Core) ([]view.PlanVerdict, error) {
		return c.Verdicts(time.Now(), items), nil
	})
	if err != nil {
		tier.WriteProblem(w, skerry.AsError(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

// Volumes lists the local volumes of the site.
func (s *Server) Volumes(ctx context.Context) ([]view.VolumeView, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]view.VolumeView, error) { return c.Volumes(), nil })
}

// Migrate moves one instance to another worker of the site.
func (s *Server) Migrate(ctx context.Context, id skerry.InstanceID, r view.MigrateRequest, actor string) (view.Migrating, error) {
	to, err := s.Role.Do(ctx, core.MigrateInstance{ID: id, To: r.To, Reason: r.Reason, Force: r.Force, Actor: actor})
	name, _ := to.(string)
	return view.Migrating{Instance: id, Worker: skerry.WorkerName(name)}, err
}

// serveMigrate moves an instance of the root's because somebody there wants it. The root names no worker, and learns of none.
func (s *Server) serveMigrate(w http.ResponseWriter, r *http.Request, id skerry.InstanceID) {
	var m view.RootMigrate
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<10))
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil || r.Method != http.MethodPost {
		tier.WriteProblem(w, skerry.Errorf(skerry.CodeInvalid, "the root's request to move an instance cannot be read"))
		return
	}
	move := core.MigrateInstance{ID: id, Reason: m.Reason, Force: m.Force, Actor: m.Actor, Root: true}
	if _, err = s.Role.Do(r.Context(), move); err != nil {
		tier.WriteProblem(w, skerry.AsError(err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// Orphans lists what workers run and keep, and this site's store does not know or take up.
func (s *Server) Orphans(ctx context.Context) ([]view.Orphan, error) {
	return tier.View(ctx, s.Role, (*core.Core).Orphans)
}
