//go:build linux

package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/forge"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/wire"
)

// deadFor is how long clients of a backend that is no more are answered by resets.
const deadFor = time.Minute

// resets are flows that Reset ended, as packets of their clients come to the agent: the service's address is already changed to
// the backend's. They are answered with the address that the client asked for.
type resets struct {
	mu    sync.Mutex
	until map[netip.Addr]time.Time
	by    map[resetKey]netip.Addr
}

type resetKey struct {
	client, backend netip.AddrPort
}

// service says whether a packet is for a backend that is no more, and for which address its client takes it.
func (r *resets) service(p packet, now time.Time) (netip.Addr, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, ok := r.until[p.dst]; !ok || now.After(until) {
		return netip.Addr{}, false
	}
	if s, ok := r.by[resetKey{netip.AddrPortFrom(p.src, p.sport), netip.AddrPortFrom(p.dst, p.dport)}]; ok {
		return s, true
	}
	return p.dst, true
}

func (r *resets) add(backend netip.Addr, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until, r.by = map[netip.Addr]time.Time{}, map[resetKey]netip.Addr{}
	}
	r.until[backend] = until
}

func (r *resets) flow(client, backend netip.AddrPort, service netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by[resetKey{client, backend}] = service
}

func (r *resets) forget(backend netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.until, backend)
	for k := range r.by {
		if k.backend.Addr() == backend {
			delete(r.by, k)
		}
	}
}

// Reset ends the flows to a backend that is no more.
func (d *Device) Reset(addr netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	if err := d.kill(addr); err != nil {
		return fmt.Errorf("overlay: reset flows to %s: %w", addr, err)
	}
	return nil
}

func (d *Device) kill(addr netip.Addr) error {
	d.resets.add(addr, time.Now().Add(deadFor))
	d.dead[addr] = true
	if err := d.deadRoute(addr); err != nil {
		return err
	}
	d.goroutines.Go(func() {
		select {
		case <-d.closing:
		case <-time.After(deadFor):
			d.bury(addr)
		}
	})
	list, err := d.flows(addr)
	if err != nil {
		return err
	}
	k := d.now.Load()
	for _, f := range list {
		client, service := f.Forward.SrcIP, f.Forward.DstIP
		c, ok := netip.AddrFromSlice(client)
		s, ok2 := netip.AddrFromSlice(service)
		c, s = c.Unmap(), s.Unmap()
		if _, here := k.local[c]; !ok || !ok2 || !here || f.Forward.Protocol != unix.IPPROTO_TCP {
			continue
		}
		d.resets.flow(netip.AddrPortFrom(c, f.Forward.SrcPort), netip.AddrPortFrom(addr, f.Reverse.SrcPort), s)
		// A segment that fits nowhere has the client say where it is, and that can be answered by a reset it believes. One with
		// data it answers however often that happens.
		d.write(segment(s, c, f.Forward.DstPort, f.Forward.SrcPort, 0, 0, 16, 0))
	}
	_, err = d.nl.ConntrackDeleteFilters(netlink.ConntrackTable, inet(addr), &flowFilter{func(f *netlink.ConntrackFlow) bool {
		b, ok := netip.AddrFromSlice(f.Reverse.SrcIP)
		return ok && b.Unmap() == addr && f.Forward.Protocol != unix.IPPROTO_TCP
	}})
	return err
}

// bury ends that a backend that was no more is remembered.
func (d *Device) bury(addr netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || !d.dead[addr] {
		return
	}
	d.raise(addr)
}

func (d *Device) raise(addr netip.Addr) {
	delete(d.dead, addr)
	d.resets.forget(addr)
	_ = d.nl.RouteDel(&netlink.Route{Table: d.opts.routes(), Dst: kernel.IPNet(netip.PrefixFrom(addr, addr.BitLen())),
		Gw: gateway(addr.Is6())})
}

