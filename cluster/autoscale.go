package cluster

import (
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// autoscale changes the share of the root's services whose load asks for it.
func (c *Core) autoscale(now time.Time, fx *wire.Effects) {
	if away, _ := c.uplink.Away(); !c.scaling.Begin(now, away) {
		return
	}
	type share struct {
		autonomy.Share
		gen skerry.Generation
	}
	by := map[skerry.ServiceKey]*share{}
	for _, p := range c.places {
		if of := p.Origin == "root" || c.overrides.Has(p.A.Service.App); !of || p.Group != "" || p.A.Spec.Scale == nil || p.A.Spec.Mode != spec.ModeService || p.Removing || p.Refused || p.ended() {
			continue
		}
		s := by[p.A.Service]
		if s == nil {
			s = &share{}
			by[p.A.Service] = s
		}
		if s.Spec == nil || s.gen < p.A.Gen {
			s.Spec, s.gen = &p.A.Spec, p.A.Gen
		}
		s.N++
		if p.Obs.Ready && c.workers.uses(p) {
			s.Load.Measured++
			s.Load.CPU += p.qos.CPU
		}
	}
	came := c.came()
	keys := make([]skerry.ServiceKey, 0, len(by))
	for k := range by {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b skerry.ServiceKey) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		s := by[k]
		s.Before, s.Total = s.N, s.N
		if s.Spec.Replicas != nil {
			s.Total = *s.Spec.Replicas
		}
		if c.overrides.Has(k.App) {
			a := c.Apps.App(k.App)
			before, total, ok := c.overrides.Share(k)
			if a == nil || a.Deleting || !ok || a.Manifest.Spec.Service(k.Service) == nil {
				continue
			}
			s.N, s.Before, s.Total = *a.Manifest.Spec.Service(k.Service).Replicas, before, total
		}
		s.Load.Came(came[k])
		if n, why := c.scaling.Want(now, k, &s.Share); n != s.N {
			var more wire.Effects
			if c.amend(now, k.App, apps.Scale{Service: k, Replicas: n, Actor: "its load: " + why}, &more); more.Err == nil {
				fx.Merge(more)
			}
		}
	}
}

// scaleOf tells why a service has so many instances here, as far as the site decides about that.
func (c *Core) scaleOf(k skerry.ServiceKey) *view.ScaleView {
	if v := c.scaling.View(k); v != nil {
		return v
	}
	return c.Apps.Scale(k)
}

// countable drops what no ingress can have counted.
func countable(list []wire.IngressUse) []wire.IngressUse {
	list = list[:min(len(list), wire.MaxIngressUses)]
	return slices.DeleteFunc(list, func(u wire.IngressUse) bool { return !u.Valid() })
}

// cameBy tells the site's own applications what came to them by a worker's ingress.
func (c *Core) cameBy(now time.Time, w *worker) {
	by := map[skerry.ServiceKey]wire.IngressUse{}
	for _, u := range w.report.Ingress {
		if c.ownApp(u.Service.App) != nil {
			by[u.Service] = by[u.Service].Add(u)
		}
	}
	c.Apps.Came(now, w.Name, by)
}

// came sums what comes to the root's services by the ingresses of the site.
func (c *Core) came() map[skerry.ServiceKey]wire.IngressUse {
	by := map[skerry.ServiceKey]wire.IngressUse{}
	for _, name := range slices.Sorted(maps.Keys(c.workers)) { // the sums do not depend on the order
		w := c.workers[name]
		if w.sight.Lost() {
			continue
		}
		for _, u := range w.report.Ingress {
			if c.ownApp(u.Service.App) == nil {
				by[u.Service] = by[u.Service].Add(u)
			}
		}
	}
	return by
}

// foldCame tells the root what comes to its services here.
func (c *Core) foldCame() []wire.IngressUse {
	var out []wire.IngressUse
	for k, u := range c.came() {
		u.Service = k
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b wire.IngressUse) int { return strings.Compare(a.Service.String(), b.Service.String()) })
	return out[:min(len(out), wire.MaxIngressUses)]
}
