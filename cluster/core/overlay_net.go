package core

import (
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
	"skerry.dev/skerry/decide/ipam"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const (
	// blockRest is how long a removed worker's addresses rest: longer than anybody remembers a route.
	blockRest = time.Hour
	// tagTurn is half the time for which a tag of a plain path is used.
	tagTurn = 30 * time.Minute
	// spareExtents is how many extents a site has at most beside those that are used up by half: as many as hosts may be in the way of.
	spareExtents = 8
)

// loadOverlayNet rebuilds, once all is loaded, what follows from the records.
func (o *overlay) loadOverlayNet() {
	for _, name := range slices.Sorted(maps.Keys(o.workers)) {
		w := o.workers[name]
		o.restoreBlocks(name)
		if w.Peer != 0 {
			o.overlayNet.names[w.Peer] = name
			o.overlayNet.Last = max(o.overlayNet.Last, w.Peer) // of the commit that gave it, a crash may have left half
		}
		w.Blocks = o.overlayNet.Blocks.Of(name)
	}
	o.remote.sites.Load(o.overlayNet.Numbers)
	for _, name := range o.Children.Names() {
		for _, key := range o.Children.Get(name).Desired.Keys() {
			if rest, ok := strings.CutPrefix(key, "net/"); ok {
				if app, err := skerry.ParseAppKey(rest, ""); err == nil {
					o.hasNetwork(app, name)
				}
			}
			if app, ok := o.endpoints.Load(name, key); ok {
				o.linked[app] = true
			}
		}
	}
}

// restoreBlocks takes up the blocks that a worker was told are its own: of the commit that gave them a crash may have left that alone, and
// somebody else would get them, too.
func (o *overlay) restoreBlocks(name string) {
	child := o.Children.Get(name)
	if child == nil {
		return
	}
	value, told := child.Desired.Get(wire.NodeKey)
	var node wire.OverlayNode
	if !told || o.codec.Unmarshal(value, &node) != nil {
		return
	}
	net := &o.overlayNet
	if node.ID > net.Last { // nor its number
		net.Last, net.dirty = node.ID, true
	}
	for _, b := range node.Blocks {
		if !net.Blocks.Restore(name, b) {
			continue
		}
		net.dirty = true
		extent := netip.PrefixFrom(b.Addr(), ipam.ExtentBits).Masked()
		if !slices.ContainsFunc(net.Extents, func(have netip.Prefix) bool { return have.Overlaps(b) }) {
			net.Extents = append(net.Extents, extent)
		}
	}
}

func (o *overlay) hasNetwork(app skerry.AppKey, worker string) {
	if o.overlayNet.sites[app] == nil {
		o.overlayNet.sites[app] = map[string]bool{}
	}
	if !o.overlayNet.sites[app][worker] {
		o.overlayNet.sites[app][worker] = true
		o.interests.TouchRights(worker, app)
	}
}

// admit gives a worker that takes part in the overlay what it needs for that, and tells it of changes.
func (o *overlay) admit(now time.Time, w *worker, fx *wire.Effects) {
	if w.Facts == nil || w.Facts.Overlay == nil || o.Children.Get(w.Name) == nil {
		return
	}
	f := &o.overlayNet
	saved := true
	if !f.ULA.IsValid() {
		f.ULA, saved = ipam.ULA(o.opt.Name+"/"+string(o.opt.Incarnation)), false
	}
	if w.Peer == 0 {
		f.Last++
		w.Peer, saved = f.Last, false
		f.names[w.Peer] = w.Name
		o.saveWorker(w, fx)
	}
	o.closeOverlapping(now, w, fx)
	for w.cramped(o.attached(w)) {
		i := slices.IndexFunc(w.closing, func(b netip.Prefix) bool { return !w.overlaps(b) })
		if i < 0 {
			break
		}
		w.closing = slices.Delete(w.closing, i, i+1)
	}
	for w.cramped(o.attached(w)) {
		b, err := o.takeBlock(now, w, fx)
		if err != nil {
			o.siteEvent(fx, now, wire.EventWarning, "NoAddresses", "worker "+w.Name+": "+err.Error(), w.Name)
			break
		}
		w.Blocks, saved = append(w.Blocks, b), false
	}
	if !saved {
		o.saveOverlayNet(fx)
		o.changedHere()
	}
	node := wire.OverlayNode{ID: w.Peer, Blocks: w.openBlocks(), Instances: o.instancePrefixes(), Relays: o.relaysFor(w),
		Trusted: o.opt.Trusted}
	if p, err := ipam.Subnet64(f.ULA, uint32(w.Peer)); err == nil {
		node.V6 = p
	}
	value := o.codec.Marshal(&node)
	if string(f.told[w.Name]) != string(value) {
		f.told[w.Name] = value
		_ = o.Children.Put(w.Name, wire.NodeKey, value)
	}
}

// closeOverlapping has a worker give nothing more of a block that a network of its own host has come to overlap: the host refuses
// the route to it. Few blocks of a worker may rest, or one that comes to be in ever other networks would use up the site's.
func (o *overlay) closeOverlapping(now time.Time, w *worker, fx *wire.Effects) {
	for _, b := range w.openBlocks() {
		if !w.overlaps(b) || !o.mayClose(now, w) {
			continue
		}
		w.closing = append(w.closing, b)
		text := fmt.Sprintf("worker %s is in a network that overlaps its block of addresses %s; new instances get addresses of another block",
			w.Name, b)
		o.siteEvent(fx, now, wire.EventWarning, "AddressesInUse", text, w.Name)
	}
}

// mayClose reports whether one more block of a worker may come to rest.
func (o *overlay) mayClose(now time.Time, w *worker) bool {
	const mayRest = 4
	return o.overlayNet.Blocks.Resting(now, w.Name)+len(w.closing) < mayRest
}

// trim takes back blocks that a worker no longer needs: it is told to give nothing more of one, and when it has taken note
// of that and nothing there has an address of it, the block rests. Addresses of ingresses are not known here, so that a
// worker with some keeps what it has.
func (o *overlay) trim(now time.Time, w *worker) {
	k := o.Children.Get(w.Name)
	if w.Peer != 0 && slices.ContainsFunc(w.openBlocks(), w.overlaps) && o.mayClose(now, w) { // others have rested
		o.readmit[w.Name] = true
	}
	if w.Peer == 0 || len(w.Blocks) < 2 || k == nil || !k.Settled() || o.attached(w) != len(o.byWorker[w.Name]) {
		return
	}
	for _, b := range slices.Clone(w.closing) {
		if o.addressed(w, b) {
			continue
		}
		w.closing = slices.DeleteFunc(w.closing, func(x netip.Prefix) bool { return x == b })
		w.Blocks = slices.DeleteFunc(slices.Clone(w.Blocks), func(x netip.Prefix) bool { return x == b })
		o.overlayNet.Blocks.Return(w.Name, b, now.Add(blockRest))
		o.overlayNet.dirty, o.readmit[w.Name] = true, true
		o.changedHere()
		o.paths.TouchPeers(w.Name)
	}
	// A whole block and as many again as are kept spare must be left over, or it would soon be asked for anew.
	const size = 1 << (32 - ipam.BlockBits)
	if open := w.openBlocks(); len(open) > 1 && len(open)*size >= o.attached(w)+len(w.leaving)+2*blockSpare+size {
		w.closing = append(w.closing, open[len(open)-1])
		o.readmit[w.Name] = true
	}
}

// addressed reports whether an instance on a worker has, or may have, an address of a block: one that has not said its
// address may have any.
func (o *overlay) addressed(w *worker, b netip.Prefix) bool {
	in := func(addr string) bool {
		a, err := netip.ParseAddr(addr)
		return addr == "" || err == nil && b.Contains(a)
	}
	for _, p := range o.byWorker[w.Name] {
		if in(p.Obs.Address) && (p.Obs.Address != "" || !p.ended()) {
			return true
		}
	}
	for _, h := range w.leaving {
		if in(h.Address) {
			return true
		}
	}
	for id := range o.moving {
		if n := o.places[id].Next; n.Worker == w.Name && in(n.Obs.Address) {
			return true
		}
	}
	return false
}

// takeBlock finds a block that overlaps no network of a host of the site: any of them may have packets to it. Where no block is
// left for that, because one host is in a large network or says so, the networks of the worker's own host alone count.
func (o *overlay) takeBlock(now time.Time, w *worker, fx *wire.Effects) (netip.Prefix, error) {
	all := o.networks()
	slices.SortFunc(all, netip.Prefix.Compare)
	b, err := o.takeOutside(now, w, slices.Compact(all))
	if err == nil || skerry.AsError(err).Code != skerry.CodeFull {
		return b, err
	}
	b, failed := o.takeOutside(now, w, networksOf(w.Facts))
	if failed != nil {
		return b, err
	}
	for _, other := range slices.Sorted(maps.Keys(o.workers)) {
		if _, hit := ipam.Overlap(b, networksOf(o.workers[other].Facts)); hit {
			text := fmt.Sprintf("worker %s is in a network that overlaps %s, where instances on worker %s get their addresses because no block is"+
				" outside the networks of all workers; they do not reach each other", other, b, w.Name)
			o.siteEvent(fx, now, wire.EventWarning, "AddressesInUse", text, other)
		}
	}
	return b, nil
}

// takeOutside finds a block, of a further extent if need be, that has no address of some networks. A site does not come by ever more
// extents that way: they stay its own, and a host may say that it is in each of them.
func (o *overlay) takeOutside(now time.Time, w *worker, avoid []netip.Prefix) (netip.Prefix, error) {
	f := &o.overlayNet
	b, err := f.Blocks.Take(now, w.Name, f.Extents, avoid)
	const half = 1 << (ipam.BlockBits - ipam.ExtentBits - 1) // of an extent's blocks
	if err == nil || len(f.Extents) > f.Blocks.Len()/half+spareExtents {
		return b, err
	}
	more, err := ipam.Extent(o.pool(), ipam.ExtentBits, o.opt.Name, len(f.Extents),
		append(slices.Clone(f.Extents), append(avoid, o.remote.sites.Extents()...)...))
	if err != nil {
		return b, err
	}
	f.Extents = append(f.Extents, more)
	for _, other := range o.workers {
		if other != w && other.Peer != 0 {
			o.readmit[other.Name] = true // all must know what belongs to the overlay
		}
	}
	return f.Blocks.Take(now, w.Name, f.Extents, avoid)
}

// warnOverlap tells of blocks that were given to workers before a host came that is in such a network.
func (o *overlay) warnOverlap(now time.Time, w *worker, facts *wire.WorkerFacts, fx *wire.Effects) {
	for _, b := range o.overlayNet.Blocks.Overlapping(networksOf(facts)) {
		if b.Holder == w.Name {
			continue // closeOverlapping
		}
		o.siteEvent(fx, now, wire.EventWarning, "AddressesInUse",
			fmt.Sprintf("worker %s is in a network that overlaps %s, where instances on worker %s have their addresses; they do not reach each other. Give the site another --instance-pool, and add worker %s anew",
				w.Name, b.Prefix, b.Holder, b.Holder), w.Name)
	}
}

// instancePrefixes are all that instances of this site, and of those that it has to do with, have addresses of. They are no
// more than that: hosts may be in networks of the rest of the pool.
func (o *overlay) instancePrefixes() []netip.Prefix {
	out := append(slices.Clone(o.overlayNet.Extents), o.overlayNet.ULA)
	return append(out, slices.DeleteFunc(o.remote.sites.Extents(), o.owns)...)
}

// relaysFor tells a worker where relays are.
func (o *overlay) relaysFor(w *worker) []wire.Relay {
	r := o.remote.relay
	if !r.UDP.IsValid() {
		return nil
	}
	return []wire.Relay{{Name: o.opt.Name, UDP: r.UDP, TLS: r.TLS, Pin: r.Pin, Key: o.relayKey(w.Peer)}}
}

// expel takes back what a removed worker had.
func (o *overlay) expel(now time.Time, w *worker, fx *wire.Effects) {
	for _, k := range o.interests.Of(w.Name) {
		o.unwant(w.Name, k)
	}
	o.paths.TouchUsers(w.Name)
	delete(o.overlayNet.told, w.Name)
	for app, at := range o.overlayNet.sites {
		if delete(at, w.Name); len(at) == 0 {
			delete(o.overlayNet.sites, app)
		}
	}
	if w.Peer != 0 || len(w.Blocks) > 0 { // a start may know the blocks alone
		delete(o.overlayNet.names, w.Peer)
		o.overlayNet.Blocks.ReturnAll(w.Name, now.Add(blockRest))
		o.saveOverlayNet(fx)
		o.changedHere()
	}
}

// publishNetwork gives the directory of an application to the workers that run something of it, and takes it from others.
func (o *overlay) publishNetwork(app skerry.AppKey) {
	at := map[string]bool{}
	for _, p := range o.byApp[app] {
		if p.Worker != "" {
			at[p.Worker] = true
		}
		if p.Next != nil {
			at[p.Next.Worker] = true
		}
	}
	for name := range o.releases.Workers(app) { // what was told to end still answers what was sent to it
		at[name] = true
	}
	if o.ingress.Granted(app) {
		for name, w := range o.workers {
			at[name] = at[name] || w.hasIngress()
		}
	}
	maps.DeleteFunc(at, func(_ string, there bool) bool { return !there })
	var bare, full, older []byte
	if n := o.network(app); n != nil && len(at) > 0 {
		withIngress, plain := o.directory(n)
		bare, full, older = o.codec.Marshal(plain), o.codec.Marshal(withIngress), o.codec.Marshal(withoutAliasWays(withIngress))
	} else {
		o.certs.Leave(app, nil)
	}
	for name := range at {
		if w := o.workers[name]; bare != nil && w != nil && w.Peer != 0 {
			value := bare
			if w.hasIngress() {
				value = full
				if !w.Facts.Knows(spec.FeatureAliases) {
					value = older
				}
			}
			if o.Children.Put(name, wire.NetworkItem(app), value) == nil {
				o.hasNetwork(app, name)
			}
		}
	}
	for name := range o.overlayNet.sites[app] {
		if !at[name] || bare == nil {
			o.Children.Delete(name, wire.NetworkItem(app))
			delete(o.overlayNet.sites[app], name)
			o.interests.TouchRights(name, app)
		}
	}
	if len(o.overlayNet.sites[app]) == 0 {
		delete(o.overlayNet.sites, app)
	}
}

// withoutAliasWays gives a directory as workers get it that know no aliases: they would lead the clients of one to a single service.
func withoutAliasWays(n *wire.AppNetwork) *wire.AppNetwork {
	out := *n
	out.Services = slices.Clone(n.Services)
	for i := range out.Services {
		out.Services[i].Ingress = slices.DeleteFunc(slices.Clone(n.Services[i].Ingress),
			func(way spec.Ingress) bool { return way.Alias != "" })
	}
	return &out
}

// publishPeers tells workers of those that they exchange packets with: whom their routes lead to, and whose lead to them.
func (o *overlay) publishPeers() {
	for name := range o.paths.Changed() {
		if site, _, ok := strings.Cut(name, "/"); ok {
			o.remote.mail[site] = true
			continue
		}
		k := o.Children.Get(name)
		if k == nil {
			continue
		}
		want := o.paths.Peers(name)
		if w := o.workers[name]; w != nil && w.Peer != 0 {
			for _, other := range o.remoteUsers(w) {
				want[other] = true
			}
		}
		keys := map[string]bool{}
		for _, other := range slices.Sorted(maps.Keys(want)) {
			if strings.Contains(other, "/") {
				if p := o.remotePeer(other); p != nil {
					keys[wire.OverlayPeerKey(p.ID)] = true
					_ = o.Children.Put(name, wire.OverlayPeerKey(p.ID), o.codec.Marshal(p))
				}
				continue
			}
			w := o.workers[other]
			if o.workers[name] == nil || w == nil || w.Peer == 0 || w.Facts == nil || w.Facts.Overlay == nil {
				continue
			}
			keys[wire.OverlayPeerKey(w.Peer)] = true
			_ = o.Children.Put(name, wire.OverlayPeerKey(w.Peer), o.codec.Marshal(o.peerFor(o.workers[name], w)))
		}
		for _, key := range k.Desired.Keys() {
			if strings.HasPrefix(key, "peer/") && !keys[key] {
				o.Children.Delete(name, key)
			}
		}
	}
}

// peerFor is what a worker is told of another one.
func (o *overlay) peerFor(w, other *worker) *wire.OverlayPeer {
	f := other.Facts.Overlay
	p := &wire.OverlayPeer{ID: other.Peer, Name: other.Name, Key: f.Key, Endpoints: f.Endpoints, Prefixes: slices.Clone(other.Blocks)}
	if w.Facts.Overlay != nil && w.Facts.Overlay.WireGuard != nil { // who has none need not know
		p.WireGuard = f.WireGuard
	}
	if six, err := ipam.Subnet64(o.overlayNet.ULA, uint32(other.Peer)); err == nil {
		p.Prefixes = append(p.Prefixes, six)
	}
	if o.opt.Trusted && f.Plain.IsValid() && w.Facts.Overlay != nil && w.Facts.Overlay.Plain.IsValid() {
		now, then := o.tagTurns()
		p.Plain, p.TagOut = f.Plain, o.tag(w.Peer, other.Peer, now)
		p.TagsIn = []uint64{o.tag(other.Peer, w.Peer, now), o.tag(other.Peer, w.Peer, then)}
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
	now = o.overlayNet.turn / 2
	if o.overlayNet.turn%2 == 0 {
		return now, now - 1
	}
	return now, now + 1
}

// tag is what one worker puts on plain datagrams to another.
func (o *overlay) tag(from, to wire.PeerID, turn int64) uint64 {
	mac := hmac.New(sha256.New, o.overlayNet.Secret)
	fmt.Fprintf(mac, "%d %d %d", from, to, turn)
	return binary.BigEndian.Uint64(mac.Sum(nil))
}

// turnTags rotates tags when it is time.
func (o *overlay) turnTags(now time.Time) {
	if !o.opt.Trusted {
		return
	}
	if turn := now.Unix() / int64(tagTurn/time.Second); turn != o.overlayNet.turn {
		o.overlayNet.turn = turn
		for name := range o.workers {
			o.paths.Touch(name)
		}
	}
}
