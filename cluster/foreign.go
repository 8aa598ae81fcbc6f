package cluster

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/decide/ipam"
	"skerry.dev/skerry/overlay/relay"
	"skerry.dev/skerry/wire"
)

// foreign is what is known of other sites, and what they, the root and the site's own relay are told of each other.
type foreign struct {
	sites *network.Remote
	// lawful are services that there are, and that somebody here wants who may reach them; other sites are asked for those alone.
	lawful  map[skerry.ServiceKey]bool
	mail    map[string]bool // sites whose mail about peers must be written again
	dirty   bool            // what the root is told must be looked at again
	again   bool            // so must whom the relay serves
	said    map[string]bool // keys of what was reported to the root of this kind
	relay   RelayUp
	served  relay.Config // what the relay was told
	far     *network.Far
	gateway gateway
}

func newForeign(h home) foreign {
	return foreign{sites: network.NewRemote(h), far: network.NewFar(), dirty: true,
		lawful: map[skerry.ServiceKey]bool{}, mail: map[string]bool{}, said: map[string]bool{}}
}

// RelayUp tells where the site's relay takes datagrams and streams, and where it is reached from other sites. Unspecified
// addresses stand for that by which a worker reaches the cluster.
type RelayUp struct {
	UDP, TLS netip.AddrPort
	Pin      [32]byte
	Public   netip.AddrPort // the zero value: other sites do not reach it
}

// ServeRelay says whom the relay is to serve.
type ServeRelay struct{ Config relay.Config }

// mail is the site's end of what is sealed between clusters.
func (c *Core) mail() network.Mail { return network.NewMail(c.fabric.Secret, c.opt.Name) }

// foreignItem takes an item of the root that concerns other sites; gone says that it is no longer there. It reports whether
// the key is of this kind.
func (c *Core) foreignItem(key string, value []byte, gone bool) bool {
	f := &c.foreign
	if gatewayItem(c, key, value, gone) {
		return true
	}
	switch kind, rest, _ := strings.Cut(key, "/"); kind {
	case "site":
		for name, w := range c.workers { // all must know what belongs to the overlay
			if w.Peer != 0 {
				c.readmit[name] = true
			}
		}
		if gone {
			c.foreign.sites.Leave(rest)
			return true
		}
		var s wire.SiteInfo
		if c.codec.Unmarshal(value, &s) == nil && string(s.Name) == rest && rest != c.opt.Name {
			c.foreign.sites.Introduce(s)
			c.readMail(rest) // what came before could not be read
			f.mail[rest] = true
			c.interests.TouchSite(rest)
		}
		return true
	case "wanted":
		if k, site, ok := wire.ParseWantedKey(key); ok {
			if gone {
				c.interests.RemoveSite(site, k)
			} else {
				c.interests.AddSite(site, k)
			}
		}
		return true
	case "from":
		if site, topic, ok := wire.ParseMail(key); ok {
			c.takeMail(site, topic, value, gone)
		}
		return true
	}
	return false
}

// readMail reads again what another site wrote, now that its key is known.
func (c *Core) readMail(site string) {
	for key, value := range c.Up.Desired.All() {
		if from, topic, ok := wire.ParseMail(key); ok && from == site && strings.HasPrefix(key, "from/") {
			c.takeMail(from, topic, value, false)
		}
	}
}

// takeMail takes what another site says of routes there, or of its workers.
func (c *Core) takeMail(site, topic string, value []byte, gone bool) {
	open := func(v any) bool {
		plain, err := c.mail().Open(c.foreign.sites.Site(site), topic, value)
		return !gone && err == nil && c.codec.Unmarshal(plain, v) == nil
	}
	if rest, ok := strings.CutPrefix(topic, "route/"); ok {
		k, ok := skerry.ParseServiceKey(rest)
		if !ok {
			return
		}
		route := new(wire.ForeignRoute)
		if !open(route) {
			route = nil
		}
		c.foreign.sites.SetRoute(site, k, route)
		c.interests.Touch(k)
		return
	}
	if topic != wire.TopicPeers {
		return
	}
	users := new(wire.ForeignPeers)
	if !open(users) {
		users = nil
	}
	for _, id := range c.foreign.sites.SetUsers(site, users) {
		if name := c.fabric.names[id]; name != "" {
			c.paths.Touch(name)
		}
	}
}

// asForeign is what another site is told of a worker here.
func (o *overlay) asForeign(w *worker) wire.ForeignPeer {
	p := wire.ForeignPeer{ID: w.Peer, Key: w.Facts.Overlay.Key, Prefixes: slices.Clone(w.Blocks)}
	if six, err := ipam.Subnet64(o.fabric.ULA, uint32(w.Peer)); err == nil {
		p.Prefixes = append(p.Prefixes, six)
	}
	return p
}

// publishForeign tells other sites of the instances of a service here.
func (c *Core) publishForeign(k skerry.ServiceKey, all []backend) {
	r := wire.ForeignRoute{Route: wire.Route{Service: k, Net: c.networkOf(k.App)}}
	seen := map[string]bool{}
	for _, b := range all {
		if b.worker == nil || len(r.Route.Backends) == wire.MaxBackends {
			continue
		}
		e := b.RouteBackend
		e.Coordinate, e.Instance = nil, "" // a copy's id names its worker
		r.Route.Backends = append(r.Route.Backends, e)
		if !seen[b.worker.Name] {
			seen[b.worker.Name] = true
			r.Peers = append(r.Peers, c.asForeign(b.worker))
		}
	}
	for _, site := range c.interests.Sites(k) {
		c.post(site, wire.TopicRoute(k), &r)
	}
	for _, key := range slices.Sorted(maps.Keys(c.foreign.said)) {
		if site, topic, ok := wire.ParseMail(key); ok && topic == wire.TopicRoute(k) && !c.interests.SiteHas(site, k) {
			c.unpost(key)
		}
	}
}

