//go:build linux

package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
)

// The first packet to an address of which nothing is known is held, told of, and arrives when it is known.
func TestMissIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	for _, six := range []bool{false, true} {
		for _, to := range []string{"b1", "a2"} {
			server := w.inst(to).listen(80)
			addr := svc(7, six)
			for _, s := range []string{"first", "second"} {
				client.send(udp(client.addr(six), addr, 5000, 80, []byte(s)))
			}
			if e := <-h.dev.Events(); e.Kind != overlay.EventMiss || e.Net != 7 || e.Src != client.addr(six) || e.Dst != addr {
				t.Errorf("%+v", e)
			}
			h.service(7, 7, w.inst(to))
			// In either order: the second may come when the first is about to be sent on.
			missing := map[string]bool{"first": true, "second": true}
			for range 2 {
				got, from := hears(server, 10*time.Second)
				if !missing[got] || from.Addr() != client.addr(six) {
					t.Errorf("%q from %s, want one of %v from %s", got, from, missing, client.addr(six))
				}
				delete(missing, got)
			}
			server.Close()
			h.conf.Services = nil
			h.set()
			_, err := h.dev.walk(sweepArgs{What: doForget, Backend: client.addr(six).As16()})
			must(t, err)
			// It was told, and is not told again so soon, but the packet is held all the same.
			h.dev.held.Forget()
		}
	}
	// An instance address of which the worker is not known, and a peer that then has it.
	h.conf.Peers[0].Prefixes = nil
	h.set()
	server := w.inst("a2").listen(80)
	client.send(udp(client.a4, w.inst("a2").a4, 5000, 80, []byte("direct")))
	if e := <-h.dev.Events(); e.Kind != overlay.EventMiss || e.Dst != w.inst("a2").a4 {
		t.Errorf("%+v", e)
	}
	h.conf.Peers[0].Prefixes = w.hosts[1].blocks()
	h.set()
	if got, _ := hears(server, 10*time.Second); got != "direct" {
		t.Errorf("%q arrived", got)
	}
	// TCP does not notice.
	w.inst("b2").serve(80)
	done := make(chan error, 1)
	go func() {
		_, err := client.ask("tcp", svc(9, false), 80)
		done <- err
	}()
	for e := range h.dev.Events() {
		if e.Dst == svc(9, false) {
			break
		}
	}
	h.service(7, 9, w.inst("b2"))
	must(t, <-done)
}

// What is too long is answered, so that the sender learns the path's MTU; or cut, if that is allowed.
func TestTooBig(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	h.service(7, 1, w.inst("a2"))
	kerneltest.Run(t, client.ns, "ip link set eth0 mtu 1500")
	for _, six := range []bool{false, true} {
		for _, to := range []netip.Addr{svc(1, six), w.inst("a2").addr(six)} {
			var mtu int
			must(t, kernel.In(client.ns, func() error {
				family, level, opt, discover, do := unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
				if six {
					family, level, opt, discover, do = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
				}
				fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				_ = unix.SetsockoptInt(fd, level, discover, do)
				var sa unix.Sockaddr = &unix.SockaddrInet4{Port: 80, Addr: [4]byte(to.AsSlice())}
				if six {
					sa = &unix.SockaddrInet6{Port: 80, Addr: to.As16()}
				}
				if err := unix.Connect(fd, sa); err != nil {
					return err
				}
				eventually(t, "the sender is told", func() bool {
					_, _ = unix.Write(fd, make([]byte, 1440))
					mtu, err = unix.GetsockoptInt(fd, level, opt)
					return err != nil || mtu < 1500
				})
				return err
			}))
			if mtu != h.conf.Local.MTU {
				t.Errorf("%s: the sender learns an MTU of %d", to, mtu)
			}
		}
	}
	// TCP gets through all the same.
	w.inst("a2").serve(81)
	c, err := client.dial("tcp", svc(1, false), 81)
	must(t, err)
	defer c.Close()
	_, err = askOn(c)
	must(t, err)
	must(t, echo(c, string(bytes.Repeat([]byte("0123456789"), 5000))))
	// Cut by the data plane: without leave of the sender's stack, which does not know.
	server := w.inst("a2").listen(82)
	p := udp(client.a4, svc(1, false), 1, 82, bytes.Repeat([]byte("x"), 1450))
	p[6] = 0 // may be cut
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], checksum(p[:20]))
	client.send(p)
	if got, _ := hears(server, 10*time.Second); len(got) != 1450 {
		t.Errorf("%d bytes arrived", len(got))
	}
}

