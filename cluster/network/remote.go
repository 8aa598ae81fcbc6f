package network

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

const (
	// RemoteFirst is the first number for workers of other sites: those of the site's own come before it, because a prefix of
	// the site goes with each.
	RemoteFirst wire.PeerID = 1 << 24
	// RemoteRest is how long a worker of another site that no mail names keeps its number here: longer than anybody
	// remembers a route.
	RemoteRest = time.Hour
	// MaxRemote bounds the workers of one other site that are known here, those that rest among them.
	MaxRemote = 16384
	// MaxUsers bounds the workers of other sites that one worker here is told of because they have routes to it.
	MaxUsers = 4096
	// maxPrefixes and maxExtents bound the prefixes of one of them, and of a site.
	maxPrefixes, maxExtents = 1024, 256
)

// Reasons for which a statement of another site is refused.
const (
	RefusedPeers   = "more workers of another site than are kept in mind"
	RefusedExtents = "addresses that another site may not have"
)

// Home is what Remote must know of its own site.
type Home interface {
	// Owns reports whether a prefix overlaps the addresses of this site's own instances.
	Owns(netip.Prefix) bool
	// Pool is where sites take IPv4 prefixes for instances from, and Networks are those that the site's hosts are in.
	Pool() netip.Prefix
	Networks() []netip.Prefix
	// Reached reports whether a route here leads to a worker of another site.
	Reached(worker string) bool
	// Changed is called when the key or the addresses of a worker of another site change.
	Changed(worker string)
}

// Numbers is the part of the site's record that Remote owns.
type Numbers struct {
	Remote     map[string]wire.PeerID `json:"foreign,omitempty"`     // by RemoteName
	LastRemote wire.PeerID            `json:"lastForeign,omitempty"` // number given last
}

// Remote is what a site knows of the others: the addresses that each may have, where the instances of their services
// are, and which of their workers exchange packets with workers here. The root introduces a site; all else comes by
// mail from its cluster.
//
//	introduced ─► its mail is read ─► the workers that it names get numbers here
//	                                      └─ no mail names one, and no route leads there, for an hour ─► forgotten
//
// No site gets addresses that belong to this one, to a host here or to a third site, and no number is given twice.
type Remote struct {
	home    Home
	sites   map[string]*wire.SiteInfo
	routes  map[skerry.ServiceKey]map[string]*wire.RemoteRoute // by site
	users   map[string]*wire.RemotePeers                       // by site: its workers that have routes to workers here
	heard   map[string]map[skerry.ServiceKey]uint64            // by site: routes from here that all its workers have; nil: it never said
	peers   map[string]wire.RemotePeer                         // workers that are known
	numbers Numbers
	refs    map[string]int       // how many mails name a worker
	known   map[string]int       // by site: workers with a number
	idle    map[string]time.Time // since when no mail names a worker; the zero time: it has just ended
	idleDue time.Time
	unsaved bool
	dirty   bool
	refused map[string]int
}

// RemoteName names a worker of another site among workers; no worker's name has a slash.
func RemoteName(site string, id wire.PeerID) string { return site + "/" + id.String() }

// NewRemote makes a site that knows of no other.
func NewRemote(home Home) *Remote {
	return &Remote{home: home, sites: map[string]*wire.SiteInfo{}, routes: map[skerry.ServiceKey]map[string]*wire.RemoteRoute{},
		users: map[string]*wire.RemotePeers{}, heard: map[string]map[skerry.ServiceKey]uint64{},
		peers: map[string]wire.RemotePeer{}, refs: map[string]int{}, known: map[string]int{},
		idle: map[string]time.Time{}, refused: map[string]int{RefusedPeers: 0, RefusedExtents: 0}}
}

// Load takes up the numbers of an earlier life. A worker that no mail names again is forgotten.
func (r *Remote) Load(n Numbers) {
	r.numbers = Numbers{Remote: maps.Clone(n.Remote), LastRemote: n.LastRemote}
	for name := range n.Remote {
		site, _, _ := strings.Cut(name, "/")
		r.known[site]++
		r.idle[name] = time.Time{}
	}
}

