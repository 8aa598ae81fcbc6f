//go:build linux

package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/overlay/tunnel"
	"skerry.dev/skerry/overlay/wireguard"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// Overlay is what a worker takes part in the overlay with. Device is needed.
type Overlay struct {
	Device overlay.Device
	Tunnel Tunnel // nil: no sealed paths, so that only trusted networks are crossed
	// WireGuard is the kernel's; nil: it is not used, for the reason in NoWireGuard.
	WireGuard   WireGuard
	NoWireGuard string
	Secret      tunnel.Secret
	Tap         string         // of the tunnel
	Port        uint16         // of sealed datagrams; 0: any
	Plain       uint16         // of plain ones; 0: none
	Path        string         // how packets are handled, for people
	Why         string         // why not by a better way
	Cover       int            // bytes that paths add to a packet
	Hidden      []netip.Prefix // addresses of this machine in these are not told to others
	// Parent is the address of the cluster's host, for relays there; the zero value: not known.
	Parent func() netip.Addr
	// Ingress lets clients outside in; nil: this worker does not.
	Ingress *IngressOptions
	// Upstreams are the host's name servers, for what is not a name of the overlay.
	Upstreams []netip.AddrPort
}

// Tunnel carries what is sealed. *tunnel.Client is one.
type Tunnel interface {
	Set(ctx context.Context, c tunnel.Config) error
	Status(ctx context.Context) (tunnel.Status, error)
	// Unknown tells a peer that its route to an address is old.
	Unknown(ctx context.Context, peer wire.PeerID, net wire.NetworkID, addr netip.Addr) error
	// Look sees at once whether relays and peers still hear from here.
	Look(ctx context.Context) error
	// Ping asks a peer for a sign of life, and gives how long ago the last one came; false: none ever, or it is no peer.
	Ping(ctx context.Context, peer wire.PeerID) (ago time.Duration, ok bool, err error)
	Events() <-chan tunnel.Event
}

// WireGuard is a device of the kernel that encrypts. *wireguard.Link is one.
type WireGuard interface {
	Set(ctx context.Context, c wireguard.Config) error
	Local() overlay.Link
	Public() wire.OverlayKey
	Port() uint16
	Reflexive() netip.AddrPort // where relays see the port, if that is another; the zero value: it is not
	// Up are the peers that are reached by it now, and Changed says that these are others.
	Up() map[wire.PeerID]bool
	Changed() <-chan struct{}
	Status() []overlay.PathStatus
}

const (
	// wantedFor is how long routes are kept after they were last asked for.
	wantedFor = 10 * time.Minute
	// deadFor is how long an instance that its own worker does not know gets no new flows, unless its route changes.
	deadFor = 10 * time.Second
	// maxWaiters is how many services may be waited for: while the network of an application is not known, its instances can
	// ask for whatever they like.
	maxWaiters = 256
	// overlayNetEvery is how often distances are looked at anew, and interests that have run out.
	overlayNetEvery = 10 * time.Second
)

// overlayNet keeps a worker's place in the overlay: what the cluster said, what is attached, and which routes are wanted. Parts
// of the machine are told of it as a whole.
type overlayNet struct {
	Overlay
	log *slog.Logger
	overlayUses

	setting sync.Mutex // held while parts are told; taken before mu
	told    overlay.Config
	sealed  tunnel.Config
	linked  *wireguard.Config // nil: not told yet
	naming

	mu sync.Mutex
	reachable
	node    *wire.OverlayNode
	nets    map[skerry.AppKey]*wire.AppNetwork
	routes  map[skerry.ServiceKey]*wire.Route
	peers   map[wire.PeerID]*wire.OverlayPeer
	insts   map[skerry.InstanceID]joined
	wanted  map[skerry.ServiceKey]time.Time
	asked   []skerry.ServiceKey                 // what the cluster was asked for last
	dead    map[netip.Addr]time.Time            // instances that are gone, whatever routes say
	gone    []netip.Addr                        // flows to these are to be reset
	waiters map[skerry.ServiceKey]chan struct{} // closed when the route is here

	changed chan struct{} // capacity 1
	doubted chan struct{} // capacity 1: the way out may be another one
}

// overlayUses is what the overlay asks its worker for, and tells it.
type overlayUses struct {
	place        func() (*spec.Coordinate, *spec.Location)
	post         func(msg any) // to the core
	facts        func()        // tells them anew
	nudgeIngress func()        // nudges the ingress; nil: there is none
}

// reachable is where peers reach this worker, and it reaches them, as the data plane said last.
type reachable struct {
	ends    []netip.AddrPort           // where peers reach the tunnel
	address netip.Addr                 // at which others reach this machine; plain datagrams come in there
	seen    netip.AddrPort             // where relays see the port of WireGuard
	direct  map[wire.PeerID]netip.Addr // where the tunnel reaches peers without a relay
	up      map[wire.PeerID]bool       // peers that are reached by WireGuard
	noPath  map[wire.PeerID]bool
}

