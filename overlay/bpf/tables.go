//go:build linux

package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"skerry.dev/skerry/overlay"
)

// What lies in the tables, as c/maps.h has it. A test compares the sizes.
type (
	address [16]byte // IPv4 as ::ffff:a.b.c.d

	configValue struct {
		Plain         address
		Tunnel, Agent uint32
		MTU           uint32
		Port          [2]byte
		_             [2]byte
		Age           uint32
	}
	serviceKey struct {
		Addr address
		Net  uint32
	}
	serviceValue struct {
		Turn, Slots uint32
		Slot        [overlay.MaxSlots]address
	}
	instanceValue struct {
		Net, Index, Flags uint32
		MAC, Gate         [6]byte
	}
	foreignKey struct {
		Index, Net uint32
	}
	routeKey struct {
		Bits uint32
		Addr address
	}
	routeValue struct {
		Kind, Peer uint32
	}
	peerValue struct {
		Endpoint, Source, Hop address
		Tag                   [8]byte
		Index                 uint32
		Port                  [2]byte
		Way, V6               uint8
	}
	tagKey struct {
		Tag    [8]byte
		Source address
	}
	flowKey struct {
		Client, To  address
		Net         uint32
		CPort, Port [2]byte
		Proto, Dir  uint8
		_           [2]byte
	}
	flowValue struct {
		Other            address
		Last, Ack, Flags uint32
	}
	shareValue struct {
		Flows, Seen, Round, Most uint32
	}
	eventValue struct {
		Src, Dst             address
		Kind, Net, Peer, Pad uint32
	}
	sweepArgs struct {
		Backend                         address
		What                            uint32
		Established, Closing, UDP, ICMP uint32
		Flows, Ended                    uint32
		Now                             uint32
	}
)

const (
	limitIn  = 1
	limitOut = 2

	routeServices  = 1
	routeInstances = 2
	routeOwn       = 3
	routePeer      = 4

	byTunnel = 0
	byWire   = 1
	byLink   = 2

	eventUnknown = 1
	eventFull    = 2
	eventReset   = 3

	doSweep  = 0
	doReset  = 1
	doForget = 2
	doCount  = 3
)

// counterNames are those of the enumeration in c/maps.h.
func counterNames() []string {
	return []string{
		"local", "to-plain", "to-tunnel", "from-plain", "from-tunnel", "new-flow", "to-agent",
		"drop-spoofed", "drop-protocol", "drop-malformed", "drop-network", "drop-forged", "drop-plain", "drop-unknown", "drop-full",
		"drop-clash", "drop-fragment", "drop-gone", "drop-stray", "drop-kernel", "events-lost", "to-wireguard", "from-wireguard",
		"drop-wireguard",
	}
}

const counterNewFlow = 5 // its place in counterNames

func from16(a address) netip.Addr { return netip.AddrFrom16(a).Unmap() }

func port(p uint16) (b [2]byte) {
	binary.BigEndian.PutUint16(b[:], p)
	return b
}

func tag(t uint64) (b [8]byte) {
	binary.BigEndian.PutUint64(b[:], t)
	return b
}

func prefixKey(p netip.Prefix) routeKey {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return routeKey{uint32(bits), p.Masked().Addr().As16()}
}

// table is one of the kernel's with what is in it. Only the device writes it.
type table[K, V comparable] struct {
	m    *ebpf.Map
	have map[K]V
	// keep brings over from the entry that is there what the programs have written into it; nil: they write nothing.
	keep func(was V, to *V)
}

// load reads what an earlier process left.
func (t *table[K, V]) load() error {
	t.have = map[K]V{}
	var k K
	var v V
	it := t.m.Iterate()
	for it.Next(&k, &v) {
		t.have[k] = t.bare(v)
	}
	return it.Err()
}

func (t *table[K, V]) bare(v V) V {
	if t.keep != nil {
		var none V
		t.keep(none, &v)
	}
	return v
}

// add brings in what is new or different.
func (t *table[K, V]) add(want map[K]V) error {
	for k, v := range want {
		if old, ok := t.have[k]; ok && old == v {
			continue
		}
		to := v
		if t.keep != nil {
			var was V
			if err := t.m.Lookup(&k, &was); err == nil {
				t.keep(was, &to)
			}
		}
		if err := t.m.Put(&k, &to); err != nil {
			return fmt.Errorf("table %s: %w", t.m, err)
		}
		t.have[k] = v
	}
	return nil
}

// trim takes out what is not wanted.
func (t *table[K, V]) trim(want map[K]V) error {
	for k := range maps.Clone(t.have) {
		if _, ok := want[k]; ok {
			continue
		}
		if err := t.m.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("table %s: %w", t.m, err)
		}
		delete(t.have, k)
	}
	return nil
}

