//go:build linux

package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
	"skerry.dev/skerry/wire"
)

// silent fails if anything is heard.
func silent(t *testing.T, what string, u *net.UDPConn) {
	t.Helper()
	if s, from := hears(u, 50*time.Millisecond); s != "" {
		t.Errorf("%s: %q from %s arrived", what, s, from)
	}
}

// An instance speaks for itself and nobody else.
func TestSourceIsItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, from := w.hosts[0], w.inst("a1")
	servers := []*net.UDPConn{w.inst("b1").listen(80), w.inst("a2").listen(80)}
	for n, forged := range []netip.Addr{w.inst("b1").a4, w.inst("b2").a4, h.gateway(false), netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("0.0.0.0"), w.inst("b1").a6, w.inst("b2").a6, netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("fe80::1")} {
		for _, to := range []string{"b1", "a2"} {
			from.send(udp(forged, w.inst(to).addr(forged.Is6()), 1000, 80, []byte("forged")))
		}
		from.send(udp(forged, h.gateway(forged.Is6()), 1000, 80, []byte("forged")))
		eventually(t, forged.String(), func() bool { return h.count("drop-spoofed") >= int64(3*n+3) })
	}
	for _, u := range servers {
		silent(t, "a forged source", u)
	}
	// What is said to neighbours.
	arp := func(sender netip.Addr) []byte {
		b := append(append([]byte{}, broadcast()...), 2, 0, 0, 0, 0, 99, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 99)
		return append(append(append(b, sender.AsSlice()...), broadcast()...), w.inst("b1").a4.AsSlice()...)
	}
	na := func(target netip.Addr) []byte {
		icmp := append([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, target.AsSlice()...)
		return ether(broadcast(), broadcast(), packet(from.a6, netip.MustParseAddr("ff02::1"), 58, icmp, 2)[etherLen:])
	}
	ra := ether(broadcast(), broadcast(), packet(netip.MustParseAddr("fe80::2"), netip.MustParseAddr("ff02::1"), 58, make([]byte, 16), 2)[etherLen:])
	ra[etherLen+40] = 134
	for name, c := range map[string]struct {
		frame []byte
		want  uint32
	}{
		"its own address":              {arp(from.a4), verdictNext},
		"the gateway's":                {arp(h.gateway(false)), verdictDrop},
		"a neighbour's":                {arp(w.inst("b1").a4), verdictDrop},
		"its own address, IPv6":        {na(from.a6), verdictNext},
		"the gateway's, IPv6":          {na(h.gateway(true)), verdictDrop},
		"a router advertisement":       {ra, verdictDrop},
		"another protocol":             {append(append(append([]byte{}, broadcast()...), broadcast()...), 0x88, 0xcc, 1, 2, 3, 4), verdictDrop},
		"a source route":               {sourceRoute(from.a6, w.inst("b1").a6), verdictDrop},
		"something for the internet":   {ether(h.mac(), broadcast(), udp(from.a4, netip.MustParseAddr("192.0.2.1"), 1, 2, nil)), verdictNext},
		"something for the gateway":    {ether(h.mac(), broadcast(), udp(from.a6, h.gateway(true), 1, 2, nil)), verdictNext},
		"an unknown instance's prefix": {ether(h.mac(), broadcast(), udp(from.a4, netip.MustParseAddr("10.40.77.7"), 1, 2, nil)), verdictRedirect},
	} {
		if got := h.try("from_instance", from.device, c.frame); got != c.want {
			t.Errorf("%s: verdict %d, want %d", name, int32(got), int32(c.want))
		}
	}
}

func sourceRoute(src, dst netip.Addr) []byte {
	p := packet(src, dst, 43, append([]byte{17, 2, 0, 1, 0, 0, 0, 0}, make([]byte, 24)...), 30)
	return ether(broadcast(), broadcast(), p[etherLen:])
}

