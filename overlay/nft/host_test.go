//go:build linux

package nft

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
)

// An instance speaks for itself and nobody else.
func TestSourceIsItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, from := w.hosts[0], w.inst("a1")
	servers := []*net.UDPConn{w.inst("b1").listen(80), w.inst("a2").listen(80)}
	for n, forged := range []netip.Addr{w.inst("b1").a4, w.inst("b2").a4, h.gateway(false), netip.MustParseAddr("8.8.8.8"),
		netip.MustParseAddr("0.0.0.0"), w.inst("b1").a6, w.inst("b2").a6, netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("fe80::1")} {
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
		return ether(broadcast(), broadcast(), forge(from.a6, netip.MustParseAddr("ff02::1"), 58, icmp, 2)[etherLen:])
	}
	ra := ether(broadcast(), broadcast(), forge(netip.MustParseAddr("fe80::2"), netip.MustParseAddr("ff02::1"), 58, make([]byte, 16),
		2)[etherLen:])
	ra[etherLen+40] = 134
	neighbours := func() string {
		var out []byte
		must(t, kernel.In(h.ns, func() (err error) { out, err = exec.Command("ip", "neigh", "show", "dev", "lan0").Output(); return err }))
		return string(out)
	}
	for name, frame := range map[string][]byte{
		"the gateway's":          arp(h.gateway(false)),
		"a neighbour's":          arp(w.inst("b1").a4),
		"the gateway's, IPv6":    na(h.gateway(true)),
		"a neighbour's, IPv6":    na(w.inst("b1").a6),
		"a router advertisement": ra,
	} {
		before := h.count("drop-spoofed")
		from.inject(frame)
		eventually(t, name, func() bool { return h.count("drop-spoofed") > before })
	}
	before := h.count("drop-protocol")
	from.inject(append(append(append([]byte{}, broadcast()...), broadcast()...), 0x88, 0xcc, 1, 2, 3, 4))
	eventually(t, "another protocol", func() bool { return h.count("drop-protocol") > before })
	if strings.Contains(neighbours(), "00:00:00:00:63") {
		t.Errorf("the host took a false address: %s", neighbours())
	}
}

// Without a peer nothing comes from it any more; and a peer whose prefix moves to another one no longer speaks for it.
func TestPeerGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inst("a2").serve(80)
	if got, err := w.inst("a1").ask("tcp", w.inst("a2").a4, 80); err != nil || got != "a2" {
		t.Fatal(got, err)
	}
	two := w.hosts[1]
	two.conf.Peers = slices.Delete(two.conf.Peers, 0, 1)
	two.set()
	before := two.count("drop-forged")
	if w.inst("a1").reaches(w.inst("a2").a4) {
		t.Error("a peer that is no more is heard")
	}
	if two.count("drop-forged") == before {
		t.Error("it was not counted")
	}
}

// stream sends numbered blocks over a connection to an echo until told to stop, checks what comes back, and gives the
// number of bytes.
func stream(c net.Conn, stop chan struct{}, got chan<- error, n *int) {
	block := bytes.Repeat([]byte("0123456789abcdef"), 1024)
	buf := make([]byte, len(block))
	for {
		select {
		case <-stop:
			got <- nil
			return
		default:
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write(block); err != nil {
			got <- err
			return
		}
		if _, err := io.ReadFull(c, buf); err != nil || !bytes.Equal(buf, block) {
			got <- fmt.Errorf("after %d bytes: %w", *n, err)
			return
		}
		*n += len(block)
	}
}

// Traffic goes on while the agent is away and while the next one takes over, with what the first one has left.
func TestTrafficOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	{
		{
			w := newWorld(t)
			h, client := w.hosts[0], w.inst("a1")
			w.inst("a2").serve(80)
			w.inst("b1").serve(80)
			h.service(7, 1, w.inst("a2"))
			h.service(7, 2, w.inst("b1"))
			stop := make(chan struct{})
			got := make(chan error, 2)
			var n [2]int
			for i := range n {
				c, err := client.dial("tcp", svc(byte(i+1), i == 1), 80)
				must(t, err)
				defer c.Close()
				_, err = askOn(c)
				must(t, err)
				go stream(c, stop, got, &n[i])
			}
			before, err := h.dev.Stats()
			must(t, err)
			for range 3 {
				for _, h := range w.hosts {
					must(t, h.dev.Close())
				}
				// Nobody is there, and new flows begin all the same.
				if got, err := client.ask("tcp", svc(1, true), 80); err != nil || got != "a2" {
					t.Errorf("without an agent: %s, %v", got, err)
				}
				for _, h := range w.hosts {
					h.open()
					h.set()
				}
			}
			if got, err := client.ask("udp", svc(1, false), 80); err != nil || got != "a2" {
				t.Errorf("after the agent: %s, %v", got, err)
			}
			close(stop)
			for range n {
				must(t, <-got)
			}
			after, err := h.dev.Stats()
			must(t, err)
			if n[0] == 0 || n[1] == 0 || after.Counters["new-flow"] < before.Counters["new-flow"]+4 {
				t.Errorf("%v bytes, %d flows, then %d", n, before.Counters["new-flow"], after.Counters["new-flow"])
			}
			// What was configured before and is not now is gone.
			h.conf.Services = nil
			h.set()
			must(t, h.dev.Close())
			h.open()
			left, err := h.dev.load()
			must(t, err)
			for name := range left.named {
				if name[0] == 's' {
					t.Errorf("chain %s is left", name)
				}
			}
			if n := len(left.sets[setID{nftables.TableFamilyINet, "here6"}]); n != 2 {
				t.Errorf("%d instances", n)
			}
		}
	}
}

