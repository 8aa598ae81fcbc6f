//go:build linux

package worker

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/netip"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/resolver"
	"skerry.dev/skerry/overlay/tunnel"
	"skerry.dev/skerry/overlay/wireguard"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// dataLocked is what the data plane is to be.
func (f *overlayNet) dataLocked() overlay.Config {
	conf := overlay.Config{Local: overlay.Local{ID: f.node.ID, Instances: f.node.Instances,
		Services: []netip.Prefix{spec.ServicePrefix(), spec.ServicePrefix6()}}}
	conf.Local.Blocks = append(slices.Clone(f.node.Blocks), f.node.V6)
	if !f.node.V6.IsValid() {
		conf.Local.Blocks = f.node.Blocks
	}
	conf.Local.Plain = f.ownPlainLocked()
	apps := map[skerry.AppKey]bool{}
	for _, id := range slices.Sorted(maps.Keys(f.insts)) {
		i := f.insts[id]
		n := f.nets[i.app]
		if n == nil || !f.ofBlocksLocked(i.at) {
			continue
		}
		apps[i.app] = true
		in := overlay.Instance{ID: string(id), Net: n.Net, Device: i.at.Device}
		for j := range n.Services {
			if s := &n.Services[j]; n.Real(s) == i.service {
				in.Foreign = s.Allow
			}
		}
		for _, p := range i.at.Addresses {
			in.Addrs = append(in.Addrs, p.Addr())
		}
		if conf.Local.MTU == 0 || i.at.MTU < conf.Local.MTU {
			conf.Local.MTU = i.at.MTU
		}
		conf.Instances = append(conf.Instances, in)
	}
	for _, app := range slices.SortedFunc(maps.Keys(apps), func(a, b skerry.AppKey) int { return cmp.Compare(a.String(), b.String()) }) {
		n := f.nets[app]
		for s := range n.Addressed() {
			f.servicesLocked(&conf, n, s)
		}
	}
	links := map[wire.PeerID]bool{}
	if f.WireGuard != nil {
		l := f.WireGuard.Local()
		conf.Local.Link = &l
		for _, p := range f.linkedLocked() {
			links[p.ID] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.peers)) {
		p := f.peers[id]
		d := overlay.Peer{ID: id, Name: p.Name, Prefixes: p.Prefixes}
		if f.plainLocked(p) {
			d.Plain = &overlay.PlainPath{Endpoint: p.Plain, TagOut: p.TagOut, TagsIn: p.TagsIn}
		}
		if links[id] {
			d.Link = &overlay.LinkPath{Prefix: wireguard.Prefix(p.WireGuard.Key), Use: f.up[id]}
		}
		conf.Peers = append(conf.Peers, d)
	}
	return conf
}

// ownPlainLocked is where plain datagrams come in; the zero value: nowhere.
func (f *overlayNet) ownPlainLocked() netip.AddrPort {
	if f.Plain == 0 || f.node == nil || !f.node.Trusted || !f.address.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(f.address, f.Plain)
}

// plainLocked reports whether packets go to a peer unsealed.
func (f *overlayNet) plainLocked(p *wire.OverlayPeer) bool {
	return p != nil && p.Plain.IsValid() && !p.Plain.Addr().IsUnspecified() && p.Plain.Port() != 0 && f.ownPlainLocked().IsValid()
}

// ofBlocksLocked reports whether an attachment has an address of the overlay: one from before the worker took part has not.
func (f *overlayNet) ofBlocksLocked(at wire.Attachment) bool {
	return len(at.Addresses) > 0 && at.Addresses[0].Bits() == 32
}

