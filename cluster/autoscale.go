package cluster

import (
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// While the root is away the site has the number of instances of the root's services follow their load here, where they ask for
// that (scale). It changes its share by an amendment, as its operator would; numbers are adopted when the root is back.

// scaleAfter is for how long the root must have been away: a connection that comes back soon costs no amendment.
const scaleAfter = 30 * time.Second

// scaleDue is when loads are looked at next, or the zero time.
func (c *Core) scaleDue() time.Time {
	since, _ := c.uplink.Away()
	if since.IsZero() || !c.scaling.any {
		return time.Time{}
	}
	if at := since.Add(scaleAfter); c.scaling.at.Before(at) {
		return at
	}
	return c.scaling.at.Add(apps.ScaleEvery)
}

// autoscale changes the share of the root's services whose load asks for it.
func (c *Core) autoscale(now time.Time, fx *wire.Effects) {
	if now.Before(c.scaling.at) { // the clock was set back
		c.scaling.at = time.Time{}
	}
	due := c.scaleDue()
	if due.IsZero() {
		if c.Up.Connected {
			clear(c.scalers)
		}
		return
	}
	if now.Before(due) {
		return
	}
	c.scaling.at = now
	type share struct {
		spec *spec.ServiceSpec
		gen  skerry.Generation
		n    int
		load apps.Load
	}
	by := map[skerry.ServiceKey]*share{}
	for _, p := range c.places {
		if of := p.Origin == "root" || c.amends[p.A.Service.App] != nil; !of || p.Group != "" || p.A.Spec.Scale == nil || p.A.Spec.Mode != spec.ModeService || p.Removing || p.Refused || p.ended() {
			continue
		}
		s := by[p.A.Service]
		if s == nil {
			s = &share{}
			by[p.A.Service] = s
		}
		if s.spec == nil || s.gen < p.A.Gen {
			s.spec, s.gen = &p.A.Spec, p.A.Gen
		}
		s.n++
		if p.Obs.Ready && c.uses(p) {
			s.load.Measured++
			s.load.CPU += p.qos.CPU
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
		before, total := s.n, s.n
		if s.spec.Replicas != nil {
			total = *s.spec.Replicas
		}
		if m := c.amends[k.App]; m != nil {
			a, b := c.Apps.App(k.App), m.Services[k.Service]
			if a == nil || a.Deleting || b == nil || a.Manifest.Spec.Service(k.Service) == nil {
				continue
			}
			s.n, before, total = *a.Manifest.Spec.Service(k.Service).Replicas, b.Share, b.Total
		}
		lo, hi := shareOf(s.spec.Scale, before, total)
		sc := c.scalers[k]
		if sc == nil {
			sc = &apps.Scaler{}
			c.scalers[k] = sc
		}
		s.load.Came(came[k])
		if n := sc.Want(now, s.spec, lo, hi, s.n, s.load); n != s.n {
			var more wire.Effects
			if c.amend(now, k.App, apps.Scale{Service: k, Replicas: n, Actor: "its load: " + sc.Why()}, &more); more.Err == nil {
				fx.Merge(more)
			}
		}
	}
}

// shareOf gives the fewest and most instances that a site with some of all of them may have. A share of nothing is all.
func shareOf(s *spec.ScaleSpec, share, total int) (lo, hi int) {
	lo, hi = s.Limits()
	if total <= share || total <= 0 {
		return lo, hi
	}
	part := func(n int) int { return max(1, (n*share+total-1)/total) }
	return part(lo), part(hi)
}

// scaleOf tells why a service has so many instances here, as far as the site decides about that.
func (c *Core) scaleOf(k skerry.ServiceKey) *view.ScaleView {
	if sc := c.scalers[k]; sc != nil {
		return sc.View()
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
