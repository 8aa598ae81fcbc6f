package core

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/decide/ipam"
	"skerry.dev/skerry/wire"
)

// remote is what is known of other sites, and what they, the root and the site's own relay are told of each other.
type remote struct {
	sites    *network.Remote
	partings *moves.Partings
	// lawful are services that there are, and that somebody here wants who may reach them; other sites are asked for those alone.
	lawful  map[skerry.ServiceKey]bool
	mail    map[string]bool // sites whose mail about peers must be written again
	dirty   bool            // what the root is told must be looked at again
	again   bool            // so must whom the relay serves
	said    map[string]bool // keys of what was reported to the root of this kind
	relay   RelayUp
	served  wire.RelayConfig // what the relay was told
	gateway gateway
}

// gateway is the site's place in the network of the federation, as far as this site knows it.
type gateway struct {
	told  *wire.Gateway
	peers []byte // whom to measure to, as the root says; nil: it has not said
	due   bool   // the gateway must be told
}

// abroad is what other sites and this one have to do with each other: what they, the root and the site's relay are told.
//
//	the root introduces a site ─► remoteItem ─► its mail is read ─► routes and workers there
//	a service that others want ─► publishRemote ─► sealed mail, by way of the root
type abroad struct {
	*directories
	remote remote
	paths  *network.Paths
}

func newRemote(h home) remote {
	return remote{sites: network.NewRemote(h), partings: moves.NewPartings(), dirty: true, lawful: map[skerry.ServiceKey]bool{},
		mail: map[string]bool{}, said: map[string]bool{}}
}

// RelayUp tells where the site's relay takes datagrams and streams, and where it is reached from other sites. Unspecified
// addresses stand for that by which a worker reaches the cluster.
type RelayUp struct {
	UDP, TLS netip.AddrPort
	Pin      [32]byte
	Public   netip.AddrPort // the zero value: other sites do not reach it
}

// ServeRelay says whom the relay is to serve.
type ServeRelay struct{ Config wire.RelayConfig }

// mail is the site's end of what is sealed between clusters.
func (a *abroad) mail() network.Mail { return network.NewMail(a.overlayNet.Secret, a.opt.Name) }

// remoteItem takes an item of the root that concerns other sites; gone says that it is no longer there. It reports whether
// the key is of this kind.
func (a *abroad) remoteItem(key string, value []byte, gone bool) bool {
	remote := &a.remote
	if a.gatewayItem(key, value, gone) {
		return true
	}
	remote.partings.End(key)
	switch kind, rest, _ := strings.Cut(key, "/"); kind {
	case "site":
		for name, w := range a.workers { // all must know what belongs to the overlay
			if w.Peer != 0 {
				a.readmit[name] = true
			}
		}
		if gone {
			a.remote.sites.Leave(rest)
			a.farewells.Touch(rest + "/")
			return true
		}
		var s wire.SiteInfo
		if a.codec.Unmarshal(value, &s) == nil && string(s.Name) == rest && rest != a.opt.Name {
			a.remote.sites.Introduce(s)
			a.readMail(rest) // what came before could not be read
			remote.mail[rest] = true
			a.interests.TouchSite(rest)
		}
		return true
	case "wanted":
		if k, site, ok := wire.ParseWantedKey(key); ok {
			if gone {
				a.interests.RemoveSite(site, k)
				a.farewells.Touch(site + "/")
			} else {
				a.interests.AddSite(site, k)
			}
		}
		return true
	case "from":
		if site, topic, ok := wire.ParseMail(key); ok {
			a.takeMail(site, topic, value, gone)
		}
		return true
	}
	return false
}

// withdrawn takes that the root tells an item no more. From then on nobody is sent to another site because of it, and the other site is told
// nothing; what packets under way need of it stays until let.
func (a *abroad) withdrawn(now time.Time, key string) {
	site, topic, mail := wire.ParseMail(key)
	kind, rest, _ := strings.Cut(key, "/")
	k, route := wire.RouteTopic(topic)
	switch {
	case kind == "site":
		a.farewells.Touch(rest + "/")
	case kind == "wanted":
		a.remoteItem(key, nil, true)
	case kind == "from" && mail && route:
		a.remote.sites.Part(site, k)
		a.noRoute(site, k)
	case kind == "from" && topic == wire.TopicPeers:
	default:
		a.remoteItem(key, nil, true)
		return
	}
	a.remote.partings.Begin(key, now)
}

// let ends what was withdrawn a while ago.
func (a *abroad) let(now time.Time) {
	for _, key := range a.remote.partings.Over(now) {
		a.remoteItem(key, nil, true)
	}
}