// Numbers are to be saved with the site's record, which Unsaved asks for, once.
func (r *Remote) Numbers() Numbers { return r.numbers }

// Unsaved reports whether the numbers have changed since it was called last.
func (r *Remote) Unsaved() bool {
	was := r.unsaved
	r.unsaved = false
	return was
}

// Dirty reports whether sites or workers have changed since it was called last.
func (r *Remote) Dirty() bool {
	was := r.dirty
	r.dirty = false
	return was
}

// Refused counts the statements that were refused so far, by reason.
func (r *Remote) Refused() map[string]int { return r.refused }

// Introduce takes a site, with those of its addresses that it may have.
func (r *Remote) Introduce(s wire.SiteInfo) {
	extents, refused := r.allowed(string(s.Name), s.Extents)
	s.Extents = extents
	r.refused[RefusedExtents] += refused
	r.sites[string(s.Name)], r.dirty = &s, true
	for name := range r.peers { // whether they are told addresses may have changed
		if strings.HasPrefix(name, string(s.Name)+"/") {
			r.home.Changed(name)
		}
	}
}

// Leave forgets the introduction of a site.
func (r *Remote) Leave(site string) {
	delete(r.sites, site)
	delete(r.heard, site)
	r.dirty = true
}

// Outdated reports whether a site that is introduced anew would get other addresses than it has.
func (r *Remote) Outdated(s *wire.SiteInfo) bool {
	is := r.sites[string(s.Name)]
	now, _ := r.allowed(string(s.Name), s.Extents)
	return is == nil || !slices.Equal(now, is.Extents)
}

// Site gives a site as it was introduced, or nil.
func (r *Remote) Site(name string) *wire.SiteInfo { return r.sites[name] }

// Sites lists the sites that were introduced, by name.
func (r *Remote) Sites() []string { return slices.Sorted(maps.Keys(r.sites)) }

// Extents lists the addresses that other sites may have, by name of the site.
func (r *Remote) Extents() (out []netip.Prefix) {
	for _, name := range r.Sites() {
		out = append(out, r.sites[name].Extents...)
	}
	return out
}

// allowed gives those of another site's prefixes that it may have: private ones that are no larger than a site's, and in which neither this
// site, nor a host here, nor another site that was known before, is.
func (r *Remote) allowed(site string, extents []netip.Prefix) (out []netip.Prefix, refused int) {
	taken := r.home.Networks()
	for name, s := range r.sites {
		if name != site {
			taken = append(taken, s.Extents...)
		}
	}
	shared := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10) // RFC 6598
	for _, p := range extents {
		a := p.Addr()
		fits := p.IsValid() && p == p.Masked() && !a.Is4In6() && (a.Is4() && p.Bits() >= 16 || a.Is6() && p.Bits() >= 48) &&
			(a.IsPrivate() || shared.Contains(a) || r.home.Pool().Contains(a))
		if !fits || len(out) == maxExtents || r.home.Owns(p) || slices.ContainsFunc(taken, p.Overlaps) {
			refused++
			continue
		}
		out = append(out, p)
	}
	return out, refused
}

// SetRoute takes where the instances of a service at another site are; nil, or a route that is longer than one may be: nowhere.
func (r *Remote) SetRoute(site string, k skerry.ServiceKey, route *wire.RemoteRoute) {
	var was, is []wire.RemotePeer
	if old := r.routes[k][site]; old != nil {
		was = old.Peers
	}
	if route == nil || route.Route.Service != k || len(route.Route.Backends) > wire.MaxBackends || len(route.Peers) > wire.MaxBackends {
		if delete(r.routes[k], site); len(r.routes[k]) == 0 {
			delete(r.routes, k)
		}
		r.acquaint(site, was, nil)
		return
	}
	is = route.Peers
	if r.routes[k] == nil {
		r.routes[k] = map[string]*wire.RemoteRoute{}
	}
	r.routes[k][site] = route
	route.Peers = r.acquaint(site, was, is)
}

// Part takes that nobody is to be sent to the instances of a service at another site any more; what goes there already may go on.
func (r *Remote) Part(site string, k skerry.ServiceKey) {
	if route := r.routes[k][site]; route != nil {
		for i := range route.Route.Backends {
			route.Route.Backends[i].Draining = true
		}
	}
}