// An instance that goes leaves no hook, no address and no flow behind, also if its device went first.
func TestInstanceGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, client := w.hosts[0], w.inst("a1")
	w.inst("b1").serve(80)
	h.service(7, 1, w.inst("b1"))
	for _, network := range []string{"tcp", "udp"} {
		_, err := client.ask(network, svc(1, false), 80)
		must(t, err)
	}
	must(t, kernel.In(h.ns, func() error {
		l, err := netlink.LinkByName(client.device)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	}))
	if err := h.dev.Set(t.Context(), h.conf); err == nil {
		t.Error("an instance without a device was taken")
	}
	h.conf.Instances = h.conf.Instances[1:]
	h.set()
	list, err := h.dev.nl.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	must(t, err)
	for _, f := range list {
		if f.Forward.SrcIP.String() == client.a4.String() {
			t.Errorf("a flow is left: %s", f)
		}
	}
	routes, err := h.dev.listRoutes()
	must(t, err)
	for _, r := range routes {
		if r.Dst.IP.String() == client.a4.String() {
			t.Errorf("a route is left: %s", r)
		}
	}
}

// Protocols without ports are led by their addresses.
func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, client := w.hosts[0], w.inst("a1")
	h.service(7, 1, w.inst("a2"))
	raw := func(i *inst, proto int) int {
		var fd int
		must(t, kernel.In(i.ns, func() (err error) {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
			if err == nil {
				err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
			}
			return err
		}))
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	for _, proto := range []int{253} {
		server, c := raw(w.inst("a2"), proto), raw(client, proto)
		// Ports 4660 and 80, a tag, and a sum which must arrive as it was sent.
		msg := []byte{0x12, 0x34, 0, 80, 1, 2, 3, 4, 0xde, 0xad, 0xbe, 0xef, 9, 9, 9, 9}
		must(t, unix.Sendto(c, msg, 0, &unix.SockaddrInet4{Addr: svc(1, false).As4()}))
		buf := make([]byte, 1500)
		n, from, err := testenv.Recvfrom(server, buf)
		if err != nil || n != 20+len(msg) || string(buf[20:n]) != string(msg) || from.(*unix.SockaddrInet4).Addr != client.a4.As4() {
			t.Fatalf("protocol %d: %d bytes from %v, %v", proto, n, from, err)
		}
		answer := append([]byte(nil), msg...)
		copy(answer, []byte{0, 80, 0x12, 0x34})
		must(t, unix.Sendto(server, answer, 0, from))
		n, from, err = testenv.Recvfrom(c, buf)
		if err != nil || string(buf[20:n]) != string(answer) || from.(*unix.SockaddrInet4).Addr != svc(1, false).As4() {
			t.Errorf("protocol %d: the client gets %x from %v, %v", proto, buf[:n], from, err)
		}
	}
}

// A host that did not forward IPv6 does so for instances, and for nobody else; it still hears of routers.
func TestForwarding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hosts[0]
	w.inst("a2").serve(80)
	h.service(7, 1, w.inst("a2"))
	kerneltest.Run(t, h.ns, `
		sysctl -qw net.ipv6.conf.all.forwarding=0
		sysctl -qw net.ipv6.conf.wire.accept_ra=1`)
	must(t, h.dev.Close())
	h.open()
	h.set()
	if got, err := w.inst("a1").ask("tcp", svc(1, true), 80); err != nil || got != "a2" {
		t.Errorf("%s, %v", got, err)
	}
	for name, want := range map[string]string{"all/forwarding": "1", "wire/accept_ra": "2"} {
		if v, err := h.dev.readSysctl("net/ipv6/conf/" + name); err != nil || v != want {
			t.Errorf("%s is %s, %v", name, v, err)
		}
	}
	// Two machines that are no instances, on either side of the host.
	near, far := kerneltest.NewNS(t), kerneltest.NewNS(t)
	for name, ns := range map[string]*os.File{"near": near, "far": far} {
		must(t, kernel.In(h.ns, func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1, Flags: net.FlagUp}, PeerName: "eth0",
				PeerNamespace: netlink.NsFd(int(ns.Fd()))})
		}))
		kerneltest.Run(t, h.ns, "ip addr add fd77:"+name[1:2]+"::1/64 dev "+name+" nodad")
		kerneltest.Run(t, ns, "ip addr add fd77:"+name[1:2]+"::2/64 dev eth0 nodad\nip link set eth0 up\nip -6 route add default via fd77:"+
			name[1:2]+"::1")
	}
	must(t, kernel.In(near, func() error { return kernel.SysctlIfAny("ipv4/ping_group_range", "0\t2147483647") }))
	i := &inst{h: h, ns: near}
	must(t, i.ping(netip.MustParseAddr("fd77:e::1"), 8))
	if i.reaches(netip.MustParseAddr("fd77:a::2")) {
		t.Error("the host became a router for others")
	}
	must(t, h.dev.CleanUp())
	h.open()
	if v, err := h.dev.readSysctl("net/ipv6/conf/all/forwarding"); err != nil || v != "0" {
		t.Errorf("forwarding is %s afterwards, %v", v, err)
	}
}
