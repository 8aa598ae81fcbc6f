package cluster

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/decide/ipam"
	"skerry.dev/skerry/wire"
)

// fabric is what the site gives its workers for the overlay: numbers, blocks of addresses, and what goes with paths.
type fabric struct {
	Last            wire.PeerID    `json:"last"`    // number given last; none is given twice
	ULA             netip.Prefix   `json:"ula"`     // of the site, 48 bits
	Extents         []netip.Prefix `json:"extents"` // IPv4 prefixes that blocks come from
	Blocks          ipam.Blocks    `json:"blocks"`
	Secret          []byte         `json:"secret"` // keys and tags are made of it
	network.Numbers                // of workers of other sites, as the part that owns them had them when it was saved

	names   map[wire.PeerID]string            // workers by number
	told    map[string][]byte                 // by worker: the node item it has
	sites   map[skerry.AppKey]map[string]bool // workers that have the directory of an application
	turn    int64                             // period of tags that peers were told of
	read    map[skerry.AppKey]readNetwork     // directories of the root's applications
	dirty   bool                              // the record must be written
	refused map[string]int                    // what the overlay refused to take so far, by reason
}

const keyFabric = "fabric"

const (
	// blockRest is how long a removed worker's addresses rest: longer than anybody remembers a route.
	blockRest = time.Hour
	// blockSpare is how many addresses of its blocks a worker has left when it gets another one.
	blockSpare = 16
	// tagTurn is half the time for which a tag of a plain path is used.
	tagTurn = 30 * time.Minute
)

func newFabric() fabric {
	return fabric{names: map[wire.PeerID]string{}, told: map[string][]byte{}, sites: map[skerry.AppKey]map[string]bool{}, read: map[skerry.AppKey]readNetwork{},
		refused: map[string]int{refusedUnread: 0, refusedWants: 0}}
}

// v6 is the IPv6 address of an instance on a worker.
func (f *fabric) v6(id wire.PeerID, a netip.Addr) netip.Addr {
	p, err := ipam.Subnet64(f.ULA, uint32(id))
	if err != nil {
		return netip.Addr{}
	}
	return ipam.Twin(p, a)
}

func (o *overlay) saveFabric(fx *wire.Effects) {
	o.fabric.Numbers = o.foreign.sites.Numbers()
	fx.Put(keyFabric, mustJSON(&o.fabric))
}

// loadFabric rebuilds, once all is loaded, what follows from the records.
func (c *Core) loadFabric() {
	for name, w := range c.workers {
		if w.Peer != 0 {
			c.fabric.names[w.Peer] = name
			c.fabric.Last = max(c.fabric.Last, w.Peer) // of the commit that gave it, a crash may have left half
		}
		w.Blocks = c.fabric.Blocks.Of(name)
	}
	c.foreign.sites.Load(c.fabric.Numbers)
	for _, name := range c.Kids.Names() {
		for _, key := range c.Kids.Get(name).Desired.Keys() {
			if rest, ok := strings.CutPrefix(key, "net/"); ok {
				if app, err := skerry.ParseAppKey(rest, ""); err == nil {
					c.hasNetwork(app, name)
				}
			}
			if app, ok := c.endpoints.Load(name, key); ok {
				c.linked[app] = true
			}
		}
	}
}

func (o *overlay) hasNetwork(app skerry.AppKey, worker string) {
	if o.fabric.sites[app] == nil {
		o.fabric.sites[app] = map[string]bool{}
	}
	if !o.fabric.sites[app][worker] {
		o.fabric.sites[app][worker] = true
		o.interests.TouchRights(worker, app)
	}
}

// admit gives a worker that takes part in the overlay what it needs for that, and tells it of changes.
func (c *Core) admit(now time.Time, w *worker, fx *wire.Effects) {
	if w.Facts == nil || w.Facts.Overlay == nil || c.Kids.Get(w.Name) == nil {
		return
	}
	f := &c.fabric
	saved := true
	if !f.ULA.IsValid() {
		f.ULA, saved = ipam.ULA(c.opt.Name+"/"+string(c.opt.Incarnation)), false
	}
	if w.Peer == 0 {
		f.Last++
		w.Peer, saved = f.Last, false
		f.names[w.Peer] = w.Name
		c.saveWorker(w, fx)
	}
	for w.cramped(c.attached(w)) && len(w.closing) > 0 {
		w.closing = w.closing[:len(w.closing)-1]
	}
	for w.cramped(c.attached(w)) {
		b, err := c.takeBlock(now, w)
		if err != nil {
			c.siteEvent(fx, now, wire.EventWarning, "NoAddresses", "worker "+w.Name+": "+err.Error(), w.Name)
			break
		}
		w.Blocks, saved = append(w.Blocks, b), false
	}
	if !saved {
		c.saveFabric(fx)
		c.changedHere()
	}
	node := wire.OverlayNode{ID: w.Peer, Blocks: w.openBlocks(), Instances: c.instancePrefixes(), Relays: c.relaysFor(w), Trusted: c.opt.Trusted}
	if p, err := ipam.Subnet64(f.ULA, uint32(w.Peer)); err == nil {
		node.V6 = p
	}
	value := c.codec.Marshal(&node)
	if string(f.told[w.Name]) != string(value) {
		f.told[w.Name] = value
		_ = c.Kids.Put(w.Name, wire.NodeKey, value)
	}
}