// Instances of different networks do not reach each other, here or across hosts, by their addresses or by service
// addresses, unless one accepts the other's network; then answers come back, and nothing else.
func TestNetworksAreApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	one, two := w.hosts[0], w.hosts[1]
	near, far := one.add("x1", 9), two.add("x2", 9)
	one.set()
	two.set()
	client := w.inst("a1")
	for _, i := range []*inst{near, far} {
		i.serve(80)
	}
	client.serve(80)
	for _, six := range []bool{false, true} {
		for _, i := range []*inst{near, far} {
			u := i.listen(81)
			h := i.h
			before := h.count("drop-network")
			client.send(udp(client.addr(six), i.addr(six), 1, 81, []byte("hello")))
			eventually(t, "a packet to another network is dropped", func() bool { return h.count("drop-network") > before })
			silent(t, "another network", u)
			u.Close()
			if client.reaches(i.addr(six)) {
				t.Errorf("%s answers an instance of another network", i.name)
			}
		}
	}
	// Straight over the bridge, to the other's hardware address.
	var eth *net.Interface
	must(t, kernel.In(near.ns, func() (err error) { eth, err = net.InterfaceByName("eth0"); return err }))
	u := near.listen(82)
	for _, to := range []netip.Addr{near.a4, near.a6} {
		before := one.count("drop-network")
		client.inject(ether(eth.HardwareAddr, broadcast(), udp(client.addr(to.Is6()), to, 1, 82, []byte("hello"))))
		eventually(t, "a packet over the bridge is dropped", func() bool { return one.count("drop-network") > before })
	}
	before := one.count("drop-network")
	client.inject(ether(broadcast(), broadcast(), udp(client.a4, netip.MustParseAddr("224.0.0.251"), 1, 82, []byte("hello"))))
	eventually(t, "a packet for everybody is dropped", func() bool { return one.count("drop-network") > before })
	silent(t, "the bridge", u)

	// Exported: the instances accept network 7, in which a service address leads to them.
	for _, h := range w.hosts {
		for n := range h.conf.Instances {
			if h.conf.Instances[n].Net == 9 {
				h.conf.Instances[n].Foreign = []wire.NetworkID{7}
			}
		}
	}
	for n, i := range []*inst{near, far} {
		for _, six := range []bool{false, true} {
			one.conf.Services = append(one.conf.Services, overlay.Service{Net: 7, Addr: svc(byte(n+1), six), Slots: []overlay.Backend{{Net: 9, Addr: i.addr(six)}}})
		}
	}
	one.set()
	two.set()
	for n, want := range []string{"x1", "x2"} {
		for _, six := range []bool{false, true} {
			for _, network := range []string{"tcp", "udp"} {
				if got, err := client.ask(network, svc(byte(n+1), six), 80); err != nil || got != want {
					t.Errorf("exported: %q, %v, want %s", got, err, want)
				}
			}
		}
	}
	// Nobody else's address means anything there, and the way back is not one for new flows.
	for _, i := range []*inst{near, far} {
		if i.reaches(client.a4) {
			t.Errorf("%s reaches a client of its service", i.name)
		}
		before := one.count("drop-network")
		i.send(udp(i.a4, client.a4, 80, 80, []byte("hello")))
		eventually(t, "a packet to a client of the service is dropped", func() bool { return one.count("drop-network") > before })
	}
}

func must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// datagram is what a plain path carries.
func datagram(tag uint64, network uint32, p []byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{8, 0, 0, 0, 0, 0, 7, 0}, tag)
	b = binary.BigEndian.AppendUint32(b, network)
	if p[0]>>4 == 6 {
		return append(append(b, 0x86, 0xdd), p...)
	}
	return append(append(b, 8, 0), p...)
}

