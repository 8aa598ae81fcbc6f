//go:build linux

package hostnet

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// TestHardwareAddressesStay: an instance that may send raw packets, and uses the hardware address of another, does not get what is for
// that.
func TestHardwareAddressesStay(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	as, err := n.Set(t.Context(), wants("liar", "victim"))
	must(t, err)
	liar, victim := open(t, as["liar"].NetNS), open(t, as["victim"].NetNS)
	serve(t, victim, ":80")
	at := as["victim"].Addresses[0].Addr().String() + ":80"
	if _, err := dial(s.host, "udp4", at); err != nil { // they know each other's hardware addresses
		t.Fatal(err)
	}
	var theirs net.HardwareAddr
	must(t, kernel.In(victim, func() error {
		eth, err := net.InterfaceByName("eth0")
		if err == nil {
			theirs = eth.HardwareAddr
		}
		return err
	}))
	must(t, kernel.In(liar, func() error {
		eth, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := slices.Concat(net.HardwareAddr{255, 255, 255, 255, 255, 255}, theirs, []byte{0x88, 0xb5}, make([]byte, 46))
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: eth.Index})
	}))
	for range 3 {
		if _, err := dial(s.host, "udp4", at); err != nil {
			t.Errorf("it is not reached: %v", err)
		}
	}
}

// sum16 is the Internet checksum.
func sum16(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// ip4 puts an IPv4 header before a payload of an even length.
func ip4(src, dst netip.Addr, proto byte, payload []byte) []byte {
	h := slices.Concat([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0}, src.AsSlice(), dst.AsSlice())
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(payload)))
	binary.BigEndian.PutUint16(h[10:], sum16(h))
	return append(h, payload...)
}

// TestErrorsAboutTheHost: an instance does not tell its host that what that sends to other machines does not arrive, or has to be smaller.
func TestErrorsAboutTheHost(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	as, err := n.Set(t.Context(), wants("liar"))
	must(t, err)
	liar, addr := open(t, as["liar"].NetNS), as["liar"].Addresses[0].Addr()
	serve(t, s.remote, ":9000")
	var c net.Conn
	must(t, kernel.In(s.host, func() (err error) { c, err = net.Dial("udp4", remoteIP+":9000"); return err }))
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	asks := func() error {
		_, err := c.Write([]byte("?"))
		if err == nil {
			_, err = c.Read(make([]byte, 64))
		}
		return err
	}
	must(t, asks())
	for _, icmp := range [][]byte{{3, 3, 0, 0, 0, 0, 0, 0}, {3, 1, 0, 0, 0, 0, 0, 0}, {3, 4, 0, 0, 0, 0, 2, 88}, {11, 0, 0, 0, 0, 0, 0, 0}} {
		port := c.LocalAddr().(*net.UDPAddr).Port
		u := []byte{byte(port >> 8), byte(port), 9000 >> 8, 9000 & 0xff, 0, 10, 0, 0, '?', 0}
		icmp = append(icmp, ip4(netip.MustParseAddr(hostIP), netip.MustParseAddr(remoteIP), 17, u)...)
		binary.BigEndian.PutUint16(icmp[2:], sum16(icmp))
		must(t, kernel.In(liar, func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, ip4(addr, netip.MustParseAddr(hostIP), 1, icmp), 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(hostIP).As4()})
		}))
		if err := asks(); err != nil {
			t.Errorf("told of type %d, code %d, the host sees %v", icmp[0], icmp[1], err)
		}
	}
	mtu := 0
	must(t, kernel.In(s.host, func() error {
		list, err := netlink.RouteGet(net.ParseIP(remoteIP))
		if err == nil && len(list) > 0 {
			mtu = list[0].MTU
		}
		return err
	}))
	if mtu == 600 {
		t.Errorf("the host sends packets of at most %d bytes to another machine", mtu)
	}
	// What instances say of what they got arrives.
	var to net.Conn
	must(t, kernel.In(s.host, func() (err error) { to, err = net.Dial("udp4", addr.String()+":9"); return err }))
	defer to.Close()
	must(t, to.SetDeadline(time.Now().Add(10*time.Second)))
	if _, err := to.Write([]byte("?")); err != nil {
		t.Error(err)
	}
	if _, err := to.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("nobody listens at the instance, and the host sees %v", err)
	}
}
