package cluster

import (
	"net/netip"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// home answers the questions of what the site knows of others.
type home struct{ c *Core }

func (h home) Owns(p netip.Prefix) bool {
	f := &h.c.fabric
	return f.ULA.IsValid() && f.ULA.Overlaps(p) || slices.ContainsFunc(f.Extents, func(e netip.Prefix) bool { return e.Overlaps(p) })
}

func (h home) Pool() netip.Prefix { return h.c.pool() }

func (h home) Networks() (out []netip.Prefix) {
	for _, w := range h.c.workers {
		out = append(out, networksOf(w.Facts)...)
	}
	return out
}

func (h home) Reached(worker string) bool { return h.c.paths.Reached(worker) }

func (h home) Changed(worker string) { h.c.paths.TouchUsers(worker) }

// remoteUsers lists the workers of other sites that a worker here is told of, because they have routes to it.
func remoteUsers(c *Core, w *worker) []string {
	return c.foreign.sites.Users(w.Peer, func(site string) bool { return hasWhat(c, w, site) })
}

// hasWhat reports whether something runs on a worker, or ends there, of which another site wants the routes.
func hasWhat(c *Core, w *worker, site string) bool {
	for _, p := range c.byWorker[w.Name] {
		if c.interests.SiteHas(site, p.A.Service) {
			return true
		}
	}
	for _, h := range w.leaving {
		if c.interests.SiteHas(site, h.Service) {
			return true
		}
	}
	for id := range c.moving {
		if p := c.places[id]; p.Next.Worker == w.Name && c.interests.SiteHas(site, p.A.Service) {
			return true
		}
	}
	return false
}

// remotePeer is what a worker is told of one of another site, or nil.
func remotePeer(c *Core, name string) *wire.OverlayPeer {
	p, site, ok := c.foreign.sites.Peer(name)
	if !ok {
		return nil
	}
	info := c.foreign.sites.Site(site)
	return &wire.OverlayPeer{ID: c.foreign.sites.Number(name), Key: p.Key, Prefixes: p.Prefixes, Indirect: !c.opt.Direct || info == nil || !info.Direct}
}

// remoteBackends lists the instances of a service at other sites.
func remoteBackends(c *Core, k skerry.ServiceKey) (out []backend) {
	for _, b := range c.foreign.sites.Backends(k) {
		out = append(out, backend{b.RouteBackend, nil, b.Worker})
	}
	return out
}

// reviewSites looks again at which addresses other sites may have.
func reviewSites(c *Core) {
	for _, name := range c.foreign.sites.Sites() {
		var s wire.SiteInfo
		value, orphaned, ok := c.Up.Desired.Get(wire.SiteKey(name))
		if ok && !orphaned && c.codec.Unmarshal(value, &s) == nil && c.foreign.sites.Outdated(&s) {
			c.foreignItem(wire.SiteKey(name), value, false)
		}
	}
}