// servicesLocked adds the addresses of a service with what they lead to now.
func (f *overlayNet) servicesLocked(c *overlay.Config, n *wire.AppNetwork, s *wire.NetworkService) {
	var four, six []overlay.Candidate
	for _, k := range n.Ends(s) {
		route := f.routes[k]
		if route == nil {
			return // a part of an alias's services would get all of its flows
		}
		v4, v6 := f.candidatesLocked(route)
		four, six = append(four, v4...), append(six, v6...)
	}
	add := func(a netip.Addr, policy spec.Balance, ordinal int) {
		if !a.IsValid() {
			return
		}
		if slots := overlay.Slots(policy, ordinal, four); len(slots) > 0 {
			c.Services = append(c.Services, overlay.Service{Net: n.Net, Addr: a, Slots: slots})
		}
		if slots := overlay.Slots(policy, ordinal, six); len(slots) > 0 {
			c.Services = append(c.Services, overlay.Service{Net: n.Net, Addr: spec.ServiceTwin(a), Slots: slots})
		}
	}
	for _, p := range spec.Balances() {
		add(s.Address(p), p, 0)
	}
	var ordinals []int
	for _, k := range four {
		if k.Ordinal >= 0 && k.Ordinal < len(s.Instances) { // an alias has no instances of its own
			ordinals = append(ordinals, k.Ordinal)
		}
	}
	slices.Sort(ordinals)
	for _, ordinal := range slices.Compact(ordinals) { // two may have one for a moment, while one takes over from the other
		add(s.Instances[ordinal], spec.BalanceInstance, ordinal)
	}
}

// candidatesLocked gives the instances of a route as this worker sees them, by their IPv4 and by their IPv6 addresses.
func (f *overlayNet) candidatesLocked(route *wire.Route) (four, six []overlay.Candidate) {
	var here *spec.Coordinate
	var where *spec.Location
	if f.place != nil {
		here, where = f.place()
	}
	for _, b := range route.Backends {
		if _, dead := f.dead[b.Addr]; dead {
			continue
		}
		k := overlay.Candidate{Backend: overlay.Backend{Net: route.Net, Addr: b.Addr}, Ordinal: b.Ordinal, Millis: math.NaN(), Km: math.NaN(),
			Load: b.Load, Draining: b.Draining || f.noPath[b.Peer] && !f.up[b.Peer] && !f.plainLocked(f.peers[b.Peer])}
		switch {
		case b.Peer == f.node.ID:
			k.Millis, k.Km = 0, 0
		default:
			if here != nil && b.Coordinate != nil {
				k.Millis = here.RTT(*b.Coordinate)
			}
			if where != nil && b.Location != nil {
				k.Km = coord.GreatCircleKm(*where, *b.Location)
			}
		}
		four = append(four, k)
		if b.Addr6.IsValid() && f.node.V6.IsValid() {
			k.Addr = b.Addr6
			six = append(six, k)
		}
	}
	return four, six
}

// sealedLocked is what the tunnel is to be. Peers on trusted networks are in it, too: they are told by it that a route of theirs
// is old, and without anything to tell there is no session.
func (f *overlayNet) sealedLocked(parent netip.Addr) tunnel.Config {
	c := tunnel.Config{ID: f.node.ID, PrivateKey: f.Secret, Port: f.Port, Tap: f.Tap,
		Hidden: append(slices.Clone(f.node.Instances), f.Hidden...)}
	var by []tunnel.PeerRelay
	for _, r := range f.node.Relays {
		t := tunnel.Relay{Name: r.Name, UDP: at(r.UDP, parent), TLS: at(r.TLS, parent), Pin: r.Pin, Key: tunnel.Secret(r.Key)}
		if !t.UDP.IsValid() && !t.TLS.IsValid() {
			continue
		}
		c.Relays = append(c.Relays, t)
		by = append(by, tunnel.PeerRelay{Relay: r.Name})
	}
	claimed := map[wire.OverlayKey]bool{}
	for _, id := range slices.Sorted(maps.Keys(f.peers)) {
		p := f.peers[id]
		// What workers say of themselves comes through their clusters, and one that lies is not to keep this one from all others:
		// a key is that of who had it first.
		if p.Key.IsZero() || claimed[p.Key] {
			continue
		}
		claimed[p.Key] = true
		c.Peers = append(c.Peers, tunnel.Peer{ID: id, Name: p.Name, Key: p.Key, Endpoints: p.Endpoints[:min(len(p.Endpoints), maxEndpoints)],
			Prefixes: p.Prefixes, Relays: by, Indirect: p.Indirect})
	}
	return c
}

// at gives a relay's address: an unspecified one is on the cluster's host.
func at(a netip.AddrPort, parent netip.Addr) netip.AddrPort {
	if a.IsValid() && a.Addr().IsUnspecified() {
		if !parent.IsValid() {
			return netip.AddrPort{}
		}
		return netip.AddrPortFrom(parent, a.Port())
	}
	return a
}