// noRoute takes that another site tells no route of a service there.
func (a *abroad) noRoute(site string, k skerry.ServiceKey) {
	a.hearing.End(moves.Heard{Site: site, Service: k})
	a.unpost(wire.MailTo(site, wire.TopicHeard(k)))
	a.interests.Touch(k)
}

// gatewayItem takes an item of the root that concerns the gateway, or where services at other sites are; gone says that it is no longer
// there. It reports whether the key is of this kind.
func (a *abroad) gatewayItem(key string, value []byte, gone bool) bool {
	f := &a.remote
	if k, ok := wire.ParseFarKey(key); ok {
		var far wire.Far
		if !gone && a.codec.Unmarshal(value, &far) == nil && far.Service == k {
			far.Bound()
			a.far.Set(k, &far)
		} else {
			a.far.Set(k, nil)
		}
		a.freed() // what waits may have a place now
		return true
	}
	if key == wire.PeersKey {
		f.gateway.peers, f.gateway.due = value, true
		return true
	}
	return false
}

// readMail reads again what another site wrote, now that its key is known.
func (a *abroad) readMail(site string) {
	for key, value := range a.Up.Desired.All() {
		if from, topic, ok := wire.ParseMail(key); ok && from == site && strings.HasPrefix(key, "from/") {
			a.takeMail(from, topic, value, false)
		}
	}
}

// takeMail takes what another site says of routes there, or of its workers.
func (a *abroad) takeMail(site, topic string, value []byte, gone bool) {
	open := func(v any) bool {
		plain, err := a.mail().Open(a.remote.sites.Site(site), topic, value)
		return !gone && err == nil && a.codec.Unmarshal(plain, v) == nil
	}
	if k, ok := wire.RouteTopic(topic); ok {
		if route := new(wire.RemoteRoute); open(route) {
			a.remote.sites.SetRoute(site, k, route)
			a.hearing.Begin(moves.Heard{Site: site, Service: k})
			a.interests.Touch(k)
		} else {
			a.remote.sites.SetRoute(site, k, nil)
			a.noRoute(site, k)
		}
		return
	}
	if rest, ok := strings.CutPrefix(topic, "heard/"); ok {
		k, ok := skerry.ParseServiceKey(rest)
		heard := new(wire.HeardRoute)
		if !ok {
			return
		}
		if !open(heard) || heard.Service != k {
			heard = nil
		}
		a.remote.sites.SetHeard(site, k, heard)
		a.farewells.Touch(site + "/")
		return
	}
	if topic != wire.TopicPeers {
		return
	}
	users := new(wire.RemotePeers)
	if !open(users) {
		users = nil
	}
	for _, id := range a.remote.sites.SetUsers(site, users) {
		if name := a.overlayNet.names[id]; name != "" {
			a.paths.Touch(name)
		}
	}
}

// asRemote is what another site is told of a worker here.
func (a *abroad) asRemote(w *worker) wire.RemotePeer {
	p := wire.RemotePeer{ID: w.Peer, Key: w.Facts.Overlay.Key, Prefixes: slices.Clone(w.Blocks)}
	if six, err := ipam.Subnet64(a.overlayNet.ULA, uint32(w.Peer)); err == nil {
		p.Prefixes = append(p.Prefixes, six)
	}
	return p
}

// publishRemote tells other sites of the instances of a service here.
func (a *abroad) publishRemote(service skerry.ServiceKey, all []backend) {
	route := wire.RemoteRoute{Route: wire.Route{Service: service, Net: a.networkOf(service.App)}}
	seen := map[string]bool{}
	for _, b := range all {
		if b.worker == nil || len(route.Route.Backends) == wire.MaxBackends {
			continue
		}
		e := b.RouteBackend
		e.Coordinate, e.Instance = nil, "" // a copy's id names its worker
		route.Route.Backends = append(route.Route.Backends, e)
		if !seen[b.worker.Name] {
			seen[b.worker.Name] = true
			route.Peers = append(route.Peers, a.asRemote(b.worker))
		}
	}
	for _, site := range a.interests.Sites(service) {
		a.post(site, wire.TopicRoute(service), &route)
	}
	for _, key := range slices.Sorted(maps.Keys(a.remote.said)) {
		if site, topic, ok := wire.ParseMail(key); ok && topic == wire.TopicRoute(service) && !a.interests.SiteHas(site, service) {
			a.unpost(key)
		}
	}
}

func (a *abroad) post(site, topic string, v any) {
	key := wire.MailTo(site, topic)
	if a.remote.partings.Has(wire.SiteKey(site)) {
		return // the root brings it nothing from here any more
	}
	if b, ok := a.mail().Seal(a.remote.sites.Site(site), topic, a.codec.Marshal(v)); ok {
		if _, err := a.Up.Observed.Put(key, b); err == nil {
			a.remote.said[key] = true
		}
	}
}

