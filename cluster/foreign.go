package cluster

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ipam"
	"skerry.dev/skerry/overlay/relay"
)

// foreign is what the site knows of others: paths to their workers go by way of the two gateways, and what is said about
// them is sealed from cluster to cluster.
type foreign struct {
	sites map[string]*skerry.SiteInfo // by name, as the root introduced them
	// lawful are services that there are, and that somebody here wants who may reach them; other sites are asked for those alone.
	lawful map[skerry.ServiceKey]bool
	routes map[skerry.ServiceKey]map[string]*skerry.ForeignRoute // of services at other sites, by site
	in     map[string]*skerry.ForeignPeers                       // by site: whose packets come here
	peers  map[string]skerry.ForeignPeer                         // by "site/number": workers of other sites that are known
	mail   map[string]bool                                       // sites whose mail about peers must be written again
	dirty  bool                                                  // what the root is told must be looked at again
	again  bool                                                  // so must whom the relay serves
	said   map[string]bool                                       // keys of what was reported to the root of this kind
	refs   map[string]int                                        // how many mails name a worker of another site
	known  map[string]int                                        // by site: workers with a number here
	idle   map[string]time.Time                                  // since when no mail names it; the zero time: it has just ended
	// idleDue is when idle must be looked at.
	idleDue time.Time
	relay   RelayUp
	served  relay.Config // what the relay was told
}

func newForeign() foreign {
	return foreign{dirty: true, sites: map[string]*skerry.SiteInfo{}, lawful: map[skerry.ServiceKey]bool{}, routes: map[skerry.ServiceKey]map[string]*skerry.ForeignRoute{},
		in: map[string]*skerry.ForeignPeers{}, peers: map[string]skerry.ForeignPeer{}, mail: map[string]bool{}, said: map[string]bool{}, refs: map[string]int{}, known: map[string]int{}, idle: map[string]time.Time{}}
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

// foreignName names a worker of another site among workers; no worker's name has a slash.
func foreignName(site string, id skerry.PeerID) string { return site + "/" + id.String() }

// privateKey is the site's end of what is sealed between clusters.
func (c *Core) privateKey() *ecdh.PrivateKey {
	mac := hmac.New(sha256.New, c.fabric.Secret)
	mac.Write([]byte("site key"))
	k, err := ecdh.X25519().NewPrivateKey(mac.Sum(nil))
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	return k
}

// shared derives a key that only this cluster and another one have.
func (c *Core) shared(site, label string) (key [32]byte, ok bool) {
	info := c.foreign.sites[site]
	if info == nil {
		return key, false
	}
	pub, err := ecdh.X25519().NewPublicKey(info.Key[:])
	if err != nil {
		return key, false
	}
	secret, err := c.privateKey().ECDH(pub)
	if err != nil {
		return key, false // a public key of low order
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("skerry sites " + label))
	return [32]byte(mac.Sum(nil)), true
}

// seal writes mail. The nonce is a MAC of what is sealed (as in SIV), so that the same mail is the same item.
func (c *Core) seal(site, topic string, v any) ([]byte, bool) {
	return c.sealBytes(site, topic, c.codec.Marshal(v))
}

func (c *Core) sealBytes(site, topic string, plain []byte) ([]byte, bool) {
	key, ok := c.shared(site, "mail "+c.opt.Name+">"+site)
	if !ok {
		return nil, false
	}
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		panic(err)
	}
	mac := hmac.New(sha256.New, key[:])
	fmt.Fprintf(mac, "%s\x00", topic)
	mac.Write(plain)
	nonce := mac.Sum(nil)[:chacha20poly1305.NonceSizeX]
	return aead.Seal(slices.Clone(nonce), nonce, plain, []byte(topic)), true
}

// open reads mail.
func (c *Core) open(site, topic string, b []byte, v any) error {
	key, ok := c.shared(site, "mail "+site+">"+c.opt.Name)
	if !ok || len(b) < chacha20poly1305.NonceSizeX {
		return fmt.Errorf("mail of site %s cannot be read yet", site)
	}
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		panic(err)
	}
	plain, err := aead.Open(nil, b[:chacha20poly1305.NonceSizeX], b[chacha20poly1305.NonceSizeX:], []byte(topic))
	if err != nil {
		return fmt.Errorf("mail of site %s about %s: %w", site, topic, err)
	}
	return c.codec.Unmarshal(plain, v)
}