// Of what comes to the port of plain paths only that of a peer, with its tag, from its address, and out of its prefixes,
// gets any further.
func TestPlainPortDropsTheUnexpected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	one, two := w.hosts[0], w.hosts[1]
	kerneltest.Run(t, one.ns, "ip addr add 10.100.0.77/24 dev wire")
	server := w.inst("a2").listen(80)
	from := func(addr string) net.Conn {
		var c net.Conn
		must(t, kernel.In(one.ns, func() (err error) {
			d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(addr)}}
			c, err = d.Dial("udp", fmt.Sprint("10.100.0.2:", plainPort))
			return err
		}))
		t.Cleanup(func() { c.Close() })
		return c
	}
	peer, stranger := from("10.100.0.1"), from("10.100.0.77")
	src, dst := w.inst("a1").a4, w.inst("a2").a4
	good := udp(src, dst, 1, 80, []byte("hello"))
	_, err := peer.Write(datagram(1001, 7, good))
	must(t, err)
	if s, _ := hears(server, 10*time.Second); s != "hello" {
		t.Fatal("what is as it should be does not arrive")
	}
	for _, c := range []struct {
		name, counter string
		from          net.Conn
		data          []byte
	}{
		{"another tag", "drop-plain", peer, datagram(1002, 7, good)},
		{"another address", "drop-plain", stranger, datagram(1001, 7, good)},
		{"nothing", "drop-plain", peer, nil},
		{"anything", "drop-plain", peer, []byte("anything, for some length, or a little more than that")},
		{"another frame", "drop-plain", peer, append(datagram(1001, 7, good)[:20], 8, 6)},
		{"half a packet", "drop-malformed", peer, datagram(1001, 7, good)[:30]},
		{"another network", "drop-network", peer, datagram(1001, 9, good)},
		{"a source of this host", "drop-forged", peer, datagram(1001, 7, udp(w.inst("b2").a4, dst, 1, 80, []byte("x")))},
		{"a source of nobody", "drop-forged", peer, datagram(1001, 7, udp(netip.MustParseAddr("10.40.9.9"), dst, 1, 80, []byte("x")))},
		{"a source outside", "drop-forged", peer, datagram(1001, 7, udp(netip.MustParseAddr("192.0.2.9"), dst, 1, 80, []byte("x")))},
		{"an unknown instance", "drop-unknown", peer, datagram(1001, 7, udp(src, netip.MustParseAddr("10.40.2.60"), 1, 80, []byte("x")))},
		{"the host itself", "drop-unknown", peer, datagram(1001, 7, udp(src, two.gateway(false), 1, 80, []byte("x")))},
		{"the internet", "drop-unknown", peer, datagram(1001, 7, udp(src, netip.MustParseAddr("192.0.2.9"), 1, 80, []byte("x")))},
		{"a service address", "drop-unknown", peer, datagram(1001, 7, udp(src, svc(1, false), 1, 80, []byte("x")))},
	} {
		before := two.count(c.counter)
		_, err := c.from.Write(c.data)
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(c.name, err)
		}
		eventually(t, c.name, func() bool { return two.count(c.counter) == before+1 })
		silent(t, c.name, server)
	}
	// With options in its header a datagram takes the way through the kernel's own unwrapping, and is checked there.
	for tag, want := range map[uint64]string{1001: "hello", 1002: ""} {
		before, raw := two.count("drop-plain"), must2(peer.(*net.UDPConn).SyscallConn())
		must(t, raw.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_IP, unix.IP_OPTIONS, "\x01\x01\x01\x01")
		}))
		must(t, err)
		_, err = peer.Write(datagram(tag, 7, good))
		must(t, err)
		if want == "" {
			eventually(t, "another tag, with options", func() bool { return two.count("drop-plain") == before+1 })
			silent(t, "another tag, with options", server)
		} else if s, _ := hears(server, 10*time.Second); s != want {
			t.Errorf("with options: %q", s)
		}
	}
	must(t, must2(peer.(*net.UDPConn).SyscallConn()).Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), unix.IPPROTO_IP, unix.IP_OPTIONS, "") }))
	must(t, err)
	// The worker learns of instances that peers believe to be here.
	e := <-two.dev.Events()
	if e.Kind != overlay.EventUnknown || e.Peer != 1 || e.Net != 7 || e.Src != src || e.Dst.String() != "10.40.2.60" {
		t.Errorf("%+v", e)
	}
	// Both tags count while they are rotated.
	two.conf.Peers[0].Plain.TagsIn = []uint64{1001, 5555}
	two.set()
	for _, tag := range []uint64{1001, 5555} {
		_, err := peer.Write(datagram(tag, 7, good))
		must(t, err)
		if s, _ := hears(server, 10*time.Second); s != "hello" {
			t.Errorf("tag %d does not count", tag)
		}
	}
	// A forged packet that the host itself would route to the instance.
	before := two.count("drop-forged")
	kerneltest.Run(t, one.ns, "ip route add 10.40.2.0/26 via 10.100.0.2")
	var c net.PacketConn
	must(t, kernel.In(one.ns, func() (err error) {
		c, err = net.ListenPacket("udp4", "10.40.1.1:0")
		return err
	}))
	defer c.Close()
	_, err = c.WriteTo([]byte("routed"), &net.UDPAddr{IP: dst.AsSlice(), Port: 80})
	must(t, err)
	eventually(t, "a routed packet of the overlay is dropped", func() bool { return two.count("drop-forged") > before })
	silent(t, "a routed packet", server)
}

// Without a peer nothing comes from it any more; and a peer whose prefix moves to another one no longer speaks for it.
func TestPeerGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	w.inst("a2").serve(80)
	if got, err := w.inst("a1").ask("tcp", w.inst("a2").a4, 80); err != nil || got != "a2" {
		t.Fatal(got, err)
	}
	two := w.hosts[1]
	two.conf.Peers = slices.Delete(two.conf.Peers, 0, 1)
	two.set()
	if w.inst("a1").reaches(w.inst("a2").a4) {
		t.Error("a peer that is no more is heard")
	}
	if two.count("drop-plain") == 0 {
		t.Error("it was not counted")
	}
}
