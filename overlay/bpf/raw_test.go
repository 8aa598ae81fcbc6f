//go:build linux

package bpf

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// udp builds a packet.
func udp(src, dst netip.Addr, sport, dport uint16, payload []byte) []byte {
	u := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(u, sport)
	binary.BigEndian.PutUint16(u[2:], dport)
	binary.BigEndian.PutUint16(u[4:], uint16(8+len(payload)))
	return packet(src, dst, 17, append(u, payload...), 6)[etherLen:]
}

// tcpSegment builds one with flags and an acknowledgement.
func tcpSegment(src, dst netip.Addr, sport, dport uint16, flags byte, ack uint32) []byte {
	t := make([]byte, 20)
	binary.BigEndian.PutUint16(t, sport)
	binary.BigEndian.PutUint16(t[2:], dport)
	binary.BigEndian.PutUint32(t[8:], ack)
	t[12], t[13] = 5<<4, flags
	return packet(src, dst, 6, t, 16)[etherLen:]
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

// skb is what a program may be told of a packet in a test run: struct __sk_buff, as far as it may be set.
type skb struct {
	_       [10]uint32
	Ifindex uint32
	_       [37]uint32
}

// try runs a program on a frame as if it came in at a device, and gives the verdict.
func (h *host) try(program, device string, frame []byte) uint32 {
	h.w.t.Helper()
	verdict, err := h.tryAny(program, device, frame)
	must(h.w.t, err)
	return verdict
}

// tryAny does the same with what the kernel may refuse to make a packet of, and fails for a verdict that there is not.
func (h *host) tryAny(program, device string, frame []byte) (verdict uint32, err error) {
	h.w.t.Helper()
	err = h.on(func() error {
		if h.indexes[device] == 0 {
			dev, err := net.InterfaceByName(device)
			if err != nil {
				return err
			}
			h.indexes[device] = uint32(dev.Index)
		}
		var err error
		verdict, err = h.dev.coll.Programs[program].Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: skb{Ifindex: h.indexes[device]}})
		if err == nil && verdict != verdictDrop && verdict != verdictNext && verdict != verdictRedirect {
			h.w.t.Errorf("%s gives verdict %d on %x", program, verdict, frame)
		}
		return err
	})
	return verdict, err
}

// on runs something on a thread that stays in the host's namespace until the test ends.
func (h *host) on(f func() error) error {
	if h.thread == nil {
		h.thread, h.indexes = make(chan func()), map[string]uint32{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = kernel.In(h.ns, func() error {
				for f := range h.thread {
					f()
				}
				return nil
			})
		}()
		h.w.t.Cleanup(func() { close(h.thread); <-done })
	}
	got := make(chan error, 1)
	h.thread <- func() { got <- f() }
	return <-got
}

const (
	verdictDrop     = 2
	verdictRedirect = 7
	verdictNext     = 0xffffffff
)

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