// Fragments follow the first one, in both directions, here and across hosts.
func TestFragments(t *testing.T) {
	t.Parallel()
	for how, name := range map[way]string{plain4: "plain4", tunnel: "tunnel"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, how)
			if how == tunnel {
				w.bridge()
			}
			h, client := w.hosts[0], w.inst("a1")
			for last, to := range []string{"b1", "a2"} {
				h.service(7, byte(last), w.inst(to))
				for _, six := range []bool{false, true} {
					server := w.inst(to).listen(80)
					c, err := client.dial("udp", svc(byte(last), six), 80)
					must(t, err)
					msg := bytes.Repeat([]byte("0123456789"), 1000)
					_, err = c.Write(msg)
					must(t, err)
					got, from := hears(server, 10*time.Second)
					if got != string(msg) {
						t.Fatalf("%s, IPv6 %v: %d bytes arrived", to, six, len(got))
					}
					_, err = server.WriteToUDPAddrPort(msg, from)
					must(t, err)
					c.SetReadDeadline(time.Now().Add(10 * time.Second))
					buf := make([]byte, 20000)
					if n, err := c.Read(buf); err != nil || n != len(msg) {
						t.Errorf("%s, IPv6 %v: %d bytes came back, %v; the hosts dropped %v and %v", to, six, n, err, h.dropped(), w.hosts[1].dropped())
					}
					c.Close()
					server.Close()
					// An echo is larger than one packet too.
					if err := client.ping(svc(byte(last), six), 4000); err != nil {
						t.Error(err)
					}
				}
			}
			// One whose first is missing leads nowhere.
			before := h.count("drop-fragment")
			p := udp(client.a4, svc(1, false), 1, 80, []byte("later"))
			p[6], p[7] = 0x20, 100
			client.send(p)
			eventually(t, "it is dropped", func() bool { return h.count("drop-fragment") > before })
		})
	}
}

// bridge stands for the datapaths of both hosts: it carries frames between their taps, and puts the number of the sender
// in the place of the receiver's, until the test ends. It can be told to change them.
func (w *world) bridge(change ...func(frame []byte)) {
	w.t.Helper()
	taps := [2]*os.File{}
	for i, h := range w.hosts {
		f, err := kernel.OpenTap(h.ns, h.opts.tunnelTap(), unix.IFF_VNET_HDR, true)
		must(w.t, err)
		c, err := f.SyscallConn()
		must(w.t, err)
		const tunF = 1 | 2 | 4 | 8 // checksums, TSO for IPv4 and IPv6, ECN
		must(w.t, errors.Join(c.Control(func(fd uintptr) { err = unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, tunF) }), err))
		taps[i] = f
	}
	done := make(chan struct{}, 2)
	w.t.Cleanup(func() {
		for _, f := range taps {
			f.Close()
		}
		<-done
		<-done
	})
	for i := range taps {
		go func() {
			defer func() { done <- struct{}{} }()
			buf := make([]byte, 1<<17)
			for {
				n, err := taps[i].Read(buf)
				if errors.Is(err, os.ErrClosed) {
					return
				}
				if err != nil || n < 10+etherLen {
					continue
				}
				frame := buf[10:n]
				if frame[0] != 2 || frame[1] != byte(overlay.FrameData) || int(binary.BigEndian.Uint32(frame[2:])) != w.hosts[1-i].n {
					w.t.Errorf("a frame for nobody: %x", frame[:etherLen])
					continue
				}
				binary.BigEndian.PutUint32(frame[2:], uint32(w.hosts[i].n))
				for _, f := range change {
					f(frame)
				}
				_, _ = taps[1-i].Write(buf[:n])
			}
		}()
	}
}

// What is to be encrypted goes by the taps, in large segments, and comes back the same way.
func TestTunnel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tunnel)
	w.bridge()
	h, client := w.hosts[0], w.inst("a1")
	w.inst("a2").serve(80)
	h.service(7, 1, w.inst("a2"))
	for _, six := range []bool{false, true} {
		for _, network := range []string{"tcp", "udp"} {
			if got, err := client.ask(network, svc(1, six), 80); err != nil || got != "a2" {
				t.Errorf("%s: %q, %v", network, got, err)
			}
		}
		if err := client.ping(svc(1, six), 1000); err != nil {
			t.Error(err)
		}
		c, err := client.dial("tcp", svc(1, six), 80)
		must(t, err)
		_, err = askOn(c)
		must(t, err)
		must(t, echo(c, string(bytes.Repeat([]byte("0123456789abcdef"), 1<<14))))
		c.Close()
	}
	if h.count("to-tunnel") == 0 || h.count("from-tunnel") == 0 || h.count("to-plain") != 0 {
		t.Error("packets took another way")
	}
}

