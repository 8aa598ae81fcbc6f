//go:build linux

package planetest

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/forge"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/wire"
)

// ServiceAddress: a service address leads to instances here and on the other host, of both families, by all protocols, and the client
// sees nothing but the service address.
func ServiceAddress(t *testing.T, world *World, way string) {
	client := world.Inst("a1")
	world.Inst("b1").Serve(80)
	world.Inst("a2").Serve(80)
	world.Hosts[0].Service(7, 1, world.Inst("b1"))
	world.Hosts[0].Service(7, 2, world.Inst("a2"))
	for last, want := range map[byte]string{1: "b1", 2: "a2"} {
		for _, six := range []bool{false, true} {
			for _, network := range []string{"tcp", "udp"} {
				for range 3 {
					if got, err := client.Ask(network, Svc(last, six), 80); err != nil || got != want {
						t.Errorf("%s %s: %q, %v, want %s", network, Svc(last, six), got, err, want)
					}
				}
			}
			for _, size := range []int{8, 1000} {
				if err := client.Ping(Svc(last, six), size); err != nil {
					t.Errorf("%s: %v", want, err)
				}
			}
		}
	}
	// Without a service address in between.
	for _, six := range []bool{false, true} {
		for _, to := range []string{"b1", "a2"} {
			if got, err := client.Ask("tcp", world.Inst(to).Addr(six), 80); err != nil || got != to {
				t.Errorf("%s: %q, %v", to, got, err)
			}
		}
		if err := client.Ping(world.Hosts[0].Gateway(six), 8); err != nil {
			t.Errorf("gateway: %v", err)
		}
	}
	one, two := world.Hosts[0], world.Hosts[1]
	if one.Count("local") == 0 || one.Count("to-"+way) == 0 || two.Count("from-"+way) == 0 || one.Count("new-flow") == 0 {
		t.Error("packets took another way")
	}
	if t.Failed() {
		for _, host := range world.Hosts {
			s, _ := host.Dev.Stats()
			t.Logf("host %d: %+v", host.N, s)
		}
	}
}