// foreignItem takes an item of the root that concerns other sites; gone says that it is no longer there. It reports whether
// the key is of this kind.
func (c *Core) foreignItem(key string, value []byte, gone bool) bool {
	f := &c.foreign
	switch kind, rest, _ := strings.Cut(key, "/"); kind {
	case "site":
		for name, w := range c.workers { // all must know what belongs to the overlay
			if w.Peer != 0 {
				c.readmit[name] = true
			}
		}
		if gone {
			delete(f.sites, rest)
			f.again = true
			return true
		}
		var s skerry.SiteInfo
		if c.codec.Unmarshal(value, &s) == nil && string(s.Name) == rest && rest != c.opt.Name {
			var refused int
			s.Extents, refused = c.theirs(rest, s.Extents)
			c.fabric.refused[refusedExtents] += refused
			f.sites[rest], f.again = &s, true
			c.readMail(rest) // what came before could not be read
			f.mail[rest] = true
			for name := range f.peers { // whether they are told addresses may have changed
				if strings.HasPrefix(name, rest+"/") {
					c.paths.TouchUsers(name)
				}
			}
			c.interests.TouchSite(rest)
		}
		return true
	case "wanted":
		if k, site, ok := skerry.ParseWantedKey(key); ok {
			if gone {
				c.interests.RemoveSite(site, k)
			} else {
				c.interests.AddSite(site, k)
			}
		}
		return true
	case "from":
		if site, topic, ok := skerry.ParseMail(key); ok {
			c.takeMail(site, topic, value, gone)
		}
		return true
	}
	return false
}

// readMail reads again what another site wrote, now that its key is known.
func (c *Core) readMail(site string) {
	for key, value := range c.Up.Desired.All() {
		if from, topic, ok := skerry.ParseMail(key); ok && from == site && strings.HasPrefix(key, "from/") {
			c.takeMail(from, topic, value, false)
		}
	}
}

// takeMail takes what another site says of routes there, or of its workers.
func (c *Core) takeMail(site, topic string, value []byte, gone bool) {
	f := &c.foreign
	if rest, ok := strings.CutPrefix(topic, "route/"); ok {
		k, ok := skerry.ParseServiceKey(rest)
		if !ok {
			return
		}
		var was []skerry.ForeignPeer
		if old := f.routes[k][site]; old != nil {
			was = old.Peers
		}
		var r skerry.ForeignRoute
		if gone || c.open(site, topic, value, &r) != nil || r.Route.Service != k || len(r.Route.Backends) > skerry.MaxBackends || len(r.Peers) > skerry.MaxBackends {
			r.Peers = nil
			if delete(f.routes[k], site); len(f.routes[k]) == 0 {
				delete(f.routes, k)
			}
		} else {
			if f.routes[k] == nil {
				f.routes[k] = map[string]*skerry.ForeignRoute{}
			}
			f.routes[k][site] = &r
		}
		r.Peers = c.acquaint(site, was, r.Peers)
		c.interests.Touch(k)
		return
	}
	if topic != skerry.TopicPeers {
		return
	}
	was := f.incoming(site)
	var in skerry.ForeignPeers
	if gone || c.open(site, topic, value, &in) != nil {
		in.Peers = nil
		delete(f.in, site)
	} else {
		f.in[site] = &in
	}
	in.Peers = c.acquaint(site, was, in.Peers)
	for _, p := range slices.Concat(was, in.Peers) {
		for _, to := range p.To {
			if name := c.fabric.names[to]; name != "" {
				c.paths.Touch(name)
			}
		}
	}
}

func (f *foreign) incoming(site string) []skerry.ForeignPeer {
	if in := f.in[site]; in != nil {
		return in.Peers
	}
	return nil
}

// own reports whether a prefix overlaps this site's own addresses.
func (c *Core) own(p netip.Prefix) bool {
	return c.fabric.ULA.IsValid() && c.fabric.ULA.Overlaps(p) || slices.ContainsFunc(c.fabric.Extents, func(e netip.Prefix) bool { return e.Overlaps(p) })
}

// foreignBackends lists the instances of a service at other sites.
func (c *Core) foreignBackends(k skerry.ServiceKey) (out []backend) {
	for _, site := range slices.Sorted(maps.Keys(c.foreign.routes[k])) {
		for _, b := range c.foreign.routes[k][site].Route.Backends {
			name := foreignName(site, b.Peer)
			p, ok := c.foreign.peers[name]
			if !ok || !slices.ContainsFunc(p.Prefixes, func(q netip.Prefix) bool { return q.Contains(b.Addr) }) {
				continue
			}
			b.Peer = c.fabric.Foreign[name]
			b.Coordinate = nil // of another space
			if b.Addr6.IsValid() && !slices.ContainsFunc(p.Prefixes, func(q netip.Prefix) bool { return q.Contains(b.Addr6) }) {
				b.Addr6 = netip.Addr{}
			}
			out = append(out, backend{b, nil, name})
		}
	}
	return out
}