// tables are all that Set writes.
type tables struct {
	services  table[serviceKey, serviceValue]
	instances table[address, instanceValue]
	cables    table[uint32, uint32]
	foreign   table[foreignKey, uint8]
	routes    table[routeKey, routeValue]
	peers     table[uint32, peerValue]
	tags      table[tagKey, uint32]
	prefixes  table[address, uint32]
}

func openTables(m map[string]*ebpf.Map) (*tables, error) {
	t := &tables{}
	t.services.m, t.instances.m, t.cables.m, t.foreign.m = m["services"], m["instances"], m["cables"], m["foreign"]
	t.routes.m, t.peers.m, t.tags.m, t.prefixes.m = m["routes"], m["peers"], m["tags"], m["prefixes"]
	t.services.keep = func(was serviceValue, to *serviceValue) { to.Turn = was.Turn }
	t.instances.keep = func(was instanceValue, to *instanceValue) {
		// Another device is another instance.
		if was.Index == to.Index || was.Index == 0 {
			to.MAC = was.MAC
		}
	}
	return t, errors.Join(t.services.load(), t.instances.load(), t.cables.load(), t.foreign.load(), t.routes.load(), t.peers.load(),
		t.tags.load(), t.prefixes.load())
}

// wanted is the content that a configuration asks for.
type wanted struct {
	services  map[serviceKey]serviceValue
	instances map[address]instanceValue
	cables    map[uint32]uint32
	foreign   map[foreignKey]uint8
	routes    map[routeKey]routeValue
	peers     map[uint32]peerValue
	tags      map[tagKey]uint32
	prefixes  map[address]uint32
}

// set changes the tables so that no packet meets a route without its peer, or a service without its route.
func (t *tables) set(w wanted) error {
	return errors.Join(
		t.peers.add(w.peers), t.tags.add(w.tags), t.prefixes.add(w.prefixes), t.cables.add(w.cables), t.foreign.add(w.foreign),
		t.instances.add(w.instances),
		t.routes.add(w.routes), t.services.add(w.services),
		t.services.trim(w.services), t.routes.trim(w.routes), t.instances.trim(w.instances),
		t.foreign.trim(w.foreign), t.cables.trim(w.cables), t.tags.trim(w.tags), t.prefixes.trim(w.prefixes), t.peers.trim(w.peers),
	)
}

// plan works out the content of the tables that depends on nothing of the machine.
func plan(conf overlay.Config) wanted {
	w := wanted{
		services: map[serviceKey]serviceValue{}, instances: map[address]instanceValue{}, cables: map[uint32]uint32{},
		foreign: map[foreignKey]uint8{}, routes: map[routeKey]routeValue{}, peers: map[uint32]peerValue{}, tags: map[tagKey]uint32{},
		prefixes: map[address]uint32{},
	}
	for _, s := range conf.Services {
		v := serviceValue{Slots: uint32(len(s.Slots))}
		for i, b := range s.Slots {
			v.Slot[i] = b.Addr.As16()
		}
		w.services[serviceKey{s.Addr.As16(), uint32(s.Net)}] = v
	}
	for _, p := range conf.Local.Instances {
		w.routes[prefixKey(p)] = routeValue{Kind: routeInstances}
	}
	for _, p := range conf.Local.Services {
		w.routes[prefixKey(p)] = routeValue{Kind: routeServices}
	}
	for _, peer := range conf.Peers {
		for _, p := range peer.Prefixes {
			w.routes[prefixKey(p)] = routeValue{routePeer, uint32(peer.ID)}
		}
		v := peerValue{}
		if path := peer.Plain; path != nil {
			v = peerValue{Endpoint: path.Endpoint.Addr().As16(), Tag: tag(path.TagOut), Port: port(path.Endpoint.Port()), Way: byWire}
			for _, t := range path.TagsIn {
				w.tags[tagKey{tag(t), v.Endpoint}] = uint32(peer.ID)
			}
		}
		if l := peer.Link; l != nil && conf.Local.Link != nil {
			w.prefixes[l.Prefix.Addr().As16()] = uint32(peer.ID)
			if l.Use && peer.Plain == nil {
				v = peerValue{Endpoint: l.Prefix.Addr().As16(), Source: conf.Local.Link.Prefix.Addr().As16(), Way: byLink}
			}
		}
		w.peers[uint32(peer.ID)] = v
	}
	if l := conf.Local.Link; l != nil {
		w.prefixes[l.Prefix.Addr().As16()] = 0
	}
	for _, p := range conf.Local.Blocks {
		w.routes[prefixKey(p)] = routeValue{Kind: routeOwn}
	}
	return w
}

