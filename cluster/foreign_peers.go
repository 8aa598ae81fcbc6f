package cluster

import (
	"net/netip"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// home answers the questions of what the site knows of others.
type home struct{ a *abroad }

func (h home) Owns(p netip.Prefix) bool { return h.a.owns(p) }

// owns reports whether addresses are this site's.
func (a *abroad) owns(p netip.Prefix) bool {
	f := &a.fabric
	return f.ULA.IsValid() && f.ULA.Overlaps(p) || slices.ContainsFunc(f.Extents, func(e netip.Prefix) bool { return e.Overlaps(p) })
}

func (h home) Pool() netip.Prefix { return h.a.pool() }

func (h home) Networks() []netip.Prefix { return h.a.networks() }

// networks are those that hosts of the site are in.
func (a *abroad) networks() (out []netip.Prefix) {
	for _, w := range a.workers {
		out = append(out, networksOf(w.Facts)...)
	}
	return out
}

func (h home) Reached(worker string) bool { return h.a.paths.Reached(worker) }

func (h home) Changed(worker string) { h.a.paths.TouchUsers(worker) }

// remoteUsers lists the workers of other sites that a worker here is told of, because they have routes to it.
func (a *abroad) remoteUsers(w *worker) []string {
	return a.foreign.sites.Users(w.Peer, func(site string) bool { return a.hasWhat(w, site) })
}

// hasWhat reports whether something runs on a worker, or ends there, of which another site wants the routes.
func (a *abroad) hasWhat(w *worker, site string) bool {
	for _, p := range a.byWorker[w.Name] {
		if a.interests.SiteHas(site, p.A.Service) {
			return true
		}
	}
	for _, h := range w.leaving {
		if a.interests.SiteHas(site, h.Service) {
			return true
		}
	}
	for id := range a.moving {
		if p := a.places[id]; p.Next.Worker == w.Name && a.interests.SiteHas(site, p.A.Service) {
			return true
		}
	}
	return false
}

// remotePeer is what a worker is told of one of another site, or nil.
func (a *abroad) remotePeer(name string) *wire.OverlayPeer {
	p, site, ok := a.foreign.sites.Peer(name)
	if !ok {
		return nil
	}
	info := a.foreign.sites.Site(site)
	return &wire.OverlayPeer{ID: a.foreign.sites.Number(name), Key: p.Key, Prefixes: p.Prefixes, Indirect: !a.opt.Direct || info == nil || !info.Direct}
}

// remoteBackends lists the instances of a service at other sites.
func (a *abroad) remoteBackends(k skerry.ServiceKey) (out []backend) {
	for _, b := range a.foreign.sites.Backends(k) {
		out = append(out, backend{b.RouteBackend, nil, b.Worker})
	}
	return out
}

// reviewSites looks again at which addresses other sites may have.
func (a *abroad) reviewSites() {
	for _, name := range a.foreign.sites.Sites() {
		var s wire.SiteInfo
		value, orphaned, ok := a.Up.Desired.Get(wire.SiteKey(name))
		if ok && !orphaned && a.codec.Unmarshal(value, &s) == nil && a.foreign.sites.Outdated(&s) {
			a.foreignItem(wire.SiteKey(name), value, false)
		}
	}
}