// The program behind the tap trusts the datapath for which peer sent a frame, and for nothing else.
func TestTunnelDropsTheUnexpected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tunnel)
	two := w.hosts[1]
	src, dst := w.inst("a1").a4, w.inst("a2").a4
	server := w.inst("a2").listen(80)
	good := udp(src, dst, 1, 80, []byte("hello"))
	frame := func(kind byte, peer uint32, network uint32, p []byte) []byte {
		b := binary.BigEndian.AppendUint32([]byte{2, kind}, peer)
		b = binary.BigEndian.AppendUint32(append(b, 2, 0), network)
		return append(append(b, 8, 0), p...)
	}
	tap, err := kernel.OpenTap(two.ns, two.opts.tunnelTap(), unix.IFF_VNET_HDR, true)
	must(t, err)
	defer tap.Close()
	send := func(f []byte) {
		_, err := tap.Write(append(make([]byte, 10), f...))
		must(t, err)
	}
	send(frame(0, 1, 7, good))
	if s, _ := hears(server, 10*time.Second); s != "hello" {
		t.Fatal("what is as it should be does not arrive")
	}
	for _, c := range []struct {
		name, counter string
		frame         []byte
	}{
		{"another peer", "drop-forged", frame(0, 3, 7, good)},
		{"no peer", "drop-forged", frame(0, 0, 7, good)},
		{"another network", "drop-network", frame(0, 1, 9, good)},
		{"a source of this host", "drop-forged", frame(0, 1, 7, udp(w.inst("b2").a4, dst, 1, 80, nil))},
		{"an unknown instance", "drop-unknown", frame(0, 1, 7, udp(src, netip.MustParseAddr("10.40.2.50"), 1, 80, nil))},
		{"a kind of the agent's", "drop-malformed", frame(3, 1, 7, good)},
		{"half a packet", "drop-malformed", frame(0, 1, 7, good[:16])},
	} {
		before := two.count(c.counter)
		send(c.frame)
		eventually(t, c.name, func() bool { return two.count(c.counter) == before+1 })
		silent(t, c.name, server)
	}
}

// Whatever a program is given, it gives a verdict, and lets nothing pass for another.
func TestHostileFrames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.inst("a1")
	h.service(7, 1, w.inst("b1"), w.inst("a2"))
	var frames [][]byte
	for _, six := range []bool{false, true} {
		frames = append(frames,
			ether(h.mac(), broadcast(), udp(client.addr(six), svc(1, six), 1, 2, []byte("some payload"))),
			ether(h.mac(), broadcast(), tcpSegment(client.addr(six), svc(1, six), 1, 2, 2, 0)),
			forgeTooBig(ether(net.HardwareAddr{2, 0, 0, 0, 0, 0}, net.HardwareAddr{2, 0, 0, 0, 0, 7}, udp(svc(1, six), client.addr(six), 1, 2, []byte("x"))), 1400))
	}
	frames = append(frames, ether(broadcast(), broadcast(), packet(w.hosts[1].wire, h.wire, 17, append([]byte{0xc3, 0, 0xc3, 0xb4, 0, 0, 0, 0}, datagram(1002, 7, udp(w.inst("a2").a4, client.a4, 1, 2, []byte("x")))...), 6)[etherLen:]))
	devices := map[string]string{"from_instance": client.device, "to_instance": client.device, "from_wire": "wire", "from_tunnel": h.opts.tunnelTap(), "from_agent": h.opts.agentTap(), "from_bridge": "lan0", "from_vxlan": h.opts.vxlan()}
	for program, device := range devices {
		for _, f := range frames {
			for n := etherLen; n <= len(f); n++ {
				_, _ = h.tryAny(program, device, f[:n])
			}
			for n := etherLen; n < len(f); n++ {
				for _, b := range []byte{0, 0x0f, 0x40, 0xff} {
					g := bytes.Clone(f)
					g[n] = b
					_, _ = h.tryAny(program, device, g)
				}
			}
		}
	}
	// Nothing of it has changed what the table of flows may hold.
	for a := range h.backends(client.a4, unix.IPPROTO_TCP) {
		if a != w.inst("b1").a4 && a != w.inst("a2").a4 {
			t.Errorf("a flow leads to %s", a)
		}
	}
}
