//go:build linux

package planetest

import (
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/overlay/internal/forge"
	"skerry.dev/skerry/overlay/internal/kernel"
)

// SourceIsItsOwn: an instance speaks for itself and nobody else.
func SourceIsItsOwn(t *testing.T, world *World) {
	host, from := world.Hosts[0], world.Inst("a1")
	servers := []*net.UDPConn{world.Inst("b1").Listen(80), world.Inst("a2").Listen(80)}
	for at, forged := range []netip.Addr{world.Inst("b1").A4, world.Inst("b2").A4, host.Gateway(false), netip.MustParseAddr("8.8.8.8"),
		netip.MustParseAddr("0.0.0.0"), world.Inst("b1").A6, world.Inst("b2").A6, netip.MustParseAddr("2001:db8::1"),
		netip.MustParseAddr("fe80::1")} {
		for _, to := range []string{"b1", "a2"} {
			from.Send(UDP(forged, world.Inst(to).Addr(forged.Is6()), 1000, 80, []byte("forged")))
		}
		from.Send(UDP(forged, host.Gateway(forged.Is6()), 1000, 80, []byte("forged")))
		Eventually(t, forged.String(), func() bool { return host.Count("drop-spoofed") >= int64(3*at+3) })
	}
	for _, u := range servers {
		Silent(t, "a forged source", u)
	}
	// What is said to neighbours.
	ra := ToAll(forge.IP(netip.MustParseAddr("fe80::2"), netip.MustParseAddr("ff02::1"), 58, make([]byte, 16), 2))
	ra[EtherLen+40] = 134
	neighbours := func() string {
		var out []byte
		Must(t, kernel.In(host.NS, func() (err error) { out, err = exec.Command("ip", "neigh", "show", "dev", "lan0").Output(); return err }))
		return string(out)
	}
	for name, frame := range map[string][]byte{
		"the gateway's":          ARP(host.Gateway(false), world.Inst("b1").A4),
		"a neighbour's":          ARP(world.Inst("b1").A4, world.Inst("b1").A4),
		"the gateway's, IPv6":    from.NeighbourAdvertisement(host.Gateway(true)),
		"a neighbour's, IPv6":    from.NeighbourAdvertisement(world.Inst("b1").A6),
		"a router advertisement": ra,
	} {
		before := host.Count("drop-spoofed")
		from.Inject(frame)
		Eventually(t, name, func() bool { return host.Count("drop-spoofed") > before })
	}
	before := host.Count("drop-protocol")
	from.Inject(append(append(append([]byte{}, Broadcast()...), Broadcast()...), 0x88, 0xcc, 1, 2, 3, 4))
	Eventually(t, "another protocol", func() bool { return host.Count("drop-protocol") > before })
	if strings.Contains(neighbours(), "00:00:00:00:63") {
		t.Errorf("the host took a false address: %s", neighbours())
	}
}

// PeerGoes: without a peer nothing comes from it any more; and a peer whose prefix moves to another one no longer speaks for it.
func PeerGoes(t *testing.T, world *World, counter string) {
	world.Inst("a2").Serve(80)
	if got, err := world.Inst("a1").Ask("tcp", world.Inst("a2").A4, 80); err != nil || got != "a2" {
		t.Fatal(got, err)
	}
	two := world.Hosts[1]
	two.Conf.Peers = slices.Delete(two.Conf.Peers, 0, 1)
	two.Set()
	before := two.Count(counter)
	if world.Inst("a1").Reaches(world.Inst("a2").A4) {
		t.Error("a peer that is no more is heard")
	}
	if two.Count(counter) == before {
		t.Error("it was not counted")
	}
}