// trim takes back blocks that a worker no longer needs: it is told to give nothing more of one, and when it has taken note
// of that and nothing there has an address of it, the block rests. Addresses of ingresses are not known here, so that a
// worker with some keeps what it has.
func (c *Core) trim(now time.Time, w *worker) {
	k := c.Kids.Get(w.Name)
	if w.Peer == 0 || len(w.Blocks) < 2 || k == nil || !k.Settled() || c.attached(w) != len(c.byWorker[w.Name]) {
		return
	}
	for _, b := range slices.Clone(w.closing) {
		if c.addressed(w, b) {
			continue
		}
		w.closing = slices.DeleteFunc(w.closing, func(x netip.Prefix) bool { return x == b })
		w.Blocks = slices.DeleteFunc(slices.Clone(w.Blocks), func(x netip.Prefix) bool { return x == b })
		c.fabric.Blocks.Return(w.Name, b, now.Add(blockRest))
		c.fabric.dirty, c.readmit[w.Name] = true, true
		c.changedHere()
		c.paths.TouchPeers(w.Name)
	}
	// A whole block and as many again as are kept spare must be left over, or it would soon be asked for anew.
	const size = 1 << (32 - ipam.BlockBits)
	if open := w.openBlocks(); len(open) > 1 && len(open)*size >= c.attached(w)+len(w.leaving)+2*blockSpare+size {
		w.closing = append(w.closing, open[len(open)-1])
		c.readmit[w.Name] = true
	}
}

// addressed reports whether an instance on a worker has, or may have, an address of a block: one that has not said its
// address may have any.
func (c *Core) addressed(w *worker, b netip.Prefix) bool {
	in := func(addr string) bool {
		a, err := netip.ParseAddr(addr)
		return addr == "" || err == nil && b.Contains(a)
	}
	for _, p := range c.byWorker[w.Name] {
		if in(p.Obs.Address) && (p.Obs.Address != "" || !p.ended()) {
			return true
		}
	}
	for _, h := range w.leaving {
		if in(h.Address) {
			return true
		}
	}
	for id := range c.moving {
		if n := c.places[id].Next; n.Worker == w.Name && in(n.Obs.Address) {
			return true
		}
	}
	return false
}

// takeBlock finds a block that overlaps no network of a host of the site: any of them may have packets to it.
func (c *Core) takeBlock(now time.Time, w *worker) (netip.Prefix, error) {
	avoid := home{c}.Networks()
	slices.SortFunc(avoid, netip.Prefix.Compare)
	avoid = slices.Compact(avoid)
	f := &c.fabric
	b, err := f.Blocks.Take(now, w.Name, f.Extents, avoid)
	if err == nil {
		return b, nil
	}
	more, err := ipam.Extent(c.pool(), ipam.ExtentBits, c.opt.Name, len(f.Extents), append(slices.Clone(f.Extents), append(avoid, c.foreign.sites.Extents()...)...))
	if err != nil {
		return b, err
	}
	f.Extents = append(f.Extents, more)
	for _, o := range c.workers {
		if o != w && o.Peer != 0 {
			c.readmit[o.Name] = true // all must know what belongs to the overlay
		}
	}
	return f.Blocks.Take(now, w.Name, f.Extents, avoid)
}

// warnOverlap tells of blocks that were given to workers before a host came that is in such a network.
func (c *Core) warnOverlap(now time.Time, w *worker, facts *wire.WorkerFacts, fx *wire.Effects) {
	for _, b := range c.fabric.Blocks.Overlapping(networksOf(facts)) {
		c.siteEvent(fx, now, wire.EventWarning, "AddressesInUse", fmt.Sprintf("worker %s is in a network that overlaps %s, where instances on worker %s have their addresses; they do not reach each other. Give the site another --instance-pool, and add worker %s anew",
			w.Name, b.Prefix, b.Holder, b.Holder), w.Name)
	}
}