func (c *Core) post(site, topic string, v any) {
	key := wire.MailTo(site, topic)
	if b, ok := c.mail().Seal(c.foreign.sites.Site(site), topic, c.codec.Marshal(v)); ok {
		if _, err := c.Up.Observed.Put(key, b); err == nil {
			c.foreign.said[key] = true
		}
	}
}

func (c *Core) unpost(key string) {
	c.Up.Observed.Delete(key)
	delete(c.foreign.said, key)
}

// relayUp takes up where the site's relay is.
func (c *Core) relayUp(m RelayUp) {
	c.foreign.relay, c.foreign.dirty, c.foreign.again = m, true, true
	c.foreign.served = relay.Config{} // it is a new one
	c.foreign.gateway.due = c.foreign.gateway.peers != nil
	for name, w := range c.workers {
		if w.Peer != 0 {
			c.readmit[name] = true
		}
	}
}

// changedHere has other sites told again of workers here.
func (o *overlay) changedHere() {
	o.foreign.dirty, o.foreign.again = true, true
	o.interests.TouchAbroad()
	for _, site := range o.foreign.sites.Sites() {
		o.foreign.mail[site] = true
	}
}

// publishSite tells the root what other sites must know of this one, and which services of others are wanted here; and
// other sites which workers here have routes there.
func (c *Core) publishSite() {
	f := &c.foreign
	if c.opt.Standalone || !f.dirty && len(f.mail) == 0 {
		return
	}
	f.dirty = false
	if len(c.fabric.names)+c.foreign.sites.Known() > 0 {
		info := wire.SiteInfo{Name: skerry.ClusterName(c.opt.Name), Key: c.mail().Public(), Direct: c.opt.Direct, Relay: f.relay.Public, Extents: append(slices.Clone(c.fabric.Extents), c.fabric.ULA)}
		_, _ = c.Up.Observed.Put(wire.SiteItem, c.codec.Marshal(&info))
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.foreign.lawful), skerry.ServiceKey.Compare) {
		if key := wire.WantKey(k); c.ownApp(k.App) == nil && !f.said[key] {
			_, _ = c.Up.Observed.Put(key, c.codec.Marshal(&wire.Want{Service: k}))
			f.said[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.said)) {
		if rest, ok := strings.CutPrefix(key, "want/"); ok {
			if k, ok := skerry.ParseServiceKey(rest); ok && !c.foreign.lawful[k] {
				c.unpost(key)
			}
		}
	}
	for _, site := range slices.Sorted(maps.Keys(f.mail)) {
		var mail wire.ForeignPeers
		by := map[string]*wire.ForeignPeer{}
		for _, name := range c.foreign.sites.Peers() {
			p, of, _ := c.foreign.sites.Peer(name)
			if of != site {
				continue
			}
			for from := range c.paths.Users(name) {
				w := c.workers[from]
				if w == nil || w.Peer == 0 || w.Facts == nil || w.Facts.Overlay == nil {
					continue
				}
				if by[from] == nil {
					q := c.asForeign(w)
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
			c.post(site, wire.TopicPeers, &mail)
		} else {
			c.unpost(wire.MailTo(site, wire.TopicPeers))
		}
	}
	clear(f.mail)
}

// relayKey is a worker's at the site's relay.
func (o *overlay) relayKey(id wire.PeerID) [32]byte {
	mac := hmac.New(sha256.New, o.fabric.Secret)
	fmt.Fprintf(mac, "relay %d", id)
	return [32]byte(mac.Sum(nil))
}

// serveRelay tells the relay whom it serves, when that has changed.
func (c *Core) serveRelay(fx *wire.Effects) {
	f := &c.foreign
	f.again = c.foreign.sites.Dirty() || f.again
	if !f.again || !f.relay.UDP.IsValid() {
		return
	}
	f.again = false
	var conf relay.Config
	for _, name := range slices.Sorted(maps.Keys(c.workers)) {
		if w := c.workers[name]; w.Peer != 0 {
			conf.Workers = append(conf.Workers, relay.Worker{ID: w.Peer, Keys: [][32]byte{c.relayKey(w.Peer)}})
		}
	}
	for _, site := range c.foreign.sites.Sites() {
		info := c.foreign.sites.Site(site)
		if key, ok := c.mail().Shared(info, "relay"); ok && info.Relay.IsValid() {
			conf.Relays = append(conf.Relays, relay.Relay{Name: site, Addr: info.Relay, Key: key})
		}
	}
	for _, name := range c.foreign.sites.Peers() {
		p, site, _ := c.foreign.sites.Peer(name)
		if slices.ContainsFunc(conf.Relays, func(r relay.Relay) bool { return r.Name == site }) {
			conf.Routes = append(conf.Routes, relay.Route{ID: c.foreign.sites.Number(name), Relay: site, Remote: p.ID})
		}
	}
	if sameRelay(conf, f.served) {
		return
	}
	f.served = conf
	fx.Actions = append(fx.Actions, ServeRelay{conf})
}

func sameRelay(a, b relay.Config) bool {
	return slices.EqualFunc(a.Workers, b.Workers, func(x, y relay.Worker) bool { return x.ID == y.ID && slices.Equal(x.Keys, y.Keys) }) &&
		slices.Equal(a.Relays, b.Relays) && slices.Equal(a.Routes, b.Routes)
}