// confirmRoutes tells other sites which of their routes all workers here have.
func (a *abroad) confirmRoutes(list []moves.Heard) {
	for _, k := range list {
		value, orphaned, ok := a.Up.Desired.Get(wire.MailFrom(k.Site, wire.TopicRoute(k.Service)))
		if ok && !orphaned {
			a.post(k.Site, wire.TopicHeard(k.Service), &wire.HeardRoute{Service: k.Service, Mail: sumOf(value)})
		}
	}
}

func (a *abroad) unpost(key string) {
	a.Up.Observed.Delete(key)
	delete(a.remote.said, key)
}

// relayUp takes up where the site's relay is.
func (a *abroad) relayUp(m RelayUp) {
	a.remote.relay, a.remote.dirty, a.remote.again = m, true, true
	a.remote.served = wire.RelayConfig{} // it is a new one
	a.remote.gateway.due = a.remote.gateway.peers != nil
	for name, w := range a.workers {
		if w.Peer != 0 {
			a.readmit[name] = true
		}
	}
}

// changedHere has other sites told again of workers here.
func (a *abroad) changedHere() {
	a.remote.dirty, a.remote.again = true, true
	a.interests.TouchAbroad()
	for _, site := range a.remote.sites.Sites() {
		a.remote.mail[site] = true
	}
}

