//go:build linux

package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// linkOf is a host's prefix on the devices that stand for those of WireGuard.
func linkOf(n int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("fd57:6700:0:0:0:%d::/96", n))
}

// openTun opens a host's device; it is the wire for what is sent there. napi: the kernel puts segments together that are written to it.
func (h *host) openTun(napi bool) *os.File {
	h.T.Helper()
	var f *os.File
	planetest.Must(h.T, kernel.In(h.NS, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		ifr, err := unix.NewIfreq("wg0")
		if err == nil {
			flags := uint16(unix.IFF_TUN | unix.IFF_NO_PI)
			if napi {
				flags |= unix.IFF_NAPI
			}
			ifr.SetUint16(flags)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
		}
		f = os.NewFile(uintptr(fd), "wg0")
		return err
	}))
	h.T.Cleanup(func() { f.Close() })
	kerneltest.Run(h.T, h.NS, "sysctl -qw net.ipv6.conf.wg0.disable_ipv6=1\nip link set wg0 mtu 1444 up")
	return f
}

// carry carries packets between the devices of both hosts, as WireGuard would, and counts those that are not of the kind that it
// would take.
func (w *world) carry(napi bool) (packets, foreign *atomic.Int64) {
	w.T.Helper()
	packets, foreign = new(atomic.Int64), new(atomic.Int64)
	var tun [2]*os.File
	for i, h := range w.hosts {
		tun[i] = h.openTun(napi)
	}
	for i := range tun {
		done := make(chan struct{})
		w.T.Cleanup(func() { tun[i].Close(); <-done })
		go func() {
			defer close(done)
			buf := make([]byte, 1<<16)
			for {
				n, err := tun[i].Read(buf)
				if err != nil {
					return
				}
				packets.Add(1)
				if n < 40 || !linkOf(w.hosts[i].N).Contains(netip.AddrFrom16([16]byte(buf[8:24]))) ||
					!linkOf(w.hosts[1-i].N).Contains(netip.AddrFrom16([16]byte(buf[24:40]))) || int(binary.BigEndian.Uint16(buf[4:])) != n-40 {
					foreign.Add(1)
				}
				_, _ = tun[1-i].Write(buf[:n])
			}
		}()
	}
	return packets, foreign
}

// What goes by the WireGuard device has its network in the addresses, large segments and all, and comes back the same way. When the
// device is not to be used, or is gone, packets go by the tunnel, within the same connection.
func TestLink(t *testing.T) {
	t.Parallel()
	for _, napi := range []bool{false, true} {
		t.Run(fmt.Sprintf("put together %v", napi), func(t *testing.T) {
			w := newWorld(t, linked)
			packets, foreign := w.carry(napi)
			w.Bridge()
			h, client := w.hosts[0], w.Inst("a1")
			w.Inst("a2").Serve(80)
			h.Service(7, 1, w.Inst("a2"))
			for _, six := range []bool{false, true} {
				sealed, here := h.Count("to-tunnel"), w.hosts[1].Count("to-tunnel")
				for _, network := range []string{"tcp", "udp"} {
					if got, err := client.Ask(network, planetest.Svc(1, six), 80); err != nil || got != "a2" {
						t.Errorf("%s: %q, %v", network, got, err)
					}
				}
				if err := client.Ping(planetest.Svc(1, six), 1000); err != nil {
					t.Error(err)
				}
				w.segments(t, client, w.Inst("a2"), 1, six)
				c, err := client.Dial("tcp", planetest.Svc(1, six), 80)
				planetest.Must(t, err)
				_, err = planetest.AskOn(c)
				planetest.Must(t, err)
				planetest.Must(t, planetest.Echo(c, strings.Repeat("0123456789abcdef", 1<<15)))
				if h.Count("to-tunnel") != sealed || h.Count("to-plain") != 0 || packets.Load() == 0 {
					t.Fatal("packets took another way")
				}
				for _, use := range []bool{false, true} {
					h.Conf.Peers[0].Link.Use = use
					h.Set()
					planetest.Must(t, planetest.Echo(c, strings.Repeat("0123456789abcdef", 1<<12)))
				}
				if h.Count("to-tunnel") == sealed || w.hosts[1].Count("to-tunnel") != here {
					t.Error("only this host was told to use another way")
				}
				h.Conf.Peers[0].Link.Use = false
				h.Set()
				planetest.Must(t, planetest.Echo(c, strings.Repeat("0123456789abcdef", 1<<12)))
				c.Close()
				h.Conf.Peers[0].Link.Use = true
				h.Set()
				// A new data plane takes up what the first one left.
				planetest.Must(t, h.dev.Close())
				if got, err := client.Ask("tcp", planetest.Svc(1, six), 80); err != nil || got != "a2" {
					t.Errorf("without an agent: %q, %v", got, err)
				}
				h.Open()
				h.Set()
				planetest.Must(t, w.hosts[1].dev.Close())
				w.hosts[1].Open()
				w.hosts[1].Set()
				before := h.Count("to-tunnel")
				if got, err := client.Ask("tcp", planetest.Svc(1, six), 80); err != nil || got != "a2" || h.Count("to-tunnel") != before {
					t.Errorf("with a new agent: %q, %v", got, err)
				}
			}
			for _, i := range []*planetest.Inst{client, w.Inst("a2")} {
				if n := sumErrors(i); n != 0 {
					t.Errorf("%s found %d kinds of damaged packets", i.Name, n)
				}
			}
			if n := foreign.Load(); n != 0 {
				t.Errorf("WireGuard would not have taken %d packets", n)
			}
			kerneltest.Run(t, h.NS, "ip link del wg0")
			if err := h.dev.Set(t.Context(), h.Conf); err == nil || !strings.Contains(err.Error(), "wg0") {
				t.Errorf("without the device: %v", err)
			}
			w.hosts[1].Conf.Peers[0].Link.Use = false // as its agent would find out
			w.hosts[1].Set()
			if got, err := client.Ask("tcp", planetest.Svc(1, false), 80); err != nil || got != "a2" {
				t.Errorf("without the device: %q, %v", got, err)
			}
		})
	}
}