// SetUsers takes which workers of another site have routes to which workers here; nil: none. It returns the numbers of
// the workers here that are concerned.
func (r *Remote) SetUsers(site string, users *wire.RemotePeers) (concerned []wire.PeerID) {
	var was, is []wire.RemotePeer
	if old := r.users[site]; old != nil {
		was = old.Peers
	}
	if users == nil {
		delete(r.users, site)
		r.acquaint(site, was, nil)
	} else {
		r.users[site] = users
		users.Peers = r.acquaint(site, was, users.Peers)
		is = users.Peers
	}
	for _, p := range slices.Concat(was, is) {
		concerned = append(concerned, p.To...)
	}
	return concerned
}

// SetHeard takes that all workers of another site have a route of a service here; nil: it does not say so any more.
func (r *Remote) SetHeard(site string, k skerry.ServiceKey, is *wire.HeardRoute) {
	if is == nil {
		delete(r.heard[site], k)
		return
	}
	if r.heard[site] == nil {
		r.heard[site] = map[skerry.ServiceKey]uint64{}
	}
	r.heard[site][k] = is.Mail
}

// Heard gives what a site says of the route of a service here that all its workers have, and whether it ever says so.
func (r *Remote) Heard(site string, k skerry.ServiceKey) (mail uint64, says bool) {
	return r.heard[site][k], r.heard[site] != nil
}

// acquaint takes workers of another site in place of those that the same mail named before. It gives those that are known
// now.
func (r *Remote) acquaint(site string, was, is []wire.RemotePeer) (met []wire.RemotePeer) {
	for _, p := range is {
		if r.meet(site, p) {
			r.refs[RemoteName(site, p.ID)]++
			met = append(met, p)
		}
	}
	for _, p := range was {
		name := RemoteName(site, p.ID)
		if r.refs[name]--; r.refs[name] <= 0 {
			delete(r.refs, name)
			r.idle[name], r.idleDue = time.Time{}, time.Time{}
		}
	}
	return met
}

// meet takes up a worker of another site, under a number of this one. Its addresses must be of that site's extents, so that
// one site cannot take another's packets. It gives false where there are too many of that site already.
func (r *Remote) meet(site string, peer wire.RemotePeer) bool {
	info, name, n := r.sites[site], RemoteName(site, peer.ID), &r.numbers
	if n.Remote[name] == 0 {
		if r.known[site] >= MaxRemote {
			r.refused[RefusedPeers]++
			return false
		}
		r.known[site]++
		if n.Remote == nil {
			n.Remote = map[string]wire.PeerID{}
		}
		n.LastRemote = max(n.LastRemote, RemoteFirst-1) + 1
		n.Remote[name] = n.LastRemote
		r.unsaved = true
	}
	peer.Prefixes = slices.DeleteFunc(slices.Clone(peer.Prefixes[:min(len(peer.Prefixes), maxPrefixes)]), func(q netip.Prefix) bool {
		return info == nil || !slices.ContainsFunc(info.Extents,
			func(e netip.Prefix) bool { return e.Bits() <= q.Bits() && e.Contains(q.Addr()) }) || r.home.Owns(q)
	})
	r.peers[name], r.dirty = peer, true
	r.home.Changed(name)
	return true
}

// Known counts the workers of other sites that have a number here.
func (r *Remote) Known() int { return len(r.numbers.Remote) }

// Number is that of a worker of another site here; 0: it has none.
func (r *Remote) Number(name string) wire.PeerID { return r.numbers.Remote[name] }

// Peers lists the workers of other sites that are known, by name.
func (r *Remote) Peers() []string { return slices.Sorted(maps.Keys(r.peers)) }

// Peer gives a worker of another site, as that site named it, with its site.
func (r *Remote) Peer(name string) (p wire.RemotePeer, site string, ok bool) {
	p, ok = r.peers[name]
	site, _, _ = strings.Cut(name, "/")
	return p, site, ok
}

// RemoteBackend is an instance at another site.
type RemoteBackend struct {
	wire.RouteBackend        // with the number that its worker has here
	Worker            string // by RemoteName
}

