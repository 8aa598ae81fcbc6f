package core

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// gateways keep how far sites are from each other: of their gateways the round trips that these measure to each other, of their workers the
// middle and the radius of the aggregates. Limited links between services at two sites are bound by that, first by the root, which
// chooses the sites, then by the sites, which choose the workers and are told where the other ends are.
type gateways struct {
	space  *coord.Space
	said   map[string]wire.Gateway // by site
	probes map[string]string       // by address: the site that answers there; the first that tells of one keeps it
	key    []byte                  // of the datagrams
	keyID  uint16
	dirty  bool                                         // who measures to whom must be looked at again
	told   map[[2]string]float64                        // round trips that sites were told; small changes are none
	given  map[skerry.AppKey]map[string]map[string]bool // by site: keys of items about where other ends are
	asked  map[string]time.Time                         // when the round trip of a site's own link was asked for
	lack   map[string]bool                              // sites whose own link is to be measured
	missed bool                                         // a decision has asked for a round trip since what waits was tried again
}

const (
	// gatewaysEach is how many gateways one measures round trips to, as for workers (cluster/network PeersEach).
	gatewaysEach = 12
	// linkAgain and linkLater are how soon a link is measured again whose round trip is not known, or is.
	linkAgain, linkLater = time.Minute, 10 * time.Minute
	// mostFar is how many sites of a service another one is told of.
	mostFar = 16
)

func newGateways(seed []byte) gateways {
	key := sha256.Sum256(append([]byte("gateways of sites"), seed...))
	return gateways{space: coord.NewSpace(), said: map[string]wire.Gateway{}, probes: map[string]string{}, key: key[:],
		keyID: binary.BigEndian.Uint16(key[:]), told: map[[2]string]float64{}, given: map[skerry.AppKey]map[string]map[string]bool{},
		asked: map[string]time.Time{}, lack: map[string]bool{}}
}

// decide is way for decisions about places.
func (g *gateways) decide(a, b string) (ms float64, ok bool) {
	g.missed = true
	return g.way(a, b)
}

// way gives the round trip between two sites, and notes whose own link should be measured because nothing better is known.
func (g *gateways) way(a, b string) (ms float64, ok bool) {
	if ms, ok = g.space.RTT(a, b); !ok {
		g.lack[a], g.lack[b] = true, true
	}
	return ms, ok
}

// link takes the round trip on a site's own link; 0: no answer came.
func (g *gateways) link(site string, rtt time.Duration) {
	g.space.Link(site, float64(rtt)/float64(time.Millisecond))
	g.dirty = true
}

// take takes what a site says of its gateway; nil: nothing any more.
func (g *gateways) take(site string, said *wire.Gateway) {
	if _, known := g.said[site]; !known && said == nil {
		return
	}
	g.dirty = true
	if said == nil || said.Probe != g.said[site].Probe {
		maps.DeleteFunc(g.probes, func(_, holder string) bool { return holder == site })
	}
	if said == nil {
		delete(g.said, site)
		g.space.Hear(site, nil)
		return
	}
	g.said[site] = *said
}