// publishSite tells the root what other sites must know of this one, and which services of others are wanted here; and
// other sites which workers here have routes there.
func (a *abroad) publishSite() {
	remote := &a.remote
	if a.opt.Standalone || !remote.dirty && len(remote.mail) == 0 {
		return
	}
	remote.dirty = false
	if len(a.overlayNet.names)+a.remote.sites.Known() > 0 {
		info := wire.SiteInfo{Name: skerry.ClusterName(a.opt.Name), Key: a.mail().Public(), Direct: a.opt.Direct, Relay: remote.relay.Public,
			Extents: append(slices.Clone(a.overlayNet.Extents), a.overlayNet.ULA)}
		_, _ = a.Up.Observed.Put(wire.SiteItem, a.codec.Marshal(&info))
	}
	for _, k := range slices.SortedFunc(maps.Keys(a.remote.lawful), skerry.ServiceKey.Compare) {
		if key := wire.WantKey(k); a.localApp(k.App) == nil && !remote.said[key] {
			_, _ = a.Up.Observed.Put(key, a.codec.Marshal(&wire.Want{Service: k}))
			remote.said[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(remote.said)) {
		if rest, ok := strings.CutPrefix(key, "want/"); ok {
			if k, ok := skerry.ParseServiceKey(rest); ok && !a.remote.lawful[k] {
				a.unpost(key)
			}
		}
	}
	for _, site := range slices.Sorted(maps.Keys(remote.mail)) {
		var mail wire.RemotePeers
		by := map[string]*wire.RemotePeer{}
		for _, name := range a.remote.sites.Peers() {
			p, of, _ := a.remote.sites.Peer(name)
			if of != site {
				continue
			}
			for from := range a.paths.Users(name) {
				w := a.workers[from]
				if w == nil || w.Peer == 0 || w.Facts == nil || w.Facts.Overlay == nil {
					continue
				}
				if by[from] == nil {
					q := a.asRemote(w)
					by[from] = &q
				}
				by[from].To = append(by[from].To, p.ID)
			}
		}
		for _, from := range slices.Sorted(maps.Keys(by)) {
			slices.Sort(by[from].To)
			mail.Peers = append(mail.Peers, *by[from])
		}
		if len(mail.Peers) > 0 {
			a.post(site, wire.TopicPeers, &mail)
		} else {
			a.unpost(wire.MailTo(site, wire.TopicPeers))
		}
	}
	clear(remote.mail)
}

// relayKey is a worker's at the site's relay.
func (a *abroad) relayKey(id wire.PeerID) [32]byte {
	mac := hmac.New(sha256.New, a.overlayNet.Secret)
	fmt.Fprintf(mac, "relay %d", id)
	return [32]byte(mac.Sum(nil))
}

// serveRelay tells the relay whom it serves, when that has changed.
func (a *abroad) serveRelay(fx *wire.Effects) {
	remote := &a.remote
	remote.again = a.remote.sites.Dirty() || remote.again
	if !remote.again || !remote.relay.UDP.IsValid() {
		return
	}
	remote.again = false
	var conf wire.RelayConfig
	for _, name := range slices.Sorted(maps.Keys(a.workers)) {
		if w := a.workers[name]; w.Peer != 0 {
			conf.Workers = append(conf.Workers, wire.RelayWorker{ID: w.Peer, Keys: [][32]byte{a.relayKey(w.Peer)}})
		}
	}
	for _, site := range a.remote.sites.Sites() {
		info := a.remote.sites.Site(site)
		if key, ok := a.mail().Shared(info, "relay"); ok && info.Relay.IsValid() {
			conf.Relays = append(conf.Relays, wire.RelaySite{Name: site, Addr: info.Relay, Key: key})
		}
	}
	for _, name := range a.remote.sites.Peers() {
		p, site, _ := a.remote.sites.Peer(name)
		if slices.ContainsFunc(conf.Relays, func(r wire.RelaySite) bool { return r.Name == site }) {
			conf.Routes = append(conf.Routes, wire.RelayRoute{ID: a.remote.sites.Number(name), Relay: site, Remote: p.ID})
		}
	}
	if sameRelay(conf, remote.served) {
		return
	}
	remote.served = conf
	fx.Actions = append(fx.Actions, ServeRelay{conf})
}

func sameRelay(a, b wire.RelayConfig) bool {
	return slices.EqualFunc(a.Workers, b.Workers, func(x, y wire.RelayWorker) bool { return x.ID == y.ID && slices.Equal(x.Keys, y.Keys) }) &&
		slices.Equal(a.Relays, b.Relays) && slices.Equal(a.Routes, b.Routes)
}

// isLawful notes whether other sites are to be asked for the routes of a service.
func (a *abroad) isLawful(k skerry.ServiceKey, lawful bool) {
	if a.remote.lawful[k] == lawful {
		return
	}
	a.remote.dirty = true
	if lawful {
		a.remote.lawful[k] = true
	} else {
		delete(a.remote.lawful, k)
	}
}

func (a *abroad) saveOverlayNet(fx *wire.Effects) {
	a.overlayNet.Numbers = a.remote.sites.Numbers()
	fx.Put(keyOverlayNet, mustJSON(&a.overlayNet))
}

// ensureSecret makes what keys and tags are made of.
func (a *abroad) ensureSecret(fx *wire.Effects) {
	if len(a.overlayNet.Secret) == 0 {
		mac := hmac.New(sha256.New, a.opt.Secret[:])
		mac.Write([]byte("fabric"))
		a.overlayNet.Secret = mac.Sum(nil)
		a.saveOverlayNet(fx)
	}
}

// backend is a possible end of a route.
type backend struct {
	wire.RouteBackend
	worker *worker // nil: at another site
	name   string  // of the worker, or its remoteName
}

// home answers the questions of what the site knows of others.
type home struct{ a *abroad }

func (h home) Owns(p netip.Prefix) bool { return h.a.owns(p) }

// owns reports whether addresses are this site's.
func (a *abroad) owns(p netip.Prefix) bool {
	f := &a.overlayNet
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
	return a.remote.sites.Users(w.Peer, func(site string) bool { return a.hasWhat(w, site) })
}

// hasWhat reports whether something runs on a worker, or ends there, of which another site wants the routes, or did a moment ago.
func (a *abroad) hasWhat(w *worker, site string) bool {
	wants := func(k skerry.ServiceKey) bool {
		return a.interests.SiteHas(site, k) || a.remote.partings.Has(wire.WantedKey(k, site))
	}
	for _, p := range a.byWorker[w.Name] {
		if wants(p.A.Service) {
			return true
		}
	}
	for _, h := range w.leaving {
		if wants(h.Service) {
			return true
		}
	}
	for id := range a.moving {
		if p := a.places[id]; p.Next.Worker == w.Name && wants(p.A.Service) {
			return true
		}
	}
	return false
}

// remotePeer is what a worker is told of one of another site, or nil.
func (a *abroad) remotePeer(name string) *wire.OverlayPeer {
	p, site, ok := a.remote.sites.Peer(name)
	if !ok {
		return nil
	}
	info := a.remote.sites.Site(site)
	return &wire.OverlayPeer{ID: a.remote.sites.Number(name), Key: p.Key, Prefixes: p.Prefixes,
		Indirect: !a.opt.Direct || info == nil || !info.Direct}
}

// remoteBackends lists the instances of a service at other sites.
func (a *abroad) remoteBackends(k skerry.ServiceKey) (out []backend) {
	for _, b := range a.remote.sites.Backends(k) {
		out = append(out, backend{b.RouteBackend, nil, b.Worker})
	}
	return out
}

// reviewSites looks again at which addresses other sites may have.
func (a *abroad) reviewSites() {
	for _, name := range a.remote.sites.Sites() {
		var s wire.SiteInfo
		value, orphaned, ok := a.Up.Desired.Get(wire.SiteKey(name))
		if ok && !orphaned && a.codec.Unmarshal(value, &s) == nil && a.remote.sites.Outdated(&s) {
			a.remoteItem(wire.SiteKey(name), value, false)
		}
	}
}
