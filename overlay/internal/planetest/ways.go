//go:build linux

package planetest

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
)

// MissIsHeld: the first packet to an address of which nothing is known is held, told of, and arrives when it is known.
func MissIsHeld(t *testing.T, world *World, forget func(client netip.Addr)) {
	host, client := world.Hosts[0], world.Inst("a1")
	for _, six := range []bool{false, true} {
		for _, to := range []string{"b1", "a2"} {
			server := world.Inst(to).Listen(80)
			addr := Svc(7, six)
			for _, text := range []string{"first", "second"} {
				client.Send(UDP(client.Addr(six), addr, 5000, 80, []byte(text)))
			}
			want := overlay.Event{Kind: overlay.EventMiss, Net: 7, Src: client.Addr(six), Dst: addr}
			if event := <-host.Dev.Events(); event != want {
				t.Errorf("got %+v, want %+v", event, want)
			}
			host.Service(7, 7, world.Inst(to))
			// In either order: the second may come when the first is about to be sent on.
			missing := map[string]bool{"first": true, "second": true}
			for range 2 {
				got, from := Hears(server, 10*time.Second)
				if !missing[got] || from.Addr() != client.Addr(six) {
					t.Errorf("%q from %s, want one of %v from %s", got, from, missing, client.Addr(six))
				}
				delete(missing, got)
			}
			server.Close()
			host.Conf.Services = nil
			host.Set()
			forget(client.Addr(six)) // it was told, and is not told again so soon, but the packet is held all the same
		}
	}
	// An instance address of which the worker is not known, and a peer that then has it.
	host.Conf.Peers[0].Prefixes = nil
	host.Set()
	server := world.Inst("a2").Listen(80)
	client.Send(UDP(client.A4, world.Inst("a2").A4, 5000, 80, []byte("direct")))
	if event := <-host.Dev.Events(); event.Kind != overlay.EventMiss || event.Dst != world.Inst("a2").A4 {
		t.Errorf("%+v", event)
	}
	host.Conf.Peers[0].Prefixes = world.Hosts[1].Blocks()
	host.Set()
	if got, _ := Hears(server, 10*time.Second); got != "direct" {
		t.Errorf("%q arrived", got)
	}
	// TCP does not notice.
	world.Inst("b2").Serve(80)
	done := make(chan error, 1)
	go func() {
		_, err := client.Ask("tcp", Svc(9, false), 80)
		done <- err
	}()
	for event := range host.Dev.Events() {
		if event.Dst == Svc(9, false) {
			break
		}
	}
	host.Service(7, 9, world.Inst("b2"))
	Must(t, <-done)
}

// TooBig: what is too long is answered, so that the sender learns the path's MTU; or cut, if that is allowed.
func TooBig(t *testing.T, world *World) {
	host, client := world.Hosts[0], world.Inst("a1")
	host.Service(7, 1, world.Inst("a2"))
	kerneltest.Run(t, client.NS, "ip link set eth0 mtu 1500")
	for _, six := range []bool{false, true} {
		for _, to := range []netip.Addr{Svc(1, six), world.Inst("a2").Addr(six)} {
			var mtu int
			Must(t, kernel.In(client.NS, func() error {
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
				Eventually(t, "the sender is told", func() bool {
					_, _ = unix.Write(fd, make([]byte, 1440))
					mtu, err = unix.GetsockoptInt(fd, level, opt)
					return err != nil || mtu < 1500
				})
				return err
			}))
			if mtu != host.Conf.Local.MTU {
				t.Errorf("%s: the sender learns an MTU of %d", to, mtu)
			}
		}
	}
	// TCP gets through all the same.
	world.Inst("a2").Serve(81)
	conn, err := client.Dial("tcp", Svc(1, false), 81)
	Must(t, err)
	defer conn.Close()
	_, err = AskOn(conn)
	Must(t, err)
	Must(t, Echo(conn, string(bytes.Repeat([]byte("0123456789"), 5000))))
}