// Backends lists the instances of a service at other sites, those at addresses that their workers may have.
func (r *Remote) Backends(k skerry.ServiceKey) (out []RemoteBackend) {
	for _, site := range slices.Sorted(maps.Keys(r.routes[k])) {
		for _, b := range r.routes[k][site].Route.Backends {
			name := RemoteName(site, b.Peer)
			p, ok := r.peers[name]
			has := func(a netip.Addr) bool {
				return slices.ContainsFunc(p.Prefixes, func(q netip.Prefix) bool { return q.Contains(a) })
			}
			if !ok || !has(b.Addr) {
				continue
			}
			b.Peer = r.numbers.Remote[name]
			b.Coordinate = nil // of another space
			if b.Addr6.IsValid() && !has(b.Addr6) {
				b.Addr6 = netip.Addr{}
			}
			out = append(out, RemoteBackend{b, name})
		}
	}
	return out
}

// Users lists the workers of other sites that have routes to a worker here, as their sites say; of sites that has holds
// for, because they may want something of that worker.
func (r *Remote) Users(of wire.PeerID, has func(site string) bool) (out []string) {
	for _, site := range slices.Sorted(maps.Keys(r.users)) {
		if !has(site) {
			continue
		}
		for _, p := range r.users[site].Peers {
			if len(out) == MaxUsers {
				r.refused[RefusedPeers]++
				return out
			}
			if slices.Contains(p.To, of) {
				out = append(out, RemoteName(site, p.ID))
			}
		}
	}
	return out
}

// Due is when Forget has something to do, and whether it has; the zero time is at once.
func (r *Remote) Due() (time.Time, bool) { return r.idleDue, len(r.idle) > 0 }

// Forget gives up the numbers of workers that no mail has named for long and no route leads to.
func (r *Remote) Forget(now time.Time) {
	if len(r.idle) == 0 || now.Before(r.idleDue) {
		return
	}
	r.idleDue = now.Add(RemoteRest)
	for name, since := range r.idle {
		switch {
		case r.refs[name] > 0:
			delete(r.idle, name)
			continue
		case since.IsZero() || r.home.Reached(name):
			since = now
		case now.Sub(since) >= RemoteRest:
			site, _, _ := strings.Cut(name, "/")
			if r.known[site]--; r.known[site] <= 0 {
				delete(r.known, site)
			}
			delete(r.numbers.Remote, name)
			delete(r.peers, name)
			delete(r.idle, name)
			r.unsaved, r.dirty = true, true
			continue
		}
		r.idle[name] = since
		if due := since.Add(RemoteRest); due.Before(r.idleDue) {
			r.idleDue = due
		}
	}
}

// Audit reports where the counts differ from the mail, and workers with addresses that are not their site's.
func (r *Remote) Audit() (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	refs, known := map[string]int{}, map[string]int{}
	count := func(site string, list []wire.RemotePeer) {
		for _, p := range list {
			refs[RemoteName(site, p.ID)]++
		}
	}
	for _, at := range r.routes {
		for site, route := range at {
			count(site, route.Peers)
		}
	}
	for site, u := range r.users {
		count(site, u.Peers)
	}
	if !maps.Equal(refs, r.refs) {
		bad("mails name workers of other sites %v times, counted %v", refs, r.refs)
	}
	given := map[wire.PeerID]string{}
	for name, id := range r.numbers.Remote {
		site, _, _ := strings.Cut(name, "/")
		known[site]++
		if given[id] != "" || id < RemoteFirst || id > r.numbers.LastRemote {
			bad("%s has number %d, as %q has, up to %d", name, id, given[id], r.numbers.LastRemote)
		}
		given[id] = name
		if _, rests := r.idle[name]; refs[name] == 0 && !rests {
			bad("no mail names %s, and it does not rest", name)
		}
	}
	if !maps.Equal(known, r.known) {
		bad("sites have %v workers with numbers, counted %v", known, r.known)
	}
	for name := range r.peers {
		if r.numbers.Remote[name] == 0 {
			bad("%s is known and has no number", name)
		}
	}
	return faults
}
