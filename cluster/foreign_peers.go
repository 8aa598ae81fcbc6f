package cluster

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
)

const (
	// foreignFirst is the first number for workers of other sites: those of the site's own come before it, because a prefix of
	// the site goes with each.
	foreignFirst skerry.PeerID = 1 << 24
	// foreignRest is how long a worker of another site that nobody speaks of any more keeps its number here: longer than
	// anybody remembers a route.
	foreignRest = time.Hour
	// maxForeign bounds the workers of one other site that are known here, those that rest among them.
	maxForeign = 16384
	// maxIn bounds the workers of other sites that one worker here is told of because they have routes to it.
	maxIn = 4096
	// maxPrefixes and maxExtents bound the prefixes of one of them, and of a site.
	maxPrefixes, maxExtents = 1024, 256
)

// Reasons for which what other sites say is refused.
const (
	refusedPeers   = "more workers of another site than are kept in mind"
	refusedExtents = "addresses that another site may not have"
)

// acquaint takes workers of another site in place of those that the same mail named before. It gives those that are known
// now.
func (c *Core) acquaint(site string, was, is []skerry.ForeignPeer) []skerry.ForeignPeer {
	f := &c.foreign
	var met []skerry.ForeignPeer
	for _, p := range is {
		if c.meet(site, p) {
			f.refs[foreignName(site, p.ID)]++
			met = append(met, p)
		}
	}
	for _, p := range was {
		name := foreignName(site, p.ID)
		if f.refs[name]--; f.refs[name] <= 0 {
			delete(f.refs, name)
			f.idle[name], f.idleDue = time.Time{}, time.Time{}
		}
	}
	return met
}

// meet takes up a worker of another site, under a number of this one. Its addresses must be of that site's extents, so that
// one site cannot take another's packets. It gives false where there are too many of that site already.
func (c *Core) meet(site string, p skerry.ForeignPeer) bool {
	f := &c.foreign
	info := f.sites[site]
	name := foreignName(site, p.ID)
	if c.fabric.Foreign[name] == 0 {
		if f.known[site] >= maxForeign {
			c.fabric.refused[refusedPeers]++
			return false
		}
		f.known[site]++
		if c.fabric.Foreign == nil {
			c.fabric.Foreign = map[string]skerry.PeerID{}
		}
		c.fabric.LastForeign = max(c.fabric.LastForeign, foreignFirst-1) + 1
		c.fabric.Foreign[name] = c.fabric.LastForeign
		c.fabric.dirty = true
	}
	p.Prefixes = slices.DeleteFunc(slices.Clone(p.Prefixes[:min(len(p.Prefixes), maxPrefixes)]), func(q netip.Prefix) bool {
		return info == nil || !slices.ContainsFunc(info.Extents, func(e netip.Prefix) bool { return e.Bits() <= q.Bits() && e.Contains(q.Addr()) }) || c.own(q)
	})
	c.fabric.names[c.fabric.Foreign[name]] = name
	f.peers[name], f.again = p, true
	// Who knows it already must learn of its new key or addresses.
	c.paths.TouchUsers(name)
	return true
}

// foreignIn lists the workers of other sites that have routes to a worker here: as those sites say, where they may want
// something of it.
func (c *Core) foreignIn(w *worker) (out []string) {
	for _, site := range slices.Sorted(maps.Keys(c.foreign.in)) {
		if !c.hasWhat(w, site) {
			continue
		}
		for _, p := range c.foreign.in[site].Peers {
			if len(out) == maxIn {
				c.fabric.refused[refusedPeers]++
				return out
			}
			if slices.Contains(p.To, w.Peer) {
				out = append(out, foreignName(site, p.ID))
			}
		}
	}
	return out
}

// hasWhat reports whether something runs on a worker, or ends there, of which another site wants the routes.
func (c *Core) hasWhat(w *worker, site string) bool {
	for _, p := range c.byWorker[w.Name] {
		if c.interests.SiteHas(site, p.A.Service) {
			return true
		}
	}
	for _, h := range w.leaving {
		if c.interests.SiteHas(site, h.service) {
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

// loadForeign takes up the numbers of an earlier life. Who is not spoken of again is forgotten.
func (c *Core) loadForeign() {
	for name, id := range c.fabric.Foreign {
		c.fabric.names[id] = name
		site, _, _ := strings.Cut(name, "/")
		c.foreign.known[site]++
		c.foreign.idle[name] = time.Time{}
	}
}

// forgetForeign gives up the numbers of workers of other sites that no mail has named for long and no route leads to. No
// number is given twice.
func (c *Core) forgetForeign(now time.Time) {
	f := &c.foreign
	if len(f.idle) == 0 || now.Before(f.idleDue) {
		return
	}
	f.idleDue = now.Add(foreignRest)
	for name, since := range f.idle {
		switch {
		case f.refs[name] > 0:
			delete(f.idle, name)
			continue
		case since.IsZero() || c.paths.Reached(name):
			since = now
		case now.Sub(since) >= foreignRest:
			site, _, _ := strings.Cut(name, "/")
			if f.known[site]--; f.known[site] <= 0 {
				delete(f.known, site)
			}
			delete(c.fabric.names, c.fabric.Foreign[name])
			delete(c.fabric.Foreign, name)
			delete(f.peers, name)
			delete(f.idle, name)
			c.fabric.dirty, f.again = true, true
			continue
		}
		f.idle[name] = since
		if due := since.Add(foreignRest); due.Before(f.idleDue) {
			f.idleDue = due
		}
	}
}

// theirs gives those of another site's prefixes that it may have: private ones that are no larger than a site's, and in which
// neither this site, nor a host here, nor another site that was known before, is.
func (c *Core) theirs(site string, extents []netip.Prefix) (out []netip.Prefix, refused int) {
	var taken []netip.Prefix
	for name, s := range c.foreign.sites {
		if name != site {
			taken = append(taken, s.Extents...)
		}
	}
	for _, w := range c.workers {
		taken = append(taken, networksOf(w.Facts)...)
	}
	shared := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10) // RFC 6598
	for _, p := range extents {
		a := p.Addr()
		fits := p.IsValid() && p == p.Masked() && !a.Is4In6() && (a.Is4() && p.Bits() >= 16 || a.Is6() && p.Bits() >= 48) &&
			(a.IsPrivate() || shared.Contains(a) || c.pool().Contains(a))
		if !fits || len(out) == maxExtents || c.own(p) || slices.ContainsFunc(taken, p.Overlaps) {
			refused++
			continue
		}
		out = append(out, p)
	}
	return out, refused
}

// reviewSites looks again at which addresses other sites may have.
func (c *Core) reviewSites() {
	for name := range c.foreign.sites {
		var s skerry.SiteInfo
		value, orphaned, ok := c.Up.Desired.Get(skerry.SiteKey(name))
		if !ok || orphaned || c.codec.Unmarshal(value, &s) != nil {
			continue
		}
		if now, _ := c.theirs(name, s.Extents); !slices.Equal(now, c.foreign.sites[name].Extents) {
			c.foreignItem(skerry.SiteKey(name), value, false)
		}
	}
}