// The program behind the device trusts WireGuard for which peer a packet is from, and for nothing else. Nothing gets by it to the
// host.
func TestLinkDropsTheUnexpected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, linked)
	two := w.hosts[1]
	src, dst := w.Inst("a1").A4, w.Inst("a2").A4
	server := w.Inst("a2").Listen(80)
	good := planetest.UDP(src, dst, 1, 80, []byte("hello"))
	at := func(n int, network uint32) netip.Addr {
		a := linkOf(n).Addr().As16()
		binary.BigEndian.PutUint32(a[12:], network)
		return netip.AddrFrom16(a)
	}
	packet := func(next byte, from, to netip.Addr, p []byte) []byte {
		b := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(p)))
		b = append(append(append(b, next, 64), from.AsSlice()...), to.AsSlice()...)
		return append(b, p...)
	}
	tun := two.openTun(false)
	planetest.Must(t, two.dev.Set(t.Context(), two.Conf))
	send := func(f []byte) {
		_, err := tun.Write(f)
		planetest.Must(t, err)
	}
	send(packet(4, at(1, 7), at(2, 7), good))
	if s, _ := planetest.Hears(server, 10*time.Second); s != "hello" {
		t.Fatal("what is as it should be does not arrive")
	}
	for _, c := range []struct {
		name, counter string
		packet        []byte
	}{
		{"an unknown peer", "drop-wireguard", packet(4, at(3, 7), at(2, 7), good)},
		{"this worker itself", "drop-wireguard", packet(4, at(2, 7), at(2, 7), good)},
		{"to the peer itself", "drop-wireguard", packet(4, at(1, 7), at(1, 7), good)},
		{"two networks", "drop-wireguard", packet(4, at(1, 7), at(2, 9), good)},
		{"another network", "drop-network", packet(4, at(1, 9), at(2, 9), good)},
		{"not wrapped", "drop-wireguard", good},
		{"UDP for the host", "drop-wireguard", packet(17, at(1, 0), at(2, 0), good[20:])},
		{"a router's advertisement", "drop-wireguard", packet(58, at(1, 0), at(2, 0), append([]byte{134, 0, 0, 0}, make([]byte, 12)...))},
		{"an echo in a network", "drop-wireguard", packet(58, at(1, 7), at(2, 7), append([]byte{128, 0, 0, 0}, make([]byte, 12)...))},
		{"a source of this host", "drop-forged", packet(4, at(1, 7), at(2, 7), planetest.UDP(w.Inst("b2").A4, dst, 1, 80, nil))},
		{"an unknown instance", "drop-unknown", packet(4, at(1, 7), at(2, 7), planetest.UDP(src, netip.MustParseAddr("10.40.2.50"), 1, 80, nil))},
		{"the wrong version within", "drop-malformed", packet(41, at(1, 7), at(2, 7), append(bytes.Clone(good), make([]byte, 40)...))},
		{"half a packet", "drop-malformed", packet(4, at(1, 7), at(2, 7), good[:16])},
	} {
		before := two.Count(c.counter)
		send(c.packet)
		planetest.Eventually(t, c.name, func() bool { return two.Count(c.counter) == before+1 })
		planetest.Silent(t, c.name, server)
	}
}

