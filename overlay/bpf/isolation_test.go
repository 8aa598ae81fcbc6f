//go:build linux

package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/forge"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// An instance speaks for itself and nobody else.
func TestSourceIsItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, from := w.hosts[0], w.Inst("a1")
	planetest.SourceIsItsOwn(t, w.World)
	for name, c := range map[string]struct {
		frame []byte
		want  uint32
	}{
		"its own address":              {planetest.ARP(from.A4, w.Inst("b1").A4), verdictNext},
		"its own address, IPv6":        {from.NeighbourAdvertisement(from.A6), verdictNext},
		"a source route":               {sourceRoute(from.A6, w.Inst("b1").A6), verdictDrop},
		"something for the internet":   {h.Frame(planetest.UDP(from.A4, netip.MustParseAddr("192.0.2.1"), 1, 2, nil)), verdictNext},
		"something for the gateway":    {h.Frame(planetest.UDP(from.A6, h.Gateway(true), 1, 2, nil)), verdictNext},
		"an unknown instance's prefix": {h.Frame(planetest.UDP(from.A4, netip.MustParseAddr("10.40.77.7"), 1, 2, nil)), verdictRedirect},
	} {
		if got := h.try("from_instance", from.Device, c.frame); got != c.want {
			t.Errorf("%s: verdict %d, want %d", name, int32(got), int32(c.want))
		}
	}
}

func sourceRoute(src, dst netip.Addr) []byte {
	p := forge.IP(src, dst, 43, append([]byte{17, 2, 0, 1, 0, 0, 0, 0}, make([]byte, 24)...), 30)
	return planetest.ToAll(p)
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
	kerneltest.Run(t, one.NS, "ip addr add 10.100.0.77/24 dev wire")
	server := w.Inst("a2").Listen(80)
	from := func(addr string) net.Conn {
		var c net.Conn
		planetest.Must(t, kernel.In(one.NS, func() (err error) {
			d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(addr)}}
			c, err = d.Dial("udp", fmt.Sprint("10.100.0.2:", plainPort))
			return err
		}))
		t.Cleanup(func() { c.Close() })
		return c
	}
	peer, stranger := from("10.100.0.1"), from("10.100.0.77")
	src, dst := w.Inst("a1").A4, w.Inst("a2").A4
	good := planetest.UDP(src, dst, 1, 80, []byte("hello"))
	_, err := peer.Write(datagram(1001, 7, good))
	planetest.Must(t, err)
	if s, _ := planetest.Hears(server, 10*time.Second); s != "hello" {
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
		{"a source of this host", "drop-forged", peer, datagram(1001, 7, planetest.UDP(w.Inst("b2").A4, dst, 1, 80, []byte("x")))},
		{"a source of nobody", "drop-forged", peer, datagram(1001, 7, planetest.UDP(netip.MustParseAddr("10.40.9.9"), dst, 1, 80, []byte("x")))},
		{"a source outside", "drop-forged", peer, datagram(1001, 7, planetest.UDP(netip.MustParseAddr("192.0.2.9"), dst, 1, 80, []byte("x")))},
		{"an unknown instance", "drop-unknown", peer,
			datagram(1001, 7, planetest.UDP(src, netip.MustParseAddr("10.40.2.60"), 1, 80, []byte("x")))},
		{"the host itself", "drop-unknown", peer, datagram(1001, 7, planetest.UDP(src, two.Gateway(false), 1, 80, []byte("x")))},
		{"the internet", "drop-unknown", peer, datagram(1001, 7, planetest.UDP(src, netip.MustParseAddr("192.0.2.9"), 1, 80, []byte("x")))},
		{"a service address", "drop-unknown", peer, datagram(1001, 7, planetest.UDP(src, planetest.Svc(1, false), 1, 80, []byte("x")))},
	} {
		before := two.Count(c.counter)
		_, err := c.from.Write(c.data)
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(c.name, err)
		}
		planetest.Eventually(t, c.name, func() bool { return two.Count(c.counter) == before+1 })
		planetest.Silent(t, c.name, server)
	}
	// With options in its header a datagram takes the way through the kernel's own unwrapping, and is checked there.
	for tag, want := range map[uint64]string{1001: "hello", 1002: ""} {
		before, raw := two.Count("drop-plain"), must2(peer.(*net.UDPConn).SyscallConn())
		planetest.Must(t, raw.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_IP, unix.IP_OPTIONS, "\x01\x01\x01\x01")
		}))
		planetest.Must(t, err)
		_, err = peer.Write(datagram(tag, 7, good))
		planetest.Must(t, err)
		if want == "" {
			planetest.Eventually(t, "another tag, with options", func() bool { return two.Count("drop-plain") == before+1 })
			planetest.Silent(t, "another tag, with options", server)
		} else if s, _ := planetest.Hears(server, 10*time.Second); s != want {
			t.Errorf("with options: %q", s)
		}
	}
	planetest.Must(t, must2(peer.(*net.UDPConn).SyscallConn()).Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_IP, unix.IP_OPTIONS, "")
	}))
	planetest.Must(t, err)
	// The worker learns of instances that peers believe to be here.
	e := <-two.dev.Events()
	if e.Kind != overlay.EventUnknown || e.Peer != 1 || e.Net != 7 || e.Src != src || e.Dst.String() != "10.40.2.60" {
		t.Errorf("%+v", e)
	}
	// Both tags count while they are rotated.
	two.Conf.Peers[0].Plain.TagsIn = []uint64{1001, 5555}
	two.Set()
	for _, tag := range []uint64{1001, 5555} {
		_, err := peer.Write(datagram(tag, 7, good))
		planetest.Must(t, err)
		if s, _ := planetest.Hears(server, 10*time.Second); s != "hello" {
			t.Errorf("tag %d does not count", tag)
		}
	}
	// A forged packet that the host itself would route to the instance.
	before := two.Count("drop-forged")
	kerneltest.Run(t, one.NS, "ip route add 10.40.2.0/26 via 10.100.0.2")
	var c net.PacketConn
	planetest.Must(t, kernel.In(one.NS, func() (err error) {
		c, err = net.ListenPacket("udp4", "10.40.1.1:0")
		return err
	}))
	defer c.Close()
	_, err = c.WriteTo([]byte("routed"), &net.UDPAddr{IP: dst.AsSlice(), Port: 80})
	planetest.Must(t, err)
	planetest.Eventually(t, "a routed packet of the overlay is dropped", func() bool { return two.Count("drop-forged") > before })
	planetest.Silent(t, "a routed packet", server)
}