// foreignPeer is what a worker is told of one of another site.
func (c *Core) foreignPeer(name string) *skerry.OverlayPeer {
	p, ok := c.foreign.peers[name]
	if !ok {
		return nil
	}
	site, _, _ := strings.Cut(name, "/")
	info := c.foreign.sites[site]
	return &skerry.OverlayPeer{ID: c.fabric.Foreign[name], Key: p.Key, Prefixes: p.Prefixes, Indirect: !c.opt.Direct || info == nil || !info.Direct}
}

// asForeign is what another site is told of a worker here.
func (c *Core) asForeign(w *worker) skerry.ForeignPeer {
	p := skerry.ForeignPeer{ID: w.Peer, Key: w.Facts.Overlay.Key, Prefixes: slices.Clone(w.Blocks)}
	if six, err := ipam.Subnet64(c.fabric.ULA, uint32(w.Peer)); err == nil {
		p.Prefixes = append(p.Prefixes, six)
	}
	return p
}

// publishForeign tells other sites of the instances of a service here.
func (c *Core) publishForeign(k skerry.ServiceKey, all []backend) {
	r := skerry.ForeignRoute{Route: skerry.Route{Service: k, Net: c.networkOf(k.App)}}
	seen := map[string]bool{}
	for _, b := range all {
		if b.worker == nil || len(r.Route.Backends) == skerry.MaxBackends {
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
		c.post(site, skerry.TopicRoute(k), &r)
	}
	for _, key := range slices.Sorted(maps.Keys(c.foreign.said)) {
		if site, topic, ok := skerry.ParseMail(key); ok && topic == skerry.TopicRoute(k) && !c.interests.SiteHas(site, k) {
			c.unpost(key)
		}
	}
}

func (c *Core) post(site, topic string, v any) {
	key := skerry.MailTo(site, topic)
	if b, ok := c.seal(site, topic, v); ok {
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
	for name, w := range c.workers {
		if w.Peer != 0 {
			c.readmit[name] = true
		}
	}
}

// changedHere has other sites told again of workers here.
func (c *Core) changedHere() {
	c.foreign.dirty, c.foreign.again = true, true
	c.interests.TouchAbroad()
	for site := range c.foreign.sites {
		c.foreign.mail[site] = true
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
	if len(c.fabric.names) > 0 {
		info := skerry.SiteInfo{Name: skerry.ClusterName(c.opt.Name), Direct: c.opt.Direct, Relay: f.relay.Public, Extents: append(slices.Clone(c.fabric.Extents), c.fabric.ULA)}
		copy(info.Key[:], c.privateKey().PublicKey().Bytes())
		_, _ = c.Up.Observed.Put(skerry.SiteItem, c.codec.Marshal(&info))
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.foreign.lawful), skerry.ServiceKey.Compare) {
		if key := skerry.WantKey(k); c.ownApp(k.App) == nil && !f.said[key] {
			_, _ = c.Up.Observed.Put(key, c.codec.Marshal(&skerry.Want{Service: k}))
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
		var mail skerry.ForeignPeers
		by := map[string]*skerry.ForeignPeer{}
		for name, p := range f.peers {
			if of, _, _ := strings.Cut(name, "/"); of != site {
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
			c.post(site, skerry.TopicPeers, &mail)
		} else {
			c.unpost(skerry.MailTo(site, skerry.TopicPeers))
		}
	}
	clear(f.mail)
}

// relayKey is a worker's at the site's relay.
func (c *Core) relayKey(id skerry.PeerID) [32]byte {
	mac := hmac.New(sha256.New, c.fabric.Secret)
	fmt.Fprintf(mac, "relay %d", id)
	return [32]byte(mac.Sum(nil))
}

// serveRelay tells the relay whom it serves, when that has changed.
func (c *Core) serveRelay(fx *skerry.Effects) {
	f := &c.foreign
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
	for _, site := range slices.Sorted(maps.Keys(f.sites)) {
		if key, ok := c.shared(site, "relay"); ok && f.sites[site].Relay.IsValid() {
			conf.Relays = append(conf.Relays, relay.Relay{Name: site, Addr: f.sites[site].Relay, Key: key})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.peers)) {
		site, _, _ := strings.Cut(name, "/")
		if slices.ContainsFunc(conf.Relays, func(r relay.Relay) bool { return r.Name == site }) {
			conf.Routes = append(conf.Routes, relay.Route{ID: c.fabric.Foreign[name], Relay: site, Remote: f.peers[name].ID})
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