func (c *Core) pool() netip.Prefix {
	if c.opt.Pool.IsValid() {
		return c.opt.Pool
	}
	return ipam.DefaultPool()
}

// instancePrefixes are all that instances of this site, and of those that it has to do with, have addresses of. They are no
// more than that: hosts may be in networks of the rest of the pool.
func (c *Core) instancePrefixes() []netip.Prefix {
	out := append(slices.Clone(c.fabric.Extents), c.fabric.ULA)
	return append(out, slices.DeleteFunc(c.foreign.sites.Extents(), home{c}.Owns)...)
}

// relaysFor tells a worker where relays are.
func (c *Core) relaysFor(w *worker) []wire.Relay {
	r := c.foreign.relay
	if !r.UDP.IsValid() {
		return nil
	}
	return []wire.Relay{{Name: c.opt.Name, UDP: r.UDP, TLS: r.TLS, Pin: r.Pin, Key: c.relayKey(w.Peer)}}
}

// expel takes back what a removed worker had.
func (c *Core) expel(now time.Time, w *worker, fx *wire.Effects) {
	for _, k := range c.interests.Of(w.Name) {
		c.unwant(w.Name, k)
	}
	c.paths.TouchUsers(w.Name)
	delete(c.fabric.told, w.Name)
	for app, at := range c.fabric.sites {
		if delete(at, w.Name); len(at) == 0 {
			delete(c.fabric.sites, app)
		}
	}
	if w.Peer != 0 {
		delete(c.fabric.names, w.Peer)
		c.fabric.Blocks.ReturnAll(w.Name, now.Add(blockRest))
		c.saveFabric(fx)
		c.changedHere()
	}
}

// network gives the directory of an application that runs here, or nil.
func (c *Core) network(app skerry.AppKey) *wire.AppNetwork {
	if n := c.Apps.Network(app); n != nil {
		return n
	}
	value, orphaned, ok := c.Up.Desired.Get(wire.NetworkItem(app))
	if !ok || orphaned {
		delete(c.fabric.read, app)
		return nil
	}
	if r, ok := c.fabric.read[app]; ok && bytes.Equal(r.value, value) {
		return r.network
	}
	n := new(wire.AppNetwork)
	if c.codec.Unmarshal(value, n) != nil || n.App != app {
		n = nil
	}
	c.fabric.read[app] = readNetwork{value, n}
	return n
}

// readNetwork is a directory of the root's as it came, and as it was read; nobody changes it.
type readNetwork struct {
	value   []byte
	network *wire.AppNetwork
}

func (c *Core) networkOf(app skerry.AppKey) wire.NetworkID {
	if id := c.Apps.NetworkID(app); id != 0 {
		return id
	}
	if n := c.network(app); n != nil {
		return n.Net
	}
	return 0
}

// reaches gives the network of a service if an application may reach it, else 0. What is exported to one may be at other
// sites alone, where this one does not know its directory.
func (c *Core) reaches(app skerry.AppKey, k skerry.ServiceKey) wire.NetworkID {
	if app == k.App || c.Apps.Exported(app, k) {
		return c.networkOf(k.App)
	}
	if c.ownApp(app) != nil {
		return 0
	}
	if n := c.network(app); n != nil {
		for i := range n.Services {
			if n.Services[i].Of == k {
				return n.Services[i].Net
			}
		}
	}
	return 0
}

// publishNetwork gives the directory of an application to the workers that run something of it, and takes it from others.
func (c *Core) publishNetwork(app skerry.AppKey) {
	at := map[string]bool{}
	for _, p := range c.byApp[app] {
		if p.Worker != "" {
			at[p.Worker] = true
		}
		if p.Next != nil {
			at[p.Next.Worker] = true
		}
	}
	for name := range c.releases.Workers(app) { // what was told to end still answers what was sent to it
		at[name] = true
	}
	if c.ingress.Granted(app) {
		for name, w := range c.workers {
			at[name] = at[name] || w.hasIngress()
		}
	}
	maps.DeleteFunc(at, func(_ string, there bool) bool { return !there })
	var bare, full []byte
	if n := c.network(app); n != nil && len(at) > 0 {
		gate, plain := c.ingress.Directory(n)
		bare, full = c.codec.Marshal(plain), c.codec.Marshal(gate)
	}
	for name := range at {
		if w := c.workers[name]; bare != nil && w != nil && w.Peer != 0 {
			value := bare
			if w.hasIngress() {
				value = full
			}
			if c.Kids.Put(name, wire.NetworkItem(app), value) == nil {
				c.hasNetwork(app, name)
			}
		}
	}
	for name := range c.fabric.sites[app] {
		if !at[name] || bare == nil {
			c.Kids.Delete(name, wire.NetworkItem(app))
			delete(c.fabric.sites[app], name)
			c.interests.TouchRights(name, app)
		}
	}
	if len(c.fabric.sites[app]) == 0 {
		delete(c.fabric.sites, app)
	}
}

