//go:build linux

package planetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/forge"
	"skerry.dev/skerry/overlay/internal/kernel"
)

// EtherLen is the length of an Ethernet header.
const EtherLen = 14

// UDP builds a packet.
func UDP(src, dst netip.Addr, sport, dport uint16, payload []byte) []byte {
	u := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(u, sport)
	binary.BigEndian.PutUint16(u[2:], dport)
	binary.BigEndian.PutUint16(u[4:], uint16(8+len(payload)))
	return forge.IP(src, dst, 17, append(u, payload...), 6)
}

// TCP builds a segment with flags and an acknowledgement.
func TCP(src, dst netip.Addr, sport, dport uint16, flags byte, ack uint32) []byte {
	t := make([]byte, 20)
	binary.BigEndian.PutUint16(t, sport)
	binary.BigEndian.PutUint16(t[2:], dport)
	binary.BigEndian.PutUint32(t[8:], ack)
	t[12], t[13] = 5<<4, flags
	return forge.IP(src, dst, 6, t, 16)
}

// Ether puts an Ethernet header before a packet.
func Ether(dst, src net.HardwareAddr, p []byte) []byte {
	return append(append(append(append([]byte{}, dst...), src...), forge.EtherType(p)...), p...)
}

// Broadcast is the hardware address of everybody.
func Broadcast() net.HardwareAddr { return net.HardwareAddr{255, 255, 255, 255, 255, 255} }

// MAC is the hardware address of the gateway.
func (h *Host) MAC() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, byte(h.N)} }

// Frame is how an instance sends a packet to what is not on its link.
func (h *Host) Frame(p []byte) []byte { return Ether(h.MAC(), Broadcast(), p) }

// ToAll is how an instance sends a packet to everybody on its link.
func ToAll(p []byte) []byte { return Ether(Broadcast(), Broadcast(), p) }

// ARP tells another that an address has the hardware address 02:00:00:00:00:63, which nobody has.
func ARP(sender, to netip.Addr) []byte {
	says := []byte{2, 0, 0, 0, 0, 99, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 99}
	return slices.Concat(Broadcast(), says, sender.AsSlice(), Broadcast(), to.AsSlice())
}

// NeighbourAdvertisement says that the instance has an address (RFC 4861).
func (i *Inst) NeighbourAdvertisement(target netip.Addr) []byte {
	icmp := append([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, target.AsSlice()...)
	return ToAll(forge.IP(i.A6, netip.MustParseAddr("ff02::1"), 58, icmp, 2))
}

// Inject sends a frame out of an instance's device.
func (i *Inst) Inject(frame []byte) {
	i.Host.T.Helper()
	Must(i.Host.T, kernel.In(i.NS, func() error {
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

// Send sends a packet as an instance would to what is not on its link.
func (i *Inst) Send(p []byte) { i.Inject(i.Host.Frame(p)) }

// Eventually waits until something is so.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 10 s: ", what)
		}
	}
}

// Listen gives the datagrams to a port of an instance.
func (i *Inst) Listen(port int) *net.UDPConn {
	t := i.Host.T
	t.Helper()
	var u *net.UDPConn
	var err error
	// A program that another test starts has a copy of a socket that was just closed, for a moment.
	Eventually(t, "the port is free", func() bool {
		err = kernel.In(i.NS, func() (err error) {
			u, err = net.ListenUDP("udp", &net.UDPAddr{Port: port})
			return err
		})
		return !errors.Is(err, unix.EADDRINUSE)
	})
	Must(t, err)
	t.Cleanup(func() { u.Close() })
	return u
}

// Hears reads a datagram; nothing within the time is an empty one.
func Hears(u *net.UDPConn, wait time.Duration) (string, netip.AddrPort) {
	u.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 65536)
	n, from, err := u.ReadFromUDPAddrPort(buf)
	if err != nil {
		return "", netip.AddrPort{}
	}
	return string(buf[:n]), netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

// Silent fails if anything is heard.
func Silent(t *testing.T, what string, u *net.UDPConn) {
	t.Helper()
	if s, from := Hears(u, 50*time.Millisecond); s != "" {
		t.Errorf("%s: %q from %s arrived", what, s, from)
	}
}

// Echo sends something on a connection and waits for it to come back.
func Echo(c net.Conn, s string) error {
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte(s)); err != nil {
		return err
	}
	buf := make([]byte, len(s))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != s {
		return fmt.Errorf("%.100q, %w", buf, err)
	}
	return nil
}

// Stream sends blocks over a connection to an echo until told to stop, checks what comes back, and counts the bytes.
func Stream(conn net.Conn, stop chan struct{}, got chan<- error, count *int) {
	block := bytes.Repeat([]byte("0123456789abcdef"), 1024)
	buf := make([]byte, len(block))
	for {
		select {
		case <-stop:
			got <- nil
			return
		default:
		}
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Write(block); err != nil {
			got <- err
			return
		}
		if _, err := io.ReadFull(conn, buf); err != nil || !bytes.Equal(buf, block) {
			got <- fmt.Errorf("after %d bytes: %w", *count, err)
			return
		}
		*count += len(block)
	}
}

// Bridge stands for the datapaths of both hosts: it carries frames between their taps, and puts the number of the sender in the place of
// the receiver's, until the test ends. It can be told to change them.
func (w *World) Bridge(change ...func(frame []byte)) {
	w.T.Helper()
	for at, host := range w.Hosts {
		tap, err := kernel.OpenTap(host.NS, host.Tap(), unix.IFF_VNET_HDR, true)
		Must(w.T, err)
		raw, err := tap.SyscallConn()
		Must(w.T, err)
		const tunF = 1 | 2 | 4 | 8 // checksums, TSO for IPv4 and IPv6, ECN
		Must(w.T, errors.Join(raw.Control(func(fd uintptr) { err = unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, tunF) }), err))
		w.Taps[at] = tap
	}
	done := make(chan struct{}, 2)
	w.T.Cleanup(func() {
		for _, tap := range w.Taps {
			tap.Close()
		}
		<-done
		<-done
	})
	for at := range w.Taps {
		go func() {
			defer func() { done <- struct{}{} }()
			w.carry(at, change)
		}()
	}
	for _, host := range w.Hosts {
		// Until the kernel has noticed that somebody has a tap open, it loses what goes there.
		Eventually(w.T, "taps are up", func() bool {
			up := false
			Must(w.T, kernel.In(host.NS, func() error {
				l, err := netlink.LinkByName(host.Tap())
				up = err == nil && l.Attrs().OperState == netlink.OperUp
				return err
			}))
			return up
		})
	}
}

// Tap is the device by which packets for sealed paths go, and come.
func (h *Host) Tap() string { return h.Prefix + ".t" }

// carry carries what comes from a host's tap to the other's.
func (w *World) carry(from int, change []func(frame []byte)) {
	const virtioLen = 10
	buf := make([]byte, 1<<17)
	for {
		n, err := w.Taps[from].Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || n < virtioLen+EtherLen {
			continue
		}
		frame := buf[virtioLen:n]
		if frame[0] == 0x33 && frame[1] == 0x33 {
			continue // the kernel itself speaks of IPv6 groups
		}
		if frame[0] != 2 || frame[1] != byte(overlay.FrameData) || int(binary.BigEndian.Uint32(frame[2:])) != w.Hosts[1-from].N {
			w.T.Errorf("a frame for nobody: %x", frame[:EtherLen])
			continue
		}
		binary.BigEndian.PutUint32(frame[2:], uint32(w.Hosts[from].N))
		for _, f := range change {
			f(frame)
		}
		_, _ = w.Taps[1-from].Write(buf[:n])
	}
}