// TrafficOutlivesTheAgent: traffic goes on while the agent is away and while the next one takes over, with what the first one has left.
func TrafficOutlivesTheAgent(t *testing.T, world *World) {
	host, client := world.Hosts[0], world.Inst("a1")
	world.Inst("a2").Serve(80)
	world.Inst("b1").Serve(80)
	host.Service(7, 1, world.Inst("a2"))
	host.Service(7, 2, world.Inst("b1"))
	stop := make(chan struct{})
	got := make(chan error, 2)
	var bytes [2]int
	for i := range bytes {
		c, err := client.Dial("tcp", Svc(byte(i+1), i == 1), 80)
		Must(t, err)
		defer c.Close()
		_, err = AskOn(c)
		Must(t, err)
		go Stream(c, stop, got, &bytes[i])
	}
	before, err := host.Dev.Stats()
	Must(t, err)
	for range 3 {
		for _, host := range world.Hosts {
			Must(t, host.Dev.Close())
		}
		// Nobody is there, and new flows begin all the same.
		if got, err := client.Ask("tcp", Svc(1, true), 80); err != nil || got != "a2" {
			t.Errorf("without an agent: %s, %v", got, err)
		}
		for _, host := range world.Hosts {
			host.Open()
			host.Set()
		}
	}
	if got, err := client.Ask("udp", Svc(1, false), 80); err != nil || got != "a2" {
		t.Errorf("after the agent: %s, %v", got, err)
	}
	close(stop)
	for range bytes {
		Must(t, <-got)
	}
	after, err := host.Dev.Stats()
	Must(t, err)
	if bytes[0] == 0 || bytes[1] == 0 || after.Counters["new-flow"] < before.Counters["new-flow"]+4 {
		t.Errorf("%v bytes, %d flows, then %d", bytes, before.Counters["new-flow"], after.Counters["new-flow"])
	}
}

// InstanceGoes: an instance that goes leaves no hook, no address and no flow behind, also if its device went first.
func InstanceGoes(t *testing.T, world *World) {
	host, client := world.Hosts[0], world.Inst("a1")
	world.Inst("b1").Serve(80)
	host.Service(7, 1, world.Inst("b1"))
	for _, network := range []string{"tcp", "udp"} {
		_, err := client.Ask(network, Svc(1, false), 80)
		Must(t, err)
	}
	Must(t, kernel.In(host.NS, func() error {
		l, err := netlink.LinkByName(client.Device)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	}))
	if err := host.Dev.Set(t.Context(), host.Conf); err == nil {
		t.Error("an instance without a device was taken")
	}
	host.Conf.Instances = host.Conf.Instances[1:]
	host.Set()
}

// OtherProtocols: protocols without ports are led by their addresses.
func OtherProtocols(t *testing.T, world *World, protocols ...int) {
	host, client := world.Hosts[0], world.Inst("a1")
	host.Service(7, 1, world.Inst("a2"))
	raw := func(i *Inst, proto int) int {
		var fd int
		Must(t, kernel.In(i.NS, func() (err error) {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
			if err == nil {
				err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
			}
			return err
		}))
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	for _, proto := range protocols {
		server, local := raw(world.Inst("a2"), proto), raw(client, proto)
		// Ports 4660 and 80, a tag, and a sum which must arrive as it was sent.
		msg := []byte{0x12, 0x34, 0, 80, 1, 2, 3, 4, 0xde, 0xad, 0xbe, 0xef, 9, 9, 9, 9}
		Must(t, unix.Sendto(local, msg, 0, &unix.SockaddrInet4{Addr: Svc(1, false).As4()}))
		buf := make([]byte, 1500)
		count, from, err := testenv.Recvfrom(server, buf)
		if err != nil || count != 20+len(msg) || string(buf[20:count]) != string(msg) || from.(*unix.SockaddrInet4).Addr != client.A4.As4() {
			t.Fatalf("protocol %d: %d bytes from %v, %v", proto, count, from, err)
		}
		answer := append([]byte(nil), msg...)
		copy(answer, []byte{0, 80, 0x12, 0x34})
		Must(t, unix.Sendto(server, answer, 0, from))
		count, from, err = testenv.Recvfrom(local, buf)
		if err != nil || string(buf[20:count]) != string(answer) || from.(*unix.SockaddrInet4).Addr != Svc(1, false).As4() {
			t.Errorf("protocol %d: the client gets %x from %v, %v", proto, buf[:count], from, err)
		}
	}
}
