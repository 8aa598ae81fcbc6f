//go:build linux

package nft

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/wire"
)

// A service address leads to instances here and on the other host, of both families, by all protocols, and the client
// sees nothing but the service address.
func TestServiceAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := w.inst("a1")
	w.inst("b1").serve(80)
	w.inst("a2").serve(80)
	w.hosts[0].service(7, 1, w.inst("b1"))
	w.hosts[0].service(7, 2, w.inst("a2"))
	for last, want := range map[byte]string{1: "b1", 2: "a2"} {
		for _, six := range []bool{false, true} {
			for _, network := range []string{"tcp", "udp"} {
				for range 3 {
					if got, err := client.ask(network, svc(last, six), 80); err != nil || got != want {
						t.Errorf("%s %s: %q, %v, want %s", network, svc(last, six), got, err, want)
					}
				}
			}
			for _, size := range []int{8, 1000} {
				if err := client.ping(svc(last, six), size); err != nil {
					t.Errorf("%s: %v", want, err)
				}
			}
		}
	}
	// Without a service address in between.
	for _, six := range []bool{false, true} {
		for _, to := range []string{"b1", "a2"} {
			if got, err := client.ask("tcp", w.inst(to).addr(six), 80); err != nil || got != to {
				t.Errorf("%s: %q, %v", to, got, err)
			}
		}
		if err := client.ping(w.hosts[0].gateway(six), 8); err != nil {
			t.Errorf("gateway: %v", err)
		}
	}
	if w.hosts[0].count("local") == 0 || w.hosts[0].count("to-tunnel") == 0 || w.hosts[1].count("from-tunnel") == 0 || w.hosts[0].count("new-flow") == 0 {
		t.Error("packets took another way than that of the programs")
	}
	if t.Failed() {
		for _, h := range w.hosts {
			s, _ := h.dev.Stats()
			t.Logf("host %d: %+v", h.n, s)
		}
	}
}

// Turns are exact, also when the same is set again, or something else.
func TestTurnsAreEven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, client := w.hosts[0], w.inst("a1")
	slots := []*inst{w.inst("b1"), w.inst("a2"), w.inst("a2"), w.inst("b2")}
	h.service(7, 1, slots...)
	count := func() map[netip.Addr]int {
		got := map[netip.Addr]int{}
		list, err := h.dev.connections(unix.AF_INET)
		must(t, err)
		for _, f := range list {
			if f.Forward.DstIP.String() == svc(1, false).String() {
				b, _ := netip.AddrFromSlice(f.Reverse.SrcIP)
				got[b.Unmap()]++
			}
		}
		return got
	}
	const flows = 200
	for k := range flows {
		if k == 17 {
			h.set()
		}
		if k == 33 {
			h.service(7, 2, slots...)
		}
		client.send(udp(client.a4, svc(1, false), uint16(10000+k), 81, nil))
		if k%3 == 0 { // a second packet of a flow does not count
			client.send(udp(client.a4, svc(1, false), uint16(10000+k), 81, nil))
		}
	}
	eventually(t, "all flows are there", func() bool { return h.count("new-flow") == flows })
	if got := count(); got[slots[0].a4] != flows/4 || got[slots[1].a4] != flows/2 || got[slots[3].a4] != flows/4 {
		t.Errorf("%v", got)
	}
}