// clone copies a configuration that is kept: the caller may change its own.
func clone(conf overlay.Config) overlay.Config {
	conf.Local.Blocks, conf.Local.Instances, conf.Local.Services = slices.Clone(conf.Local.Blocks), slices.Clone(conf.Local.Instances),
		slices.Clone(conf.Local.Services)
	conf.Instances, conf.Services, conf.Peers = slices.Clone(conf.Instances), slices.Clone(conf.Services), slices.Clone(conf.Peers)
	for i := range conf.Instances {
		conf.Instances[i].Addrs, conf.Instances[i].Foreign = slices.Clone(conf.Instances[i].Addrs), slices.Clone(conf.Instances[i].Foreign)
	}
	for i := range conf.Services {
		conf.Services[i].Slots = slices.Clone(conf.Services[i].Slots)
	}
	for i := range conf.Peers {
		conf.Peers[i].Prefixes = slices.Clone(conf.Peers[i].Prefixes)
		if p := conf.Peers[i].Plain; p != nil {
			path := *p
			path.TagsIn = slices.Clone(p.TagsIn)
			conf.Peers[i].Plain = &path
		}
		if p := conf.Peers[i].Link; p != nil {
			link := *p
			conf.Peers[i].Link = &link
		}
	}
	if p := conf.Local.Link; p != nil {
		link := *p
		conf.Local.Link = &link
	}
	return conf
}

// check finds what no data plane could be.
func check(conf overlay.Config) error {
	if p := conf.Local.Plain; p.IsValid() && (p.Addr().IsUnspecified() || p.Port() == 0) {
		return fmt.Errorf("plain endpoint %s must have an address and a port", p)
	}
	if conf.Local.MTU != 0 && (conf.Local.MTU < 576 || conf.Local.MTU > 65535) {
		return fmt.Errorf("MTU %d must be 576 to 65535", conf.Local.MTU)
	}
	for _, s := range conf.Services {
		if !s.Addr.IsValid() || len(s.Slots) > overlay.MaxSlots {
			return fmt.Errorf("service address %s with %d slots: it must be valid, with at most %d", s.Addr, len(s.Slots), overlay.MaxSlots)
		}
		for _, b := range s.Slots {
			if !b.Addr.IsValid() || b.Addr.Is4() != s.Addr.Is4() {
				return fmt.Errorf("service address %s leads to %s: both must be of one family", s.Addr, b.Addr)
			}
		}
	}
	if l := conf.Local.Link; l != nil && (l.Device == "" || !overlay.LinkPrefix(l.Prefix)) {
		return fmt.Errorf("WireGuard device %q with prefix %s: both must be given, the prefix with IPv6 and %d bits", l.Device, l.Prefix,
			overlay.LinkBits)
	}
	owner := map[netip.Addr]string{}
	for _, i := range conf.Instances {
		for _, a := range i.Addrs {
			if id, ok := owner[a]; ok || !a.IsValid() || i.Device == "" {
				return fmt.Errorf("instance %s: address %q on device %q is not valid, or is that of %q too", i.ID, a, i.Device, id)
			}
			owner[a] = i.ID
		}
	}
	for _, list := range [][]netip.Prefix{conf.Local.Blocks, conf.Local.Instances, conf.Local.Services} {
		for _, p := range list {
			if !p.IsValid() {
				return errors.New("a prefix of this worker is not valid")
			}
		}
	}
	ids, links := map[uint32]bool{}, map[netip.Prefix]bool{}
	if l := conf.Local.Link; l != nil {
		links[l.Prefix] = true
	}
	for _, p := range conf.Peers {
		if l := p.Link; l != nil {
			if !overlay.LinkPrefix(l.Prefix) || links[l.Prefix] {
				return fmt.Errorf("peer %d %s: the prefix %s on the WireGuard device must be its own, of IPv6 and %d bits", p.ID, p.Name, l.Prefix,
					overlay.LinkBits)
			}
			links[l.Prefix] = true
		}
		if p.ID == 0 || ids[uint32(p.ID)] {
			return fmt.Errorf("peer %d %s: the number must be its own, and not 0", p.ID, p.Name)
		}
		ids[uint32(p.ID)] = true
		for _, x := range p.Prefixes {
			if !x.IsValid() {
				return fmt.Errorf("peer %d %s: a prefix is not valid", p.ID, p.Name)
			}
		}
		if p.Plain != nil && (!p.Plain.Endpoint.IsValid() || p.Plain.Endpoint.Addr().IsUnspecified() || p.Plain.Endpoint.Port() == 0) {
			return fmt.Errorf("peer %d %s: plain endpoint %s must have an address and a port", p.ID, p.Name, p.Plain.Endpoint)
		}
	}
	return nil
}
