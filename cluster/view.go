package cluster

import (
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Workers lists the site's workers by name.
func (c *Core) Workers() []view.WorkerView {
	count := map[string]int{}
	for _, p := range c.places {
		count[p.Worker]++
	}
	out := make([]view.WorkerView, 0, len(c.workers))
	for name, w := range c.workers {
		v := view.WorkerView{Name: skerry.WorkerName(name), Lost: w.sight.Lost(), Hold: w.Hold, Held: w.report.Held, Refusing: w.refusing(), Facts: w.Facts, Reserved: w.reserved,
			Available: w.available(), Used: w.report.Used, Coordinate: w.report.Coordinate, ReportAt: w.reportAt, Instances: count[name]}
		if v.Beats, v.CutOff = w.sight.Beats(), w.sight.CutOff(); w.sight.Lost() {
			v.Verdict = c.detect.Verdict(w.Name)
		}
		v.Carrier = w.Carrier
		v.Updates = w.updates()
		told := w.trust.Record()
		v.Credit, v.Claims = tier.ViewCredit(told.Credit), told.Claims
		v.Drain, v.Upgrade = c.drainer.viewDrain(w), w.Agent
		if k := c.Kids.Get(name); k != nil {
			v.Connected, v.Since, v.Version, v.Machine = k.Connected, k.Since, k.Version, k.Machine
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b view.WorkerView) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out
}

// Instances lists every instance at the site: those placed, whoever wants them, and those of the site's own
// applications that have no place yet.
func (c *Core) Instances() []wire.Instance {
	out := make([]wire.Instance, 0, len(c.places))
	for _, id := range sortedIDs(c.places) {
		if p := c.places[id]; !p.Refused {
			out = append(out, c.show(p))
		}
	}
	for _, a := range c.Apps.Apps() {
		for _, i := range c.Apps.InstancesOf(a.Key()) {
			if c.places[i.ID] == nil && c.groups[i.ID] == nil {
				out = append(out, i.Instance)
			}
		}
	}
	return out
}

// Instance finds one instance, or gives false.
func (c *Core) Instance(id skerry.InstanceID) (wire.Instance, *wire.Decision, bool) {
	if p := c.places[id]; p != nil {
		return c.show(p), p.Decision, true
	}
	if i := c.Apps.Instance(id); i != nil {
		return i.Instance, i.Decision, true
	}
	return wire.Instance{}, nil, false
}

// AppViews lists the site's own applications and what it holds of the root's, by key.
func (c *Core) AppViews(manifest bool) []view.AppView {
	out := []view.AppView{}
	for _, a := range c.Apps.Apps() {
		if !a.Borrowed {
			out = append(out, c.Apps.View(a, "cluster", manifest))
		}
	}
	for _, v := range c.rootApps() {
		if c.amender.overrides.Has(v.Key) {
			v = c.viewAmended(v, manifest)
		}
		out = append(out, v)
	}
	for _, k := range c.amender.overrides.Apps() { // of which nothing is left here
		if !slices.ContainsFunc(out, func(v view.AppView) bool { return v.Key == k }) {
			told, _ := c.amender.overrides.Show(k)
			out = append(out, c.viewAmended(view.AppView{Key: k, Org: c.amender.overrides.Org(k), Origin: "root", Deployed: true, Gen: told.Base, Services: []view.ServiceView{}}, manifest))
		}
	}
	c.showIngress(out)
	return out
}

// rootApps shows the root's applications as far as this site knows them: the services and instances that it holds.
func (c *Core) rootApps() []view.AppView {
	by := map[skerry.AppKey]*view.AppView{}
	services := map[skerry.ServiceKey]*view.ServiceView{}
	worst := map[skerry.ServiceKey]*wire.Worst{}
	see := func(a *spec.Assignment) *view.ServiceView {
		v := by[a.Service.App]
		if v == nil {
			v = &view.AppView{Key: a.Service.App, Org: a.Org, Deployed: true, Origin: "root", Status: "Ready"}
			by[a.Service.App] = v
		}
		v.Gen = max(v.Gen, a.Gen)
		s := services[a.Service]
		if s == nil {
			s = &view.ServiceView{Name: a.Service.Service, Mode: a.Spec.Mode, Image: a.Spec.Image, Digest: a.Digest[a.Spec.Image], Revision: a.Revision,
				Probed: a.Spec.Probes.Readiness != nil || a.Spec.Probes.Startup != nil}
			services[a.Service] = s
		}
		return s
	}
	for _, id := range sortedIDs(c.places) {
		p := c.places[id]
		if p.Origin != "root" || p.Refused {
			continue
		}
		s := see(&p.A)
		s.Want++
		s.Instances++
		s.UpToDate++
		s.Restarts += p.Obs.Restarts
		if worst[p.A.Service] == nil {
			worst[p.A.Service] = &wire.Worst{}
		}
		shown := c.show(p)
		worst[p.A.Service].See(&shown)
		if p.Obs.CrashLoop != "" {
			s.CrashLoops++
			by[p.A.Service.App].Status = "Progressing"
		}
		if p.Obs.Ready {
			s.Ready++
		} else {
			by[p.A.Service.App].Status = "Progressing"
		}
		if p.qos != nil {
			sum := *p.qos
			if s.QoS != nil {
				sum = s.QoS.Add(sum)
			}
			s.QoS = &sum
		}
	}
	for k, s := range services {
		s.Reason = worst[k].String()
		by[k.App].Services = append(by[k.App].Services, *s)
	}
	out := make([]view.AppView, 0, len(by))
	for _, v := range by {
		slices.SortFunc(v.Services, func(a, b view.ServiceView) int { return strings.Compare(a.Name, b.Name) })
		v.Reason = apps.Reason(v.Services)
		c.Apps.ViewNetwork(v, c.network(v.Key), true)
		out = append(out, *v)
	}
	slices.SortFunc(out, func(a, b view.AppView) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out
}

// WorkerOf names the worker that runs an instance, or "".
func (l *ledger) WorkerOf(id skerry.InstanceID) string {
	if p := l.places[id]; p != nil {
		return p.Worker
	}
	return ""
}

// Scrapes lists the instances that run and whose service declares metrics.
func (c *Core) Scrapes() []view.Scrape {
	out := []view.Scrape{}
	for _, id := range sortedIDs(c.places) {
		if p := c.places[id]; !p.Refused && p.A.Spec.Metrics != nil && p.Obs.State == skerry.Running {
			out = append(out, view.Scrape{Instance: c.show(p), Metrics: *p.A.Spec.Metrics})
		}
	}
	return out
}

// viewAmended shows an application that was changed here while the root is away. v is what is here of it.
func (c *Core) viewAmended(v view.AppView, manifest bool) view.AppView {
	told, deleted := c.amender.overrides.Show(v.Key)
	if a := c.Apps.App(v.Key); a != nil {
		network, rest := v.Network, v.Services
		v = c.Apps.View(a, "root", manifest)
		v.Network = network
		for _, s := range rest {
			if !slices.ContainsFunc(v.Services, func(o view.ServiceView) bool { return o.Name == s.Name }) {
				v.Services = append(v.Services, s)
			}
		}
		c.Apps.ViewNetwork(&v, c.network(v.Key), true)
	}
	if deleted {
		v.Status, v.Deleting = "Deleting", true
	}
	v.Amended = told
	return v
}
