package core

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
func (o *overlay) startIngress(now time.Time, fx *wire.Effects) {
	if record := o.ingress.Start(o.opt.IngressAuthority); record != nil {
		fx.Put(network.KeyIngress, record)
	}
	for name := range o.workers {
		if k := o.Children.Get(name); k != nil {
			if value, orphaned, ok := k.Observed.Get(wire.IngressKey); ok && !orphaned {
				o.ingressState(now, name, value)
			}
		}
	}
}

// ingressState takes what a worker tells of its ingress; nil: nothing any more.
func (o *overlay) ingressState(now time.Time, name string, value []byte) {
	if o.workers[name] == nil {
		return
	}
	st := new(wire.IngressState)
	if value == nil || o.codec.Unmarshal(value, st) != nil {
		st = nil
	}
	o.uplink.Touch()
	o.certs.look = true
	o.Apps.Waits(now, name, o.ingress.Tell(name, st))
}

// settleIngress has it worked out who gets which way in, where something about that may have changed, and the directories of applications
// that are concerned published.
func (o *overlay) settleIngress(now time.Time, fx *wire.Effects) {
	look := o.linked
	if o.ingress.Fresh() {
		look = maps.Clone(o.linked)
		for _, a := range o.Apps.Apps() {
			look[a.Key()] = true
		}
		for key := range o.Up.Desired.All() {
			if rest, ok := strings.CutPrefix(key, "net/"); ok {
				if k, err := skerry.ParseAppKey(rest, ""); err == nil {
					look[k] = true
				}
			}
		}
	}
	record, changed, refusals, directories := o.ingress.Settle(look)
	if record != nil {
		fx.Put(network.KeyIngress, record)
	}
	if !changed {
		return
	}
	o.wantCerts()
	for _, r := range refusals {
		o.tellRefused(now, &r, fx)
	}
	for _, app := range directories {
		o.linked[app] = true
	}
	o.uplink.Touch()
	for _, name := range slices.Sorted(maps.Keys(o.workers)) {
		if w := o.workers[name]; w.hasIngress() && w.cramped(o.attached(w)) {
			o.admit(now, w, fx)
		}
	}
}

// tellRefused tells that an application does not get a way in.
func (o *overlay) tellRefused(now time.Time, r *network.Refusal, fx *wire.Effects) {
	text := "ingress " + r.String() + " of service " + r.Service + " is not offered: " + r.Why
	for _, id := range sortedIDs(o.byApp[r.App]) {
		if p := o.places[id]; p.A.Service.Service == r.Service {
			o.event(fx, now, p, wire.EventWarning, "IngressRefused", text)
			return
		}
	}
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "IngressRefused", Text: text,
		App: r.App, Service: r.Service, Org: r.Org, Cluster: skerry.ClusterName(o.opt.Name)})
}

// ingressesChanged has the directories of applications with a way in published again: workers with an ingress came or went.
func (o *overlay) ingressesChanged() {
	for app := range o.ingress.Apps() {
		o.linked[app] = true
	}
	o.certs.look = true
}

// showIngress adds the ways in to the views of applications.
func (o *overlay) showIngress(list []view.AppView) {
	for i := range list {
		by := o.ingress.Views(list[i].Key)
		for _, ways := range by {
			for j := range ways {
				if ways[j].TLS == spec.TLSACME {
					ways[j].Certificate = o.certs.State(ways[j].Host, list[i].Org, list[i].Key)
				}
			}
		}
		for j := range list[i].Services {
			list[i].Services[j].Ingress = by[list[i].Services[j].Name]
		}
	}
}

// foldIngress tells the root of the ways in to its applications.
func (o *overlay) foldIngress() *wire.SiteIngress {
	entries := o.ingress.Entries(func(app skerry.AppKey) bool { return o.localApp(app) != nil })
	if len(entries) == 0 {
		return nil
	}
	return &wire.SiteIngress{Zone: o.opt.Zone, Servers: o.opt.NameServers, Entries: entries}
}

// ingressView is what the ways in see of a site.
type ingressView struct{ o *overlay }

// Asked implements network.IngressSite.
func (g ingressView) Asked(app skerry.AppKey) (out []network.AppIngress) {
	add := func(org, service string, list []spec.Ingress) {
		for _, in := range list {
			out = append(out, network.AppIngress{App: app, Org: org, Service: service, Ingress: in})
		}
	}
	if a := g.o.localApp(app); a != nil {
		for i := range a.Manifest.Spec.Services {
			if s := &a.Manifest.Spec.Services[i]; !a.Deleting {
				add(a.Org, s.Name, s.Ingress)
			}
		}
		return out
	}
	n := g.o.network(app)
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

// Admit implements network.IngressSite.
func (g ingressView) Admit(org string) string { return g.o.opt.Admission.CheckIngress(org) }

// Open implements network.IngressSite.
func (g ingressView) Open() (out []network.IngressWorker) {
	for _, name := range slices.Sorted(maps.Keys(g.o.workers)) {
		if w := g.o.workers[name]; w.hasIngress() && !w.sight.Lost() {
			k, at := g.o.Children.Get(name), w.Facts.Overlay
			out = append(out, network.IngressWorker{Worker: name, Connected: k != nil && k.Connected, Addrs: at.Ingress,
				Networks: at.Networks, Unaware: !w.Facts.Knows(spec.FeatureAliases), Answers: w.Facts.Knows(spec.FeatureChallenges)})
		}
	}
	return out
}

// Ends implements network.IngressSite.
func (g ingressView) Ends(way *network.AppIngress) []skerry.ServiceKey {
	if n := g.o.network(way.App); n != nil && way.Alias != "" {
		if alias := n.Alias(way.Alias); alias != nil {
			return n.Ends(alias)
		}
	}
	return []skerry.ServiceKey{{App: way.App, Service: way.Service}}
}

// Ready implements network.IngressSite.
func (g ingressView) Ready(k skerry.ServiceKey) bool {
	n := g.o.network(k.App)
	sleeps := func(s wire.NetworkService) bool { return s.Sleeps && n.Real(&s) == k }
	if n != nil && slices.ContainsFunc(n.Services, sleeps) {
		return true
	}
	return slices.ContainsFunc(g.o.backends(k), func(b backend) bool { return !b.Draining })
}