// namesLocked is what names mean.
func (f *overlayNet) namesLocked() resolver.Config {
	c := resolver.Config{Upstreams: f.Upstreams, IPv6: f.node.V6.IsValid(), Private: f.node.Instances}
	for _, app := range slices.SortedFunc(maps.Keys(f.nets), func(a, b skerry.AppKey) int { return cmp.Compare(a.String(), b.String()) }) {
		n := f.nets[app]
		a := resolver.App{Key: app, Complete: true}
		for s := range n.Addressed() {
			v := resolver.Service{Key: n.Real(s), Ports: s.Ports}
			if s.Of != (skerry.ServiceKey{}) && s.Short {
				v.As = s.Name
			}
			for _, p := range spec.Balances() {
				v.Addrs = append(v.Addrs, resolver.Address{Policy: p, Addr: s.Address(p)})
			}
			for ordinal, addr := range s.Instances {
				v.Addrs = append(v.Addrs, resolver.Address{Policy: spec.BalanceInstance, Ordinal: ordinal, Addr: addr})
			}
			a.Services = append(a.Services, v)
		}
		c.Apps = append(c.Apps, a)
	}
	for _, id := range slices.Sorted(maps.Keys(f.insts)) {
		i := f.insts[id]
		if i.service.Service == "" {
			continue // the ingress: nobody looks for it, and it asks for no names
		}
		in := resolver.Instance{Service: i.service, Ordinal: i.ordinal, Local: true, Inside: i.inside}
		for _, p := range i.at.Addresses {
			in.Addrs = append(in.Addrs, p.Addr())
		}
		c.Instances = append(c.Instances, in)
	}
	for k, r := range f.routes {
		for _, b := range r.Backends {
			if b.Peer != f.node.ID {
				c.Instances = append(c.Instances, resolver.Instance{Service: k, Ordinal: b.Ordinal, Addrs: []netip.Addr{b.Addr, b.Addr6}})
			}
		}
	}
	slices.SortFunc(c.Instances, func(a, b resolver.Instance) int { return a.Addrs[0].Compare(b.Addrs[0]) })
	return c
}

// tell describes this worker to its cluster.
func (f *overlayNet) tell(ctx context.Context, address string, networks []netip.Prefix) *wire.OverlayFacts {
	key, err := f.Secret.Public()
	if err != nil {
		f.log.Error("the key of sealed paths", "err", err)
		return nil
	}
	out := &wire.OverlayFacts{Key: key, Path: f.Path, Why: f.Why, Networks: networks}
	if f.WireGuard != nil {
		out.WireGuard = &wire.WireGuardFacts{Key: f.WireGuard.Public(), Port: f.WireGuard.Port(), Reflexive: f.WireGuard.Reflexive()}
	}
	if f.Ingress != nil {
		out.Ingress = f.Ingress.addresses(address)
	}
	host, err := netip.ParseAddr(address)
	if err == nil {
		f.mu.Lock()
		moved := f.address != host
		f.address = host
		f.mu.Unlock()
		if moved {
			f.nudge()
		}
	}
	if err == nil && f.Plain != 0 {
		out.Plain = netip.AddrPortFrom(host, f.Plain)
	}
	if f.Tunnel == nil {
		return out
	}
	st, serr := f.Tunnel.Status(ctx)
	if serr != nil {
		// It is being started again, most likely; peers need not forget meanwhile where it was.
		f.log.Debug("ask the datapath where it is reached", "err", serr)
		f.mu.Lock()
		defer f.mu.Unlock()
		out.Endpoints = f.ends
		return out
	}
	if err == nil && st.Port != 0 {
		out.Endpoints = append(out.Endpoints, netip.AddrPortFrom(host, st.Port))
	}
	for _, e := range st.Candidate {
		if !slices.Contains(out.Endpoints, e) && len(out.Endpoints) < maxEndpoints {
			out.Endpoints = append(out.Endpoints, e)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends = out.Endpoints
	return out
}

// maxEndpoints is how many addresses a worker tells of itself.
const maxEndpoints = 16

// hide keeps the address of the bridge to itself: it is one of this host's, and no peer reaches it.
func (f *overlayNet) hide(gateway netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if gateway.IsValid() && len(f.Hidden) == 0 {
		f.Hidden = []netip.Prefix{netip.PrefixFrom(gateway, gateway.BitLen())}
	}
}