// joined is an instance with its attachment.
type joined struct {
	app     skerry.AppKey
	service skerry.ServiceKey
	ordinal int
	at      wire.Attachment
	inside  bool // its policy of egress opens nothing
}

func newOverlayNet(o Overlay, log *slog.Logger) *overlayNet {
	return &overlayNet{Overlay: o, naming: naming{sockets: newSockets(o.Tunnel, log)}, log: log, nets: map[skerry.AppKey]*wire.AppNetwork{},
		routes: map[skerry.ServiceKey]*wire.Route{}, peers: map[wire.PeerID]*wire.OverlayPeer{},
		insts: map[skerry.InstanceID]joined{}, wanted: map[skerry.ServiceKey]time.Time{}, dead: map[netip.Addr]time.Time{},
		reachable: reachable{noPath: map[wire.PeerID]bool{}, direct: map[wire.PeerID]netip.Addr{}},
		waiters:   map[skerry.ServiceKey]chan struct{}{}, changed: make(chan struct{}, 1), doubted: make(chan struct{}, 1)}
}

// nudge has parts told soon.
func (f *overlayNet) nudge() {
	if f.nudgeIngress != nil {
		f.nudgeIngress()
	}
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// doubt has it looked whether others still hear from here.
func (f *overlayNet) doubt() {
	select {
	case f.doubted <- struct{}{}:
	default:
	}
}

// take keeps an item of the cluster.
func (f *overlayNet) take(a core.OverlayItem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch v := a.Item.(type) {
	case *wire.OverlayNode:
		f.node = v
	case *wire.AppNetwork:
		joinedAliasesLocked(f, f.nets[v.App], v)
		f.nets[v.App] = v
	case *wire.Route:
		f.replaceLocked(v.Service, v)
	case *wire.OverlayPeer:
		f.peers[v.ID] = v
	case nil:
		for k := range f.nets {
			if wire.NetworkItem(k) == a.Key {
				delete(f.nets, k)
			}
		}
		for k := range f.routes {
			if wire.RouteKey(k) == a.Key {
				f.replaceLocked(k, nil)
			}
		}
		for id := range f.peers {
			if wire.OverlayPeerKey(id) == a.Key {
				delete(f.peers, id)
				delete(f.noPath, id)
				delete(f.direct, id)
			}
		}
	}
	f.nudge()
}

// load takes up what an earlier life knew. Routes that were wanted then are wanted for a while.
func (f *overlayNet) load(items []core.OverlayItem) {
	for _, a := range items {
		f.take(a)
		if r, ok := a.Item.(*wire.Route); ok {
			f.mu.Lock()
			f.wanted[r.Service] = time.Now()
			f.mu.Unlock()
		}
	}
}

// replaceLocked takes a new route in place of an old one. Flows to what is not in it any more are to be reset.
func (f *overlayNet) replaceLocked(service skerry.ServiceKey, route *wire.Route) {
	if old := f.routes[service]; old != nil && route != nil {
		for _, b := range old.Backends {
			if !slices.ContainsFunc(route.Backends, func(n wire.RouteBackend) bool { return n.Addr == b.Addr }) {
				f.gone = append(f.gone, b.Addr)
				if b.Addr6.IsValid() {
					f.gone = append(f.gone, b.Addr6)
				}
			}
		}
	}
	if route == nil {
		delete(f.routes, service)
		return
	}
	for _, b := range route.Backends {
		delete(f.dead, b.Addr)
	}
	f.routes[service] = route
	if w := f.waiters[service]; w != nil {
		close(w)
		delete(f.waiters, service)
	}
}

// addresses says what the host's network is to give instances; nil before the cluster has said.
func (f *overlayNet) addresses() *hostnet.Overlay {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.node == nil || len(f.node.Blocks) == 0 {
		return nil
	}
	return &hostnet.Overlay{Blocks: f.node.Blocks, V6: f.node.V6, Overhead: f.Cover, Resolver: f.names != nil}
}

// attached tells what is attached now, and returns when the data plane knows it.
func (f *overlayNet) attached(ctx context.Context, insts map[skerry.InstanceID]joined) error {
	f.mu.Lock()
	f.insts = insts
	f.mu.Unlock()
	err := f.apply(ctx)
	f.review(time.Now())
	return err
}

// run tells parts of changes and looks after what they tell, until ctx ends.
func (f *overlayNet) run(ctx context.Context) {
	tick := time.NewTicker(overlayNetEvery)
	defer tick.Stop()
	var sealed <-chan tunnel.Event
	if f.Tunnel != nil {
		sealed = f.Tunnel.Events()
	}
	var turned <-chan struct{}
	if f.WireGuard != nil {
		turned = f.WireGuard.Changed()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
			if err := f.apply(ctx); err != nil && ctx.Err() == nil {
				f.log.Warn("bring the overlay in line", "err", err)
			}
			f.review(time.Now())
		case <-f.doubted:
			if f.Tunnel != nil {
				if err := f.Tunnel.Look(ctx); err != nil {
					f.log.Debug("look whether others hear from here", "err", err)
				}
			}
		case <-tick.C:
			f.review(time.Now())
			if err := f.apply(ctx); err != nil && ctx.Err() == nil {
				f.log.Warn("bring the overlay in line", "err", err)
			}
		case <-turned:
			f.turned()
		case e, ok := <-f.Device.Events():
			if !ok {
				return
			}
			f.happened(ctx, e)
		case e, ok := <-sealed:
			if !ok {
				sealed = nil
				continue
			}
			f.heard(e)
		}
	}
}