// A flow stays with its backend whatever is added or drained; new ones follow the slots.
func TestFlowsStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, client := w.hosts[0], w.inst("a1")
	for _, n := range []string{"b1", "a2", "b2"} {
		w.inst(n).serve(80)
	}
	h.service(7, 1, w.inst("b1"), w.inst("a2"))
	conns := map[string]net.Conn{}
	for range 2 {
		c, err := client.dial("tcp", svc(1, false), 80)
		must(t, err)
		defer c.Close()
		name, err := askOn(c)
		must(t, err)
		conns[name] = c
	}
	if len(conns) != 2 {
		t.Fatalf("two flows went to %v", conns)
	}
	u, err := client.dial("udp", svc(1, true), 80)
	must(t, err)
	defer u.Close()
	name, err := askOn(u)
	must(t, err)
	h.service(7, 1, w.inst("b2"))
	for range 10 {
		if again, err := askOn(u); err != nil || again != name {
			t.Errorf("%s, then %s, %v", name, again, err)
		}
		if got, err := client.ask("tcp", svc(1, false), 80); err != nil || got != "b2" {
			t.Errorf("a new flow went to %s, %v", got, err)
		}
	}
	for name, c := range conns {
		if err := echo(c, "still here"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// echo sends something on a connection and waits for it to come back.
func echo(c net.Conn, s string) error {
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte(s)); err != nil {
		return err
	}
	buf := make([]byte, len(s))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != s {
		return fmt.Errorf("%q, %w", buf, err)
	}
	return nil
}

// When a backend is no more, its clients hear of it at once, and no others.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, six := range []bool{false, true} {
		w := newWorld(t)
		h, client := w.hosts[0], w.inst("a1")
		w.inst("a2").serve(80)
		w.inst("b1").serve(80)
		h.service(7, 1, w.inst("a2"))
		h.service(7, 2, w.inst("b1"))
		dead, err := client.dial("tcp", svc(1, six), 80)
		must(t, err)
		defer dead.Close()
		_, err = askOn(dead)
		must(t, err)
		alive, err := client.dial("tcp", svc(2, six), 80)
		must(t, err)
		defer alive.Close()
		_, err = askOn(alive)
		must(t, err)
		must(t, h.dev.Reset(w.inst("a2").addr(six)))
		dead.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := dead.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the client sees %v", err)
		}
		must(t, echo(alive, "alive"))
		// The same address and port can begin anew.
		h.service(7, 1, w.inst("b1"))
		if got, err := client.ask("tcp", svc(1, six), 80); err != nil || got != "b1" {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// A client reaches itself through a service address that leads to it alone.
func TestClientIsItsOwnBackend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, client := w.hosts[0], w.inst("a1")
	client.serve(80)
	h.service(7, 1, client)
	for _, six := range []bool{false, true} {
		c, err := client.dial("tcp", svc(1, six), 80)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		b := make([]byte, 64)
		if n, err := c.Read(b); err != nil || string(b[:3]) != "a1 " {
			t.Errorf("%q, %v", b[:n], err)
		}
		c.Close()
		if err := client.ping(svc(1, six), 100); err != nil {
			t.Error(err)
		}
	}
	// With others to choose from it is led to them.
	w.inst("b1").serve(80)
	h.service(7, 2, client, w.inst("b1"))
	for range 8 {
		if got, err := client.ask("tcp", svc(2, false), 80); err != nil || got != "b1" {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// An ICMP error about a flow tells the client of the packet that it has sent.
func TestErrorsComeBack(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"b1", "a2"} {
		w := newWorld(t)
		h, client := w.hosts[0], w.inst("a1")
		h.service(7, 1, w.inst(to))
		for _, six := range []bool{false, true} {
			c, err := client.dial("udp", svc(1, six), 9) // nobody listens
			must(t, err)
			c.SetDeadline(time.Now().Add(10 * time.Second))
			_, err = c.Write([]byte("x"))
			must(t, err)
			if _, err := c.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s, IPv6 %v: the client sees %v", to, six, err)
			}
			c.Close()
		}
	}
}

// An ICMP error about a flow of another network's instance is dropped, whoever guesses of which flow.
func TestErrorsOfOthers(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"b1", "a2"} {
		w := newWorld(t)
		h, client := w.hosts[0], w.inst("a1")
		liar := h.add("x1", 9)
		h.service(7, 1, w.inst(backend))
		h.set()
		server := w.inst(backend).listen(80)
		for _, six := range []bool{false, true} {
			c, err := client.dial("udp", svc(1, six), 80)
			must(t, err)
			c.SetDeadline(time.Now().Add(10 * time.Second))
			_, err = c.Write([]byte("x"))
			must(t, err)
			_, from := hears(server, 10*time.Second)
			inner := udp(client.addr(six), w.inst(backend).addr(six), from.Port(), 80, []byte("x"))
			icmp, proto := append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, inner...), byte(1)
			if six {
				icmp[0], icmp[1], proto = 1, 4, 58
			}
			before := h.count("drop-network")
			liar.send(forge(liar.addr(six), client.addr(six), proto, icmp, 2)[etherLen:])
			eventually(t, backend+": it is dropped", func() bool { return h.count("drop-network") > before })
			_, err = server.WriteToUDPAddrPort([]byte("y"), from)
			must(t, err)
			if _, err := c.Read(make([]byte, 10)); err != nil {
				t.Errorf("%s, IPv6 %v: the client sees %v", backend, six, err)
			}
			c.Close()
		}
		server.Close()
	}
}

// silent fails if anything is heard.
func silent(t *testing.T, what string, u *net.UDPConn) {
	t.Helper()
	if s, from := hears(u, 50*time.Millisecond); s != "" {
		t.Errorf("%s: %q from %s arrived", what, s, from)
	}
}

// Instances of different networks do not reach each other, here or across hosts, by their addresses or by service
// addresses, unless one accepts the other's network; then answers come back, and nothing else.
func TestNetworksAreApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