// publishPeers tells workers of those that they exchange packets with: whom their routes lead to, and whose lead to them.
func (c *Core) publishPeers() {
	for name := range c.paths.Changed() {
		if site, _, ok := strings.Cut(name, "/"); ok {
			c.foreign.mail[site] = true
			continue
		}
		k := c.Kids.Get(name)
		if k == nil {
			continue
		}
		want := c.paths.Peers(name)
		if w := c.workers[name]; w != nil && w.Peer != 0 {
			for _, other := range remoteUsers(c, w) {
				want[other] = true
			}
		}
		keys := map[string]bool{}
		for _, other := range slices.Sorted(maps.Keys(want)) {
			if strings.Contains(other, "/") {
				if p := remotePeer(c, other); p != nil {
					keys[wire.OverlayPeerKey(p.ID)] = true
					_ = c.Kids.Put(name, wire.OverlayPeerKey(p.ID), c.codec.Marshal(p))
				}
				continue
			}
			w := c.workers[other]
			if c.workers[name] == nil || w == nil || w.Peer == 0 || w.Facts == nil || w.Facts.Overlay == nil {
				continue
			}
			keys[wire.OverlayPeerKey(w.Peer)] = true
			_ = c.Kids.Put(name, wire.OverlayPeerKey(w.Peer), c.codec.Marshal(c.peerFor(c.workers[name], w)))
		}
		for _, key := range k.Desired.Keys() {
			if strings.HasPrefix(key, "peer/") && !keys[key] {
				c.Kids.Delete(name, key)
			}
		}
	}
}

// ensureSecret makes what keys and tags are made of.
func (c *Core) ensureSecret(fx *wire.Effects) {
	if len(c.fabric.Secret) == 0 {
		mac := hmac.New(sha256.New, c.opt.Secret[:])
		mac.Write([]byte("fabric"))
		c.fabric.Secret = mac.Sum(nil)
		c.saveFabric(fx)
	}
}

// peerFor is what a worker is told of another one.
func (c *Core) peerFor(w, other *worker) *wire.OverlayPeer {
	f := other.Facts.Overlay
	p := &wire.OverlayPeer{ID: other.Peer, Name: other.Name, Key: f.Key, Endpoints: f.Endpoints, Prefixes: slices.Clone(other.Blocks)}
	if w.Facts.Overlay != nil && w.Facts.Overlay.WireGuard != nil { // who has none need not know
		p.WireGuard = f.WireGuard
	}
	if six, err := ipam.Subnet64(c.fabric.ULA, uint32(other.Peer)); err == nil {
		p.Prefixes = append(p.Prefixes, six)
	}
	if c.opt.Trusted && f.Plain.IsValid() && w.Facts.Overlay != nil && w.Facts.Overlay.Plain.IsValid() {
		now, then := c.tagTurns()
		p.Plain, p.TagOut = f.Plain, c.tag(w.Peer, other.Peer, now)
		p.TagsIn = []uint64{c.tag(other.Peer, w.Peer, now), c.tag(other.Peer, w.Peer, then)}
	}
	return p
}

// tagTurns gives the period whose tags are sent, and the other one whose tags are accepted too. Peers are told at different
// moments, so what is accepted changes half a period before and after what is sent:
//
//	half      2m        2m+1      2m+2
//	sent      m         m         m+1
//	accepted  m, m-1    m, m+1    m+1, m
func (o *overlay) tagTurns() (now, other int64) {
	now = o.fabric.turn / 2
	if o.fabric.turn%2 == 0 {
		return now, now - 1
	}
	return now, now + 1
}

// tag is what one worker puts on plain datagrams to another.
func (o *overlay) tag(from, to wire.PeerID, turn int64) uint64 {
	mac := hmac.New(sha256.New, o.fabric.Secret)
	fmt.Fprintf(mac, "%d %d %d", from, to, turn)
	return binary.BigEndian.Uint64(mac.Sum(nil))
}

// turnTags rotates tags when it is time.
func (c *Core) turnTags(now time.Time) {
	if !c.opt.Trusted {
		return
	}
	if turn := now.Unix() / int64(tagTurn/time.Second); turn != c.fabric.turn {
		c.fabric.turn = turn
		for name := range c.workers {
			c.paths.Touch(name)
		}
		c.publishPeers()
	}
}