// A peer's agent finds out whether the way works while there is no agent here.
func TestLinkAnswersEchoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, linked)
	two := w.hosts[1]
	tun := two.openTun(false)
	planetest.Must(t, two.dev.Set(t.Context(), two.Conf))
	planetest.Must(t, two.dev.Close())
	two.Dev = nil
	t.Cleanup(two.Open)
	ask := []byte{0x60, 0, 0, 0, 0, 16, 58, 64}
	ask = append(ask, linkOf(1).Addr().AsSlice()...)
	ask = append(ask, linkOf(2).Addr().AsSlice()...)
	body := append([]byte{128, 0, 0, 0, 1, 2, 3, 4}, "abcdefgh"...)
	sum := func(src, dst, b []byte) uint16 {
		var n uint32
		for _, part := range [][]byte{src, dst, {0, 0, 0, byte(len(b)), 0, 0, 0, 58}, b} {
			for i := 0; i < len(part); i += 2 {
				n += uint32(binary.BigEndian.Uint16(part[i:]))
			}
		}
		for n > 0xffff {
			n = n>>16 + n&0xffff
		}
		return ^uint16(n)
	}
	binary.BigEndian.PutUint16(body[2:], sum(ask[8:24], ask[24:40], body))
	_, err := tun.Write(append(bytes.Clone(ask), body...))
	planetest.Must(t, err)
	planetest.Must(t, tun.SetReadDeadline(time.Now().Add(10*time.Second)))
	buf := make([]byte, 2000)
	n, err := io.ReadAtLeast(tun, buf, 1)
	planetest.Must(t, err)
	got := buf[:n]
	if len(got) != 56 || !bytes.Equal(got[8:24], ask[24:40]) || !bytes.Equal(got[24:40], ask[8:24]) || got[40] != 129 || string(got[44:]) != "\x01\x02\x03\x04abcdefgh" || sum(got[8:24], got[24:40], got[40:]) != 0 {
		t.Errorf("the answer is %x", got)
	}
}

// Prefixes on the device are checked before anything is changed.
func TestLinkIsChecked(t *testing.T) {
	t.Parallel()
	good := func() overlay.Config {
		return overlay.Config{Local: overlay.Local{Link: &overlay.Link{Device: "wg0", Prefix: linkOf(1)}}, Peers: []overlay.Peer{{ID: 2, Link: &overlay.LinkPath{Prefix: linkOf(2)}}}}
	}
	if err := check(good()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*overlay.Config){
		"no device":         func(c *overlay.Config) { c.Local.Link.Device = "" },
		"IPv4":              func(c *overlay.Config) { c.Local.Link.Prefix = netip.MustParsePrefix("10.0.0.0/8") },
		"too long":          func(c *overlay.Config) { c.Peers[0].Link.Prefix = netip.MustParsePrefix("fd00::/97") },
		"bits beyond":       func(c *overlay.Config) { c.Peers[0].Link.Prefix = netip.MustParsePrefix("fd00::1/96") },
		"this worker's own": func(c *overlay.Config) { c.Peers[0].Link.Prefix = linkOf(1) },
		"that of two peers": func(c *overlay.Config) {
			c.Peers = append(c.Peers, overlay.Peer{ID: 3, Link: &overlay.LinkPath{Prefix: linkOf(2)}})
		},
		"none of this worker": func(c *overlay.Config) { c.Local.Link.Prefix = netip.Prefix{} },
	} {
		c := good()
		change(&c)
		if check(c) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
