package cluster

import (
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// startIngress takes up what workers told an earlier life, and gives the site its authority if it has none.
func (c *Core) startIngress(now time.Time, fx *wire.Effects) {
	if record := c.ingress.Start(c.opt.IngressAuthority); record != nil {
		fx.Put(network.KeyIngress, record)
	}
	for name := range c.workers {
		if k := c.Kids.Get(name); k != nil {
			if value, orphaned, ok := k.Observed.Get(wire.IngressKey); ok && !orphaned {
				c.ingressState(now, name, value)
			}
		}
	}
}

// ingressState takes what a worker tells of its ingress; nil: nothing any more.
func (c *Core) ingressState(now time.Time, name string, value []byte) {
	if c.workers[name] == nil {
		return
	}
	st := new(wire.IngressState)
	if value == nil || c.codec.Unmarshal(value, st) != nil {
		st = nil
	}
	c.uplink.Touch()
	c.Apps.Waits(now, name, c.ingress.Tell(name, st))
}

// attached is how many addresses of a worker are in use: those of instances, and of its ingress in each network.
func (c *Core) attached(w *worker) int {
	n := len(c.byWorker[w.Name])
	if w.hasIngress() {
		n += c.ingress.Networks()
	}
	return n
}

// settleIngress has it worked out who gets which way in, where something about that may have changed, and the directories of applications
// that are concerned published.
func (c *Core) settleIngress(now time.Time, fx *wire.Effects) {
	look := c.linked
	if c.ingress.Fresh() {
		look = maps.Clone(c.linked)
		for _, a := range c.Apps.Apps() {
			look[a.Key()] = true
		}
		for key := range c.Up.Desired.All() {
			if rest, ok := strings.CutPrefix(key, "net/"); ok {
				if k, err := skerry.ParseAppKey(rest, ""); err == nil {
					look[k] = true
				}
			}
		}
	}
	record, changed, refusals, directories := c.ingress.Settle(look)
	if record != nil {
		fx.Put(network.KeyIngress, record)
	}
	if !changed {
		return
	}
	for _, r := range refusals {
		c.tellRefused(now, &r, fx)
	}
	for _, app := range directories {
		c.linked[app] = true
	}
	c.uplink.Touch()
	for _, name := range slices.Sorted(maps.Keys(c.workers)) {
		if w := c.workers[name]; w.hasIngress() && w.cramped(c.attached(w)) {
			c.admit(now, w, fx)
		}
	}
}

// tellRefused tells that an application does not get a way in.
func (c *Core) tellRefused(now time.Time, r *network.Refusal, fx *wire.Effects) {
	text := "ingress " + r.String() + " of service " + r.Service + " is not offered: " + r.Why
	for _, id := range sortedIDs(c.byApp[r.App]) {
		if p := c.places[id]; p.A.Service.Service == r.Service {
			c.event(fx, now, p, wire.EventWarning, "IngressRefused", text)
			return
		}
	}
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "IngressRefused", Text: text,
		App: r.App, Service: r.Service, Org: r.Org, Cluster: skerry.ClusterName(c.opt.Name)})
}

// letsIn reports whether a worker's ingress leads to a service.
func (c *Core) letsIn(name string, k skerry.ServiceKey) bool {
	w := c.workers[name]
	return w != nil && w.hasIngress() && c.ingress.Offers(k)
}

// gatesChanged has the directories of applications with a way in published again: workers with an ingress came or went.
func (o *overlay) gatesChanged() {
	for app := range o.ingress.Apps() {
		o.linked[app] = true
	}
}

// showIngress adds the ways in to the views of applications.
func (o *overlay) showIngress(list []view.AppView) {
	for i := range list {
		by := o.ingress.Views(list[i].Key)
		for j := range list[i].Services {
			list[i].Services[j].Ingress = by[list[i].Services[j].Name]
		}
	}
}

// foldIngress tells the root of the ways in to its applications.
func (c *Core) foldIngress() *wire.SiteIngress {
	doors := c.ingress.Doors(func(app skerry.AppKey) bool { return c.ownApp(app) != nil })
	if len(doors) == 0 {
		return nil
	}
	return &wire.SiteIngress{Zone: c.opt.Zone, Servers: c.opt.NameServers, Doors: doors}
}

// gates is what the ways in see of a site.
type gates struct{ c *Core }

// Asked implements network.Gates.
func (g gates) Asked(app skerry.AppKey) (out []network.Door) {
	add := func(org, service string, list []spec.Ingress) {
		for _, in := range list {
			out = append(out, network.Door{App: app, Org: org, Service: service, Ingress: in})
		}
	}
	if a := g.c.ownApp(app); a != nil {
		for i := range a.Manifest.Spec.Services {
			if s := &a.Manifest.Spec.Services[i]; !a.Deleting {
				add(a.Org, s.Name, s.Ingress)
			}
		}
		return out
	}
	n := g.c.network(app)
	if n == nil {
		return nil
	}
	for i := range n.Services {
		if s := &n.Services[i]; s.Of == (skerry.ServiceKey{}) {
			add(n.Org, s.Name, s.Ingress)
		}
	}
	return out
}

// Admit implements network.Gates.
func (g gates) Admit(org string) string { return g.c.opt.Admission.CheckIngress(org) }

// Open implements network.Gates.
func (g gates) Open() (out []network.Gate) {
	for _, name := range slices.Sorted(maps.Keys(g.c.workers)) {
		if w := g.c.workers[name]; w.hasIngress() && !w.sight.Lost() {
			k := g.c.Kids.Get(name)
			o := w.Facts.Overlay
			out = append(out, network.Gate{Worker: name, Connected: k != nil && k.Connected, Addrs: o.Ingress, Networks: o.Networks})
		}
	}
	return out
}

// Ready implements network.Gates.
func (g gates) Ready(k skerry.ServiceKey) bool {
	n := g.c.network(k.App)
	sleeps := func(s wire.NetworkService) bool { return s.Sleeps && n.Real(&s) == k }
	if n != nil && slices.ContainsFunc(n.Services, sleeps) {
		return true
	}
	return slices.ContainsFunc(g.c.backends(k), func(b backend) bool { return !b.Draining })
}