// revive forgets that backends were no more.
func (d *Device) revive(c overlay.Config) {
	if len(d.dead) == 0 {
		return
	}
	back := map[netip.Addr]bool{}
	for _, i := range c.Instances {
		for _, a := range i.Addrs {
			back[a] = true
		}
	}
	for _, s := range c.Services {
		for _, b := range s.Slots {
			back[b.Addr] = true
		}
	}
	for a := range d.dead {
		if back[a] {
			d.raise(a)
		}
	}
}

// deadRoute leads packets to a backend that is no more to the agent.
func (d *Device) deadRoute(addr netip.Addr) error {
	l, err := d.nl.LinkByName(d.opts.agentTap())
	if err != nil {
		return fmt.Errorf("device %s: %w", d.opts.agentTap(), err)
	}
	return d.nl.RouteReplace(&netlink.Route{Table: d.opts.routes(), Dst: kernel.IPNet(netip.PrefixFrom(addr, addr.BitLen())),
		LinkIndex: l.Attrs().Index, Gw: gateway(addr.Is6()), Flags: int(netlink.FLAG_ONLINK), Protocol: unix.RTPROT_STATIC})
}

type flowFilter struct {
	f func(*netlink.ConntrackFlow) bool
}

func (x *flowFilter) MatchConntrackFlow(f *netlink.ConntrackFlow) bool { return x.f(f) }

func inet(a netip.Addr) netlink.InetFamily {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func (d *Device) connections(family netlink.InetFamily) ([]*netlink.ConntrackFlow, error) {
	list, err := kernel.Whole(func() ([]*netlink.ConntrackFlow, error) {
		return d.nl.ConntrackTableList(netlink.ConntrackTable, family)
	})
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	return list, nil
}

// flows lists those to a backend.
func (d *Device) flows(backend netip.Addr) ([]*netlink.ConntrackFlow, error) {
	list, err := d.connections(inet(backend))
	if err != nil {
		return nil, err
	}
	out := list[:0]
	for _, f := range list {
		if b, ok := netip.AddrFromSlice(f.Reverse.SrcIP); ok && b.Unmap() == backend {
			out = append(out, f)
		}
	}
	return out, nil
}

// InUse lists the service addresses that flows of instances here go through.
func (d *Device) InUse() (map[overlay.ServiceAddr]bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	k, out := d.now.Load(), map[overlay.ServiceAddr]bool{}
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		list, err := d.connections(family)
		if err != nil {
			return nil, fmt.Errorf("overlay: %w", err)
		}
		for _, f := range list {
			client, _ := netip.AddrFromSlice(f.Forward.SrcIP)
			to, _ := netip.AddrFromSlice(f.Forward.DstIP)
			if n, here := k.local[client.Unmap()]; here && k.pool(to.Unmap()) {
				out[overlay.ServiceAddr{Net: wire.NetworkID(n), Addr: to.Unmap()}] = true
			}
		}
	}
	return out, nil
}

// forget ends the flows of clients that are no more.
func (d *Device) forget(clients []netip.Addr) error {
	gone := map[netip.Addr]bool{}
	for _, a := range clients {
		gone[a] = true
	}
	filter := &flowFilter{func(f *netlink.ConntrackFlow) bool {
		c, ok := netip.AddrFromSlice(f.Forward.SrcIP)
		return ok && gone[c.Unmap()]
	}}
	for _, f := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		if len(gone) == 0 {
			break
		}
		if _, err := d.nl.ConntrackDeleteFilters(netlink.ConntrackTable, f, filter); err != nil {
			return fmt.Errorf("end connections: %w", err)
		}
	}
	return nil
}

// Attributes of ctnetlink that x/sys does not name.
const (
	ctaTupleOrig, ctaTupleIP, ctaTupleProto               = 1, 1, 2
	ctaIPv4Src, ctaIPv4Dst, ctaIPv6Src, ctaIPv6Dst        = 1, 2, 3, 4
	ctaProtoNum, ctaProtoSrc, ctaProtoDst                 = 1, 2, 3
	ctaICMPID, ctaICMPType, ctaICMPCode                   = 4, 5, 6
	ctaICMP6ID, ctaICMP6Type, ctaICMP6Code                = 7, 8, 9
	ctDelete, nlaNested                            uint16 = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2, unix.NLA_F_NESTED
)