// settle takes up what was said, now that it is known which site answers where, and gives each gateway those to measure to.
func (g *gateways) settle(put func(site string, p *wire.Peers)) {
	if !g.dirty {
		return
	}
	g.dirty = false
	for _, site := range slices.Sorted(maps.Keys(g.said)) { // whoever had it may have given it up
		if probe := g.said[site].Probe; probe != "" && g.probes[probe] == "" {
			g.probes[probe] = site
		}
	}
	ring := slices.SortedFunc(maps.Keys(g.probes), func(a, b string) int {
		if x, y := spot(g.probes[a]), spot(g.probes[b]); x != y {
			if x < y {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, site := range slices.Sorted(maps.Keys(g.said)) {
		heard := map[string]float64{}
		for _, h := range g.said[site].Heard {
			if to := g.probes[h.Probe]; to != "" {
				heard[to] = h.Ms
			}
		}
		g.space.Hear(site, heard)
		p := wire.Peers{KeyID: g.keyID, Key: g.key}
		first, _ := slices.BinarySearchFunc(ring, spot(site), func(addr string, at uint64) int {
			if x := spot(g.probes[addr]); x < at {
				return -1
			}
			return 1
		})
		for k := range ring {
			if addr := ring[(first+k)%len(ring)]; g.probes[addr] != site && len(p.List) < gatewaysEach {
				p.List = append(p.List, addr)
			}
		}
		put(site, &p)
	}
}

// spot is where a site is on the ring on which each measures to those that follow it.
func spot(site string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(site))
	x := h.Sum64()
	return (x ^ x>>33) * 0xff51afd7ed558ccd // FNV leaves similar names close together
}

// renew has all datagrams made with another key: a site that was removed knows the old one.
func (g *gateways) renew() {
	mac := hmac.New(sha256.New, g.key)
	mac.Write([]byte("next"))
	g.key, g.keyID, g.dirty = mac.Sum(nil), g.keyID+1, true
}

// remove forgets a site.
func (g *gateways) remove(site string) {
	_, known := g.said[site]
	g.take(site, nil)
	g.space.Remove(site)
	delete(g.asked, site)
	maps.DeleteFunc(g.told, func(pair [2]string, _ float64) bool { return slices.Contains(pair[:], site) })
	for app, at := range g.given {
		if delete(at, site); len(at) == 0 {
			delete(g.given, app)
		}
	}
	if known {
		g.renew()
	}
}

// steady is way for what sites are told: a round trip that changed by a tenth, or a millisecond, has not changed.
func (g *gateways) steady(a, b string) float64 {
	if b < a {
		a, b = b, a
	}
	pair := [2]string{a, b}
	ms, ok := g.way(a, b)
	if was, told := g.told[pair]; ok && !(told && math.Abs(ms-was) <= max(1, was/10)) {
		g.told[pair] = math.Ceil(ms*10) / 10 // never 0, which says that it is not known
	} else if !ok {
		delete(g.told, pair)
	}
	return g.told[pair]
}

// gatewayItem reports whether an item that a site reports, or no longer does, is of this kind, and takes it up.
func gatewayItem(c *Core, site, key string, value []byte, there bool) bool {
	if key != wire.GatewayItem {
		return false
	}
	var said wire.Gateway
	if there && c.codec.Unmarshal(value, &said) == nil {
		said.Bound()
		c.relations.gateways.take(site, &said)
	} else {
		c.relations.gateways.take(site, nil)
	}
	return true
}

// reported takes up what a site's aggregate says of where it is: other sites are told, and its gateway's place becomes clearer.
func reported(c *Core, site string, old *siteReport, r *wire.ClusterReport) {
	g := &c.relations.gateways
	g.space.Settle(site)
	was := (*spec.Location)(nil)
	if old != nil {
		was = old.report.Centroid
	}
	if len(g.given) > 0 && ((was == nil) != (r.Centroid == nil) || was != nil && !(coord.GreatCircleKm(*was, *r.Centroid) <= 1)) {
		g.dirty = true
	}
}

// measureLinks asks for the round trips of sites' own links that a decision lacked.
func measureLinks(c *Core, now time.Time, fx *wire.Effects) {
	g := &c.relations.gateways
	for _, site := range slices.Sorted(maps.Keys(g.lack)) {
		again := linkAgain
		if g.space.Linked(site) {
			again = linkLater
		}
		if k := c.Children.Get(site); k != nil && k.Connected && now.Sub(g.asked[site]).Abs() >= again {
			g.asked[site] = now
			fx.Actions = append(fx.Actions, Appraise{Name: site})
		}
	}
	clear(g.lack)
}

// loadGateways finds out what an earlier life gave.
func loadGateways(c *Core) {
	for _, name := range c.Children.Names() {
		k := c.Children.Get(name)
		for _, key := range k.Desired.Keys() {
			if s, ok := wire.ParseFarKey(key); ok {
				c.relations.gateways.gave(s.App, name, key)
			}
		}
		if value, orphaned, ok := k.Observed.Get(wire.GatewayItem); ok && !orphaned {
			gatewayItem(c, name, wire.GatewayItem, value, true)
		}
	}
}

func (g *gateways) gave(app skerry.AppKey, site, key string) {
	if g.given[app] == nil {
		g.given[app] = map[string]map[string]bool{}
	}
	if g.given[app][site] == nil {
		g.given[app][site] = map[string]bool{}
	}
	g.given[app][site][key] = true
}

// publishGateways tells gateways whom to measure to, and sites where the services at other sites are that limited links lead to, or from.
func publishGateways(c *Core, now time.Time, fx *wire.Effects) {
	g := &c.relations.gateways
	changed := g.dirty
	g.settle(func(site string, p *wire.Peers) { _ = c.Children.Put(site, wire.PeersKey, c.codec.Marshal(p)) })
	list := c.nets.dirty
	if changed {
		list = maps.Clone(list)
		for app := range g.given {
			list[app] = true
		}
		if g.missed {
			g.missed = false
			c.Apps.RetryNow()
		}
	}
	for _, app := range slices.SortedFunc(maps.Keys(list), skerry.AppKey.Compare) {
		publishFar(c, app)
	}
	measureLinks(c, now, fx)
}

// ends is a service of an application: where it is, and its limited links.
type ends struct {
	sites map[string]bool
	links []spec.Link
}

// publishFar tells the sites of an application where the other ends of limited links are.
func publishFar(core *Core, app skerry.AppKey) {
	g := &core.relations.gateways
	services, limited := endsOf(core.Apps.InstancesOf(app)), false
	for _, e := range services {
		limited = limited || len(e.links) > 0
	}
	if !limited && g.given[app] == nil {
		return
	}
	wanted := map[string]map[string]bool{}
	for name, e := range services {
		for other, o := range services {
			if name == other || !leads(e.links, other) && !leads(o.links, name) {
				continue
			}
			key := skerry.ServiceKey{App: app, Service: name}
			for site := range o.sites {
				f := wire.Far{Service: key, Links: e.links, At: farSites(core, site, e.sites)}
				if len(f.At) == 0 || core.Children.Put(site, wire.FarKey(key), core.codec.Marshal(&f)) != nil {
					continue
				}
				g.gave(app, site, wire.FarKey(key))
				if wanted[site] == nil {
					wanted[site] = map[string]bool{}
				}
				wanted[site][wire.FarKey(key)] = true
			}
		}
	}
	for site, keys := range g.given[app] {
		for key := range keys {
			if !wanted[site][key] {
				core.Children.Delete(site, key)
				delete(keys, key)
			}
		}
		if len(keys) == 0 {
			delete(g.given[app], site)
		}
	}
	if len(g.given[app]) == 0 {
		delete(g.given, app)
	}
}

// farSites are the sites of a service that one site is told of: the nearest, one of which is enough. A site that has the
// service itself needs none where there are more than that, or what the sites of a large federation are told would grow by
// the square of their number.
func farSites(c *Core, site string, at map[string]bool) (out []wire.FarSite) {
	if at[site] && len(at) > mostFar {
		return nil
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(at)), func(name string) bool { return name == site })
	if len(names) > mostFar {
		ms := map[string]float64{}
		for _, name := range names {
			ms[name] = math.Inf(1)
			if x, ok := c.relations.gateways.space.RTT(site, name); ok {
				ms[name] = x
			}
		}
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(ms[a], ms[b]) })
		names = slices.Sorted(slices.Values(names[:mostFar]))
	}
	for _, name := range names {
		out = append(out, farSite(c, site, name))
	}
	return out
}

// farSite is what one site is told of another.
func farSite(c *Core, site, at string) wire.FarSite {
	s := wire.FarSite{Site: at, Ms: c.relations.gateways.steady(site, at)}
	if r := c.reports[at]; r != nil && r.report.Centroid != nil && r.report.Centroid.Valid() {
		s.Location = r.report.Centroid
	}
	return s
}

// endsOf lists the services of instances.
func endsOf(list []*apps.Instance) map[string]*ends {
	out := map[string]*ends{}
	for _, i := range list {
		if !i.Live() || i.Spec == nil {
			continue
		}
		e := out[i.Service.Service]
		if e == nil {
			e = &ends{sites: map[string]bool{}}
			for _, l := range i.Spec.Links {
				if l.Limited() {
					e.links = append(e.links, l)
				}
			}
			out[i.Service.Service] = e
		}
		for _, site := range holders(i) {
			e.sites[site] = true
		}
	}
	return out
}

func leads(links []spec.Link, to string) bool {
	return slices.ContainsFunc(links, func(l spec.Link) bool { return l.Service == to })
}