// happened takes what the data plane tells.
func (f *overlayNet) happened(ctx context.Context, e overlay.Event) {
	switch e.Kind {
	case overlay.EventMiss:
		f.missed(e.Net, e.Dst)
	case overlay.EventUnknown:
		if f.Tunnel != nil {
			if err := f.Tunnel.Unknown(ctx, e.Peer, e.Net, e.Dst); err != nil {
				f.log.Debug("tell a peer that its route is old", "peer", uint32(e.Peer), "err", err)
			}
		}
	case overlay.EventFull:
		f.log.Warn("a flow was refused: the table of flows is full", "src", e.Src.String(), "dst", e.Dst.String())
	}
}

// heard takes what the tunnel tells.
func (f *overlayNet) heard(e tunnel.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Kind {
	case tunnel.EventUnknown:
		// Only who should have it can say that it is gone, and only of what something is led to: a peer may say anything.
		if p := f.peers[e.Peer]; p != nil && slices.ContainsFunc(p.Prefixes, func(x netip.Prefix) bool { return x.Contains(e.Addr) }) {
			f.goneLocked(e.Addr, time.Now())
		}
	case tunnel.EventPath:
		if none := e.Path == overlay.PathNone; f.noPath[e.Peer] != none {
			f.noPath[e.Peer] = none
			f.nudge()
		}
		if p := f.peers[e.Peer]; p != nil && p.WireGuard != nil && f.WireGuard != nil {
			f.nudge() // it may be tried at another address
		}
	case tunnel.EventAddress:
		go f.facts()
	}
}

// goneLocked takes an instance out of all routes for a while, by whichever of its addresses it is known.
func (f *overlayNet) goneLocked(a netip.Addr, now time.Time) {
	for _, r := range f.routes {
		for _, b := range r.Backends {
			if b.Addr != a && b.Addr6 != a {
				continue
			}
			if at, is := f.dead[b.Addr]; is && now.Sub(at) < time.Second {
				return // as it was just said
			}
			f.dead[b.Addr] = now
			f.gone = append(f.gone, b.Addr)
			if b.Addr6.IsValid() {
				f.gone = append(f.gone, b.Addr6)
			}
			f.nudge()
			return
		}
	}
}

// missed has the routes fetched that a packet of an instance needs.
func (f *overlayNet) missed(net wire.NetworkID, dst netip.Addr) {
	f.mu.Lock()
	var want []skerry.ServiceKey
	for _, n := range f.nets {
		if n.Net != net {
			continue
		}
		for s := range n.Addressed() {
			// An address of an instance itself may be of any service.
			if serves(s, dst) || !spec.ServicePrefix().Contains(dst) && !spec.ServicePrefix6().Contains(dst) {
				want = append(want, n.Ends(s)...)
			}
		}
	}
	f.mu.Unlock()
	f.want(want...)
}

// serves reports whether an address is one of a service's.
func serves(s *wire.NetworkService, a netip.Addr) bool {
	is := func(x netip.Addr) bool { return x.IsValid() && (x == a || spec.ServiceTwin(x) == a) }
	return is(s.RoundRobin) || is(s.Closest) || is(s.LeastLoaded) || slices.ContainsFunc(s.Instances, is)
}

// want has the routes of services fetched and kept up to date for a while.
func (f *overlayNet) want(services ...skerry.ServiceKey) {
	f.mu.Lock()
	for _, k := range services {
		f.wanted[k] = time.Now()
	}
	f.mu.Unlock()
	f.review(time.Now())
}