// FlowsStay: a flow stays with its backend whatever is added or drained; new ones follow the slots.
func FlowsStay(t *testing.T, world *World) {
	host, client := world.Hosts[0], world.Inst("a1")
	for _, n := range []string{"b1", "a2", "b2"} {
		world.Inst(n).Serve(80)
	}
	host.Service(7, 1, world.Inst("b1"), world.Inst("a2"))
	conns := map[string]net.Conn{}
	for range 2 {
		c, err := client.Dial("tcp", Svc(1, false), 80)
		Must(t, err)
		defer c.Close()
		name, err := AskOn(c)
		Must(t, err)
		conns[name] = c
	}
	if len(conns) != 2 {
		t.Fatalf("two flows went to %v", conns)
	}
	datagrams, err := client.Dial("udp", Svc(1, true), 80)
	Must(t, err)
	defer datagrams.Close()
	name, err := AskOn(datagrams)
	Must(t, err)
	host.Service(7, 1, world.Inst("b2"))
	for range 10 {
		if again, err := AskOn(datagrams); err != nil || again != name {
			t.Errorf("%s, then %s, %v", name, again, err)
		}
		if got, err := client.Ask("tcp", Svc(1, false), 80); err != nil || got != "b2" {
			t.Errorf("a new flow went to %s, %v", got, err)
		}
	}
	for name, c := range conns {
		if err := Echo(c, "still here"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// ClientIsItsOwnBackend: a client reaches itself through a service address that leads to it alone.
func ClientIsItsOwnBackend(t *testing.T, world *World) {
	host, client := world.Hosts[0], world.Inst("a1")
	client.Serve(80)
	host.Service(7, 1, client)
	for _, six := range []bool{false, true} {
		c, err := client.Dial("tcp", Svc(1, six), 80)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		b := make([]byte, 64)
		if n, err := c.Read(b); err != nil || string(b[:3]) != "a1 " {
			t.Errorf("%q, %v", b[:n], err)
		}
		c.Close()
		if err := client.Ping(Svc(1, six), 100); err != nil {
			t.Error(err)
		}
	}
	// With others to choose from it is led to them.
	world.Inst("b1").Serve(80)
	host.Service(7, 2, client, world.Inst("b1"))
	for range 8 {
		if got, err := client.Ask("tcp", Svc(2, false), 80); err != nil || got != "b1" {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// Reset: when a backend is no more, its clients hear of it at once, and no others.
func Reset(t *testing.T, world *World, six bool) {
	host, client := world.Hosts[0], world.Inst("a1")
	world.Inst("a2").Serve(80)
	world.Inst("b1").Serve(80)
	host.Service(7, 1, world.Inst("a2"))
	host.Service(7, 2, world.Inst("b1"))
	dead, err := client.Dial("tcp", Svc(1, six), 80)
	Must(t, err)
	defer dead.Close()
	_, err = AskOn(dead)
	Must(t, err)
	alive, err := client.Dial("tcp", Svc(2, six), 80)
	Must(t, err)
	defer alive.Close()
	_, err = AskOn(alive)
	Must(t, err)
	Must(t, host.Dev.Reset(world.Inst("a2").Addr(six)))
	dead.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := dead.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client sees %v", err)
	}
	Must(t, Echo(alive, "alive"))
	// The same address and port can begin anew.
	host.Service(7, 1, world.Inst("b1"))
	if got, err := client.Ask("tcp", Svc(1, six), 80); err != nil || got != "b1" {
		t.Errorf("%s, %v", got, err)
	}
}

// ErrorsComeBack: an ICMP error about a flow tells the client of the packet that it has sent.
func ErrorsComeBack(t *testing.T, world *World, to string) {
	host, client := world.Hosts[0], world.Inst("a1")
	host.Service(7, 1, world.Inst(to))
	for _, six := range []bool{false, true} {
		c, err := client.Dial("udp", Svc(1, six), 9) // nobody listens
		Must(t, err)
		c.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = c.Write([]byte("x"))
		Must(t, err)
		if _, err := c.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s, IPv6 %v: the client sees %v", to, six, err)
		}
		c.Close()
	}
}

// ErrorsOfOthers: an ICMP error about a flow of another network's instance is dropped, whoever guesses of which flow.
func ErrorsOfOthers(t *testing.T, world *World, backend string) {
	host, client := world.Hosts[0], world.Inst("a1")
	liar := host.Add("x1", 9)
	host.Service(7, 1, world.Inst(backend))
	host.Set()
	server := world.Inst(backend).Listen(80)
	for _, six := range []bool{false, true} {
		conn, err := client.Dial("udp", Svc(1, six), 80)
		Must(t, err)
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = conn.Write([]byte("x"))
		Must(t, err)
		_, from := Hears(server, 10*time.Second)
		inner := UDP(client.Addr(six), world.Inst(backend).Addr(six), from.Port(), 80, []byte("x"))
		icmp, proto := append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, inner...), byte(1)
		if six {
			icmp[0], icmp[1], proto = 1, 4, 58
		}
		before := host.Count("drop-network")
		liar.Send(forge.IP(liar.Addr(six), client.Addr(six), proto, icmp, 2))
		Eventually(t, backend+": it is dropped", func() bool { return host.Count("drop-network") > before })
		_, err = server.WriteToUDPAddrPort([]byte("y"), from)
		Must(t, err)
		if _, err := conn.Read(make([]byte, 10)); err != nil {
			t.Errorf("%s, IPv6 %v: the client sees %v", backend, six, err)
		}
		conn.Close()
	}
	server.Close()
}

// NetworksAreApart: instances of different networks do not reach each other, here or across hosts, by their addresses or by service
// addresses, unless one accepts the other's network; then answers come back, and nothing else.
func NetworksAreApart(t *testing.T, world *World) {
	one, two := world.Hosts[0], world.Hosts[1]
	near, far := one.Add("x1", 9), two.Add("x2", 9)
	one.Set()
	two.Set()
	client := world.Inst("a1")
	for _, to := range []*Inst{near, far} {
		to.Serve(80)
	}
	client.Serve(80)
	for _, six := range []bool{false, true} {
		for _, to := range []*Inst{near, far} {
			server := to.Listen(81)
			host := to.Host
			before := host.Count("drop-network")
			client.Send(UDP(client.Addr(six), to.Addr(six), 1, 81, []byte("hello")))
			Eventually(t, "a packet to another network is dropped", func() bool { return host.Count("drop-network") > before })
			Silent(t, "another network", server)
			server.Close()
			if client.Reaches(to.Addr(six)) {
				t.Errorf("%s answers an instance of another network", to.Name)
			}
		}
	}
	// Straight over the bridge, to the other's hardware address.
	var eth *net.Interface
	Must(t, kernel.In(near.NS, func() (err error) { eth, err = net.InterfaceByName("eth0"); return err }))
	server := near.Listen(82)
	for _, to := range []netip.Addr{near.A4, near.A6} {
		before := one.Count("drop-network")
		client.Inject(Ether(eth.HardwareAddr, Broadcast(), UDP(client.Addr(to.Is6()), to, 1, 82, []byte("hello"))))
		Eventually(t, "a packet over the bridge is dropped", func() bool { return one.Count("drop-network") > before })
	}
	before := one.Count("drop-network")
	client.Inject(ToAll(UDP(client.A4, netip.MustParseAddr("224.0.0.251"), 1, 82, []byte("hello"))))
	Eventually(t, "a packet for everybody is dropped", func() bool { return one.Count("drop-network") > before })
	Silent(t, "the bridge", server)

	// Exported: the instances accept network 7, in which a service address leads to them.
	for _, host := range world.Hosts {
		for at := range host.Conf.Instances {
			if host.Conf.Instances[at].Net == 9 {
				host.Conf.Instances[at].Foreign = []wire.NetworkID{7}
			}
		}
	}
	for at, to := range []*Inst{near, far} {
		for _, six := range []bool{false, true} {
			one.Conf.Services = append(one.Conf.Services,
				overlay.Service{Net: 7, Addr: Svc(byte(at+1), six), Slots: []overlay.Backend{{Net: 9, Addr: to.Addr(six)}}})
		}
	}
	one.Set()
	two.Set()
	for at, want := range []string{"x1", "x2"} {
		for _, six := range []bool{false, true} {
			for _, network := range []string{"tcp", "udp"} {
				if got, err := client.Ask(network, Svc(byte(at+1), six), 80); err != nil || got != want {
					t.Errorf("exported: %q, %v, want %s", got, err, want)
				}
			}
		}
	}
	// Nobody else's address means anything there, and the way back is not one for new flows.
	for _, to := range []*Inst{near, far} {
		if to.Reaches(client.A4) {
			t.Errorf("%s reaches a client of its service", to.Name)
		}
		before := one.Count("drop-network")
		to.Send(UDP(to.A4, client.A4, 80, 80, []byte("hello")))
		Eventually(t, "a packet to a client of the service is dropped", func() bool { return one.Count("drop-network") > before })
	}
}