// Fragments: fragments follow the first one, in both directions, here and across hosts.
func Fragments(t *testing.T, world *World) {
	host, client := world.Hosts[0], world.Inst("a1")
	for last, to := range []string{"b1", "a2"} {
		host.Service(7, byte(last), world.Inst(to))
		for _, six := range []bool{false, true} {
			server := world.Inst(to).Listen(80)
			conn, err := client.Dial("udp", Svc(byte(last), six), 80)
			Must(t, err)
			msg := bytes.Repeat([]byte("0123456789"), 1000)
			_, err = conn.Write(msg)
			Must(t, err)
			got, from := Hears(server, 10*time.Second)
			if got != string(msg) {
				t.Fatalf("%s, IPv6 %v: %d bytes arrived", to, six, len(got))
			}
			_, err = server.WriteToUDPAddrPort(msg, from)
			Must(t, err)
			conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			buf := make([]byte, 20000)
			if n, err := conn.Read(buf); err != nil || n != len(msg) {
				t.Errorf("%s, IPv6 %v: %d bytes came back, %v; the hosts dropped %v and %v", to, six, n, err, host.dropped(), world.Hosts[1].dropped())
			}
			conn.Close()
			server.Close()
			// An echo is larger than one packet too.
			if err := client.Ping(Svc(byte(last), six), 4000); err != nil {
				t.Error(err)
			}
		}
	}
}

// Tunnel: what is to be encrypted goes by the taps, in large segments, and comes back the same way.
func Tunnel(t *testing.T, world *World) {
	host, client := world.Hosts[0], world.Inst("a1")
	world.Inst("a2").Serve(80)
	host.Service(7, 1, world.Inst("a2"))
	for _, six := range []bool{false, true} {
		for _, network := range []string{"tcp", "udp"} {
			if got, err := client.Ask(network, Svc(1, six), 80); err != nil || got != "a2" {
				t.Errorf("%s: %q, %v", network, got, err)
			}
		}
		if err := client.Ping(Svc(1, six), 1000); err != nil {
			t.Error(err)
		}
		conn, err := client.Dial("tcp", Svc(1, six), 80)
		Must(t, err)
		_, err = AskOn(conn)
		Must(t, err)
		Must(t, Echo(conn, string(bytes.Repeat([]byte("0123456789abcdef"), 1<<14))))
		conn.Close()
	}
	if host.Count("to-tunnel") == 0 || host.Count("from-tunnel") == 0 {
		t.Error("packets took another way")
	}
}

// TunnelDropsTheUnexpected: the program behind the tap trusts the datapath for which peer sent a frame, and for nothing else.
func TunnelDropsTheUnexpected(t *testing.T, world *World, half string) {
	two := world.Hosts[1]
	src, dst := world.Inst("a1").A4, world.Inst("a2").A4
	server := world.Inst("a2").Listen(80)
	good := UDP(src, dst, 1, 80, []byte("hello"))
	frame := func(kind byte, peer uint32, network uint32, p []byte) []byte {
		header := binary.BigEndian.AppendUint32([]byte{2, kind}, peer)
		header = binary.BigEndian.AppendUint32(append(header, 2, 0), network)
		return append(append(header, 8, 0), p...)
	}
	tap := world.Taps[1]
	send := func(f []byte) {
		_, err := tap.Write(append(make([]byte, 10), f...))
		Must(t, err)
	}
	send(frame(0, 1, 7, good))
	if text, _ := Hears(server, 10*time.Second); text != "hello" {
		t.Fatal("what is as it should be does not arrive")
	}
	for _, bad := range []struct {
		name, counter string
		frame         []byte
	}{
		{"another peer", "drop-forged", frame(0, 3, 7, good)},
		{"no peer", "drop-forged", frame(0, 0, 7, good)},
		{"another network", "drop-network", frame(0, 1, 9, good)},
		{"a source of this host", "drop-forged", frame(0, 1, 7, UDP(world.Inst("b2").A4, dst, 1, 80, nil))},
		{"an unknown instance", "drop-unknown", frame(0, 1, 7, UDP(src, netip.MustParseAddr("10.40.2.50"), 1, 80, nil))},
		{"a kind of the agent's", "drop-malformed", frame(3, 1, 7, good)},
		{"half a packet", half, frame(0, 1, 7, good[:16])},
	} {
		before := two.Count(bad.counter)
		send(bad.frame)
		Eventually(t, bad.name, func() bool { return two.Count(bad.counter) == before+1 })
		Silent(t, bad.name, server)
	}
	// The worker learns of instances that peers believe to be here.
	if e := <-two.Dev.Events(); e.Kind != overlay.EventUnknown || e.Peer != 1 || e.Net != 7 || e.Src != src || e.Dst.String() != "10.40.2.50" {
		t.Errorf("%+v", e)
	}
}
