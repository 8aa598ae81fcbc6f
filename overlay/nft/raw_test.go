//go:build linux

package nft

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
)

// udp builds a packet.
func udp(src, dst netip.Addr, sport, dport uint16, payload []byte) []byte {
	u := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(u, sport)
	binary.BigEndian.PutUint16(u[2:], dport)
	binary.BigEndian.PutUint16(u[4:], uint16(8+len(payload)))
	return forge(src, dst, 17, append(u, payload...), 6)[etherLen:]
}

// ether puts an Ethernet header before a packet.
func ether(dst, src net.HardwareAddr, p []byte) []byte {
	proto := []byte{8, 0}
	if p[0]>>4 == 6 {
		proto = []byte{0x86, 0xdd}
	}
	return append(append(append(append([]byte{}, dst...), src...), proto...), p...)
}

func broadcast() net.HardwareAddr { return net.HardwareAddr{255, 255, 255, 255, 255, 255} }

// inject sends a frame out of an instance's device.
func (i *inst) inject(frame []byte) {
	t := i.h.w.t
	t.Helper()
	must(t, kernel.In(i.ns, func() error {
		eth, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		copy(frame[6:], eth.HardwareAddr)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: eth.Index})
	}))
}

// hostMAC is the address of a gateway.
func (h *host) mac() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, byte(h.n)} }

// send sends a packet as an instance would to what is not on its link.
func (i *inst) send(p []byte) { i.inject(ether(i.h.mac(), broadcast(), p)) }

// eventually waits until something is so.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 10 s: ", what)
		}
	}
}

// listen gives the datagrams to a port of an instance.
func (i *inst) listen(p int) *net.UDPConn {
	t := i.h.w.t
	t.Helper()
	var u *net.UDPConn
	var err error
	// A program that another test starts has a copy of a socket that was just closed, for a moment.
	eventually(t, "the port is free", func() bool {
		err = kernel.In(i.ns, func() (err error) {
			u, err = net.ListenUDP("udp", &net.UDPAddr{Port: p})
			return err
		})
		return !errors.Is(err, unix.EADDRINUSE)
	})
	must(t, err)
	t.Cleanup(func() { u.Close() })
	return u
}

// hears reads a datagram; nothing within the time is an empty one.
func hears(u *net.UDPConn, wait time.Duration) (string, netip.AddrPort) {
	u.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 65536)
	n, from, err := u.ReadFromUDPAddrPort(buf)
	if err != nil {
		return "", netip.AddrPort{}
	}
	return string(buf[:n]), netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

// forge builds a frame for an instance: headers, and the sum at its offset in the payload.
func forge(src, dst netip.Addr, proto byte, payload []byte, sum int) []byte {
	pseudo := binary.BigEndian.AppendUint32(append(src.AsSlice(), dst.AsSlice()...), uint32(len(payload)))
	pseudo = append(pseudo, 0, 0, 0, proto)
	if proto == 1 {
		pseudo = nil // ICMP for IPv4 has none
	}
	binary.BigEndian.PutUint16(payload[sum:], checksum(pseudo, payload))
	f := []byte{2, byte(overlay.FrameToInst), 0, 0, 0, 0, 2, 0, 0, 0, 0, 0}
	if dst.Is4() {
		f = append(f, 8, 0)
		h := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, proto, 0, 0}
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
		h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		return append(append(f, h...), payload...)
	}
	f = append(f, 0x86, 0xdd)
	h := []byte{0x60, 0, 0, 0, 0, 0, proto, 64}
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
	return append(append(f, h...), payload...)
}