// forgetFlow ends the connection that a packet began.
func (d *Device) forgetFlow(pkt packet) {
	c, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, &mdnetlink.Config{NetNS: int(d.host.Fd())})
	if err != nil {
		return
	}
	defer c.Close()
	family, ip := byte(unix.AF_INET), []mdnetlink.Attribute{{Type: ctaIPv4Src, Data: pkt.src.AsSlice()},
		{Type: ctaIPv4Dst, Data: pkt.dst.AsSlice()}}
	if pkt.src.Is6() {
		family, ip = unix.AF_INET6, []mdnetlink.Attribute{{Type: ctaIPv6Src, Data: pkt.src.AsSlice()},
			{Type: ctaIPv6Dst, Data: pkt.dst.AsSlice()}}
	}
	be := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	proto := []mdnetlink.Attribute{{Type: ctaProtoNum, Data: []byte{pkt.proto}}}
	switch pkt.proto {
	case unix.IPPROTO_ICMP:
		proto = append(proto, mdnetlink.Attribute{Type: ctaICMPID, Data: be(pkt.sport)},
			mdnetlink.Attribute{Type: ctaICMPType, Data: []byte{byte(pkt.dport >> 8)}},
			mdnetlink.Attribute{Type: ctaICMPCode, Data: []byte{byte(pkt.dport)}})
	case unix.IPPROTO_ICMPV6:
		proto = append(proto, mdnetlink.Attribute{Type: ctaICMP6ID, Data: be(pkt.sport)},
			mdnetlink.Attribute{Type: ctaICMP6Type, Data: []byte{byte(pkt.dport >> 8)}},
			mdnetlink.Attribute{Type: ctaICMP6Code, Data: []byte{byte(pkt.dport)}})
	default:
		proto = append(proto, mdnetlink.Attribute{Type: ctaProtoSrc, Data: be(pkt.sport)},
			mdnetlink.Attribute{Type: ctaProtoDst, Data: be(pkt.dport)})
	}
	nest := func(typ uint16, list []mdnetlink.Attribute) mdnetlink.Attribute {
		b, _ := mdnetlink.MarshalAttributes(list)
		return mdnetlink.Attribute{Type: typ | nlaNested, Data: b}
	}
	data, err := mdnetlink.MarshalAttributes([]mdnetlink.Attribute{nest(ctaTupleOrig,
		[]mdnetlink.Attribute{nest(ctaTupleIP, ip), nest(ctaTupleProto, proto)})})
	if err != nil {
		return
	}
	// Without one there is nothing to end, which is an error and none.
	_, _ = c.Execute(mdnetlink.Message{Header: mdnetlink.Header{Type: mdnetlink.HeaderType(ctDelete),
		Flags: mdnetlink.Request | mdnetlink.Acknowledge}, Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, data...)})
}

// segment builds a frame with a TCP segment.
func segment(src, dst netip.Addr, sport, dport uint16, seq, ack uint32, flags byte, data ...byte) []byte {
	t := append(make([]byte, 20), data...)
	binary.BigEndian.PutUint16(t, sport)
	binary.BigEndian.PutUint16(t[2:], dport)
	binary.BigEndian.PutUint32(t[4:], seq)
	binary.BigEndian.PutUint32(t[8:], ack)
	t[12], t[13] = 5<<4, flags
	p := forge.IP(src, dst, unix.IPPROTO_TCP, t, 16)
	return slices.Concat(make([]byte, 12), forge.EtherType(p), p)
}

// answerReset makes the reset that answers a segment of a client; nil: there is none.
func answerReset(p packet, service netip.Addr) []byte {
	if p.proto != unix.IPPROTO_TCP || len(p.body) < 20 || p.body[13]&4 != 0 {
		return nil
	}
	if p.body[13]&16 == 0 { // the first of a connection
		return segment(service, p.src, p.dport, p.sport, 0, binary.BigEndian.Uint32(p.body[4:])+1, 4|16)
	}
	return segment(service, p.src, p.dport, p.sport, binary.BigEndian.Uint32(p.body[8:]), 0, 4)
}