// refresh keeps interests that have run out if flows still need them: their routes tell when an instance is gone.
func (f *overlayNet) refresh(now time.Time) {
	f.mu.Lock()
	var old []skerry.ServiceKey
	for k, at := range f.wanted {
		if now.Sub(at) > wantedFor {
			old = append(old, k)
		}
	}
	f.mu.Unlock()
	d, ok := f.Device.(overlay.InUser)
	if len(old) == 0 || !ok {
		return
	}
	used, err := d.InUse()
	if err != nil {
		f.log.Warn("which services are in use", "err", err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for u := range used {
		for _, n := range f.nets {
			if n.Net != u.Net {
				continue
			}
			for s := range n.Addressed() {
				for _, k := range n.Ends(s) {
					if slices.Contains(old, k) && serves(s, u.Addr) {
						f.wanted[k] = now
					}
				}
			}
		}
	}
}

// review works out which routes are wanted, and asks the cluster for them if that has changed.
func (f *overlayNet) review(now time.Time) {
	f.refresh(now)
	f.mu.Lock()
	want := map[skerry.ServiceKey]bool{}
	for k, at := range f.wanted {
		if now.Sub(at) > wantedFor {
			delete(f.wanted, k)
		} else {
			want[k] = true
		}
	}
	apps := map[skerry.AppKey]bool{}
	for _, i := range f.insts {
		apps[i.app] = true
	}
	for app := range apps {
		n := f.nets[app]
		if n == nil {
			continue
		}
		for i := range n.Services {
			for _, way := range n.Services[i].Ingress {
				to, _ := n.EnteredBy(&n.Services[i], &way)
				for _, k := range n.Ends(to) {
					want[k] = true
				}
			}
		}
		for _, s := range n.Services {
			for _, l := range s.Links {
				for i := range n.Services {
					if t := &n.Services[i]; t.Name == l {
						want[n.Real(t)] = true
					}
				}
			}
		}
	}
	for k := range want {
		if !apps[k.App] && !f.importedLocked(apps, k) {
			delete(want, k) // nothing here may reach it any more
			delete(f.wanted, k)
		}
	}
	list := slices.SortedFunc(maps.Keys(want), func(a, b skerry.ServiceKey) int { return cmp.Compare(a.String(), b.String()) })
	for k, w := range f.waiters {
		if !want[k] {
			close(w)
			delete(f.waiters, k)
		}
	}
	for a, at := range f.dead {
		if now.Sub(at) > deadFor {
			delete(f.dead, a)
			f.nudge()
		}
	}
	same := f.asked != nil && slices.Equal(list, f.asked)
	f.asked = append([]skerry.ServiceKey{}, list...)
	f.mu.Unlock()
	if !same {
		f.post(core.Interest{Services: list})
	}
}

func (f *overlayNet) importedLocked(apps map[skerry.AppKey]bool, k skerry.ServiceKey) bool {
	for app := range apps {
		if n := f.nets[app]; n != nil && slices.ContainsFunc(n.Services, func(s wire.NetworkService) bool { return s.Of == k }) {
			return true
		}
	}
	return false
}

// apply tells the parts what they are to be.
func (f *overlayNet) apply(ctx context.Context) error {
	f.setting.Lock()
	defer f.setting.Unlock()
	var parent netip.Addr
	if f.Parent != nil {
		parent = f.Parent()
	}
	f.mu.Lock()
	if f.node == nil {
		f.mu.Unlock()
		return nil
	}
	sealed, names := f.sealedLocked(parent), f.namesLocked()
	gone := f.gone
	f.gone = nil
	f.mu.Unlock()
	// One part that cannot keeps no other from what it can do. The tunnel comes first, because its tap is the device's, too.
	var errs []error
	if f.Tunnel != nil && !reflect.DeepEqual(sealed, f.sealed) {
		if err := f.Tunnel.Set(ctx, sealed); err != nil {
			errs = append(errs, err)
		} else {
			f.sealed = sealed
		}
	}
	if f.WireGuard != nil {
		errs = append(errs, f.link(ctx))
	}
	f.mu.Lock()
	conf := f.dataLocked()
	f.mu.Unlock()
	if !reflect.DeepEqual(conf, f.told) {
		if err := f.Device.Set(ctx, conf); err != nil {
			errs = append(errs, err)
		} else {
			f.told = conf
		}
	}
	for _, a := range gone {
		if err := f.Device.Reset(a); err != nil {
			f.log.Warn("reset flows to an instance that is gone", "addr", a.String(), "err", err)
		}
	}
	if f.names != nil {
		if !reflect.DeepEqual(names, f.named) {
			f.names.Set(names)
			f.named = names
		}
		if f.begin != nil { // not before: who asks is not known, and refused
			f.begin()
			f.begin = nil
		}
	}
	return errors.Join(errs...)
}
