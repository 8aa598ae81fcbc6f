//go:build linux

package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/spec"
)

func allow(rules ...spec.EgressRule) *spec.Egress { return &spec.Egress{Allow: rules} }

func network(cidr string, ports ...spec.EgressPort) spec.EgressRule {
	return spec.EgressRule{CIDR: netip.MustParsePrefix(cidr), Ports: ports}
}

func TestPlanEgress(t *testing.T) {
	addr := map[string][]netip.Prefix{
		"a": {netip.MustParsePrefix("10.64.0.3/32"), netip.MustParsePrefix("fd00::3/128")},
		"b": {netip.MustParsePrefix("10.64.0.2/32")}, "c": {netip.MustParsePrefix("10.64.0.4/32")}, "d": {netip.MustParsePrefix("10.64.0.5/32")}, "e": {netip.MustParsePrefix("10.64.0.6/32")},
	}
	addrs := func(id string) []netip.Prefix { return addr[id] }
	if e := planEgress([]Want{{ID: "a"}, {ID: "b"}}, addrs); e != nil {
		t.Errorf("nobody has a policy: %s", e)
	}
	web := network("203.0.113.0/24", spec.EgressPort{Port: 443}, spec.EgressPort{Port: 53, Protocol: "udp"})
	web.Except = []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32")}
	got := planEgress([]Want{{ID: "a", Egress: allow()}, {ID: "b", Egress: allow(web, network("2001:db8::/32"))}, {ID: "c", Egress: allow()}, {ID: "d"},
		{ID: "e", Egress: allow(network("203.0.113.9/24"))}}, addrs).String()
	want := `free [10.64.0.5]
from [10.64.0.3 10.64.0.4 10.64.0.6 fd00::3]
  refuse
from [10.64.0.2]
  allow 203.0.113.0/24 except 203.0.113.7/32 ports 443/tcp, 53/udp
  allow 2001:db8::/32
  refuse
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// withV6 gives the wire of a site IPv6, and the other machine a way back to instances.
func (s *site) withV6(t *testing.T, v6 netip.Prefix) {
	must(t, kernel.In(s.host, func() error {
		return errors.Join(kernel.Sysctl("ipv6/conf/all/forwarding", "1"), address6("fd99::1/64"))
	}))
	must(t, kernel.In(s.remote, func() error {
		if err := errors.Join(address6("fd99::2/64"), address6("fd99::3/64")); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: kernel.IPNet(v6), Gw: net.ParseIP("fd99::1")})
	}))
}

func address6(text string) error {
	l, err := netlink.LinkByName("wan")
	if err != nil {
		return err
	}
	a, _ := netlink.ParseAddr(text)
	a.Flags = unix.IFA_F_NODAD
	return netlink.AddrAdd(l, a)
}

// echo6 answers datagrams by IPv6.
func echo6(t *testing.T, ns *os.File, addr string) {
	t.Helper()
	must(t, kernel.In(ns, func() error {
		p, err := net.ListenPacket("udp6", addr)
		if err != nil {
			return err
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			var b [64]byte
			for {
				_, from, err := p.ReadFrom(b[:])
				if err != nil {
					return
				}
				_, _ = p.WriteTo([]byte("!"), from)
			}
		}()
		t.Cleanup(func() { p.Close(); <-done })
		return nil
	}))
}

// reach tries to reach an address from a namespace, and tells whether it was refused; else that it was not is an error.
func reach(ns *os.File, network, addr string) (refused bool, err error) {
	err = kernel.In(ns, func() error {
		c, err := net.DialTimeout(network, addr, 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		if strings.HasPrefix(network, "tcp") {
			return nil
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Write([]byte("?")); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 64))
		return err
	})
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EACCES) {
		return true, nil
	}
	return false, err
}

func (s *site) overlay() *Overlay {
	return &Overlay{Blocks: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/29")}, V6: netip.MustParsePrefix("fd00:64::/64"), Resolver: true}
}

// Each instance goes where its policy says, by TCP and UDP, IPv4 and IPv6; whoever has none goes as before. Rules stay when the agent
// ends, and change with an instance that runs.
func TestEgress(t *testing.T) {
	s := newSite(t)
	c := Config{Overlay: s.overlay()}
	s.withV6(t, c.Overlay.V6)
	serve(t, s.remote, ":9000")
	serve(t, s.remote, ":9001")
	echo6(t, s.remote, "[fd99::2]:9000")
	serve(t, s.host, ":53")
	must(t, kernel.In(s.remote, func() error {
		l, err := netlink.LinkByName("wan")
		a, _ := netlink.ParseAddr("198.51.100.3/24")
		return errors.Join(err, netlink.AddrAdd(l, a))
	}))
	o := s.options("w1")
	n := s.open(t, o)
	most := network("198.51.100.0/24", spec.EgressPort{Port: 9000}, spec.EgressPort{Port: 9000, Protocol: "udp"})
	most.Except = []netip.Prefix{netip.MustParsePrefix("198.51.100.3/32")}
	c.Attachments = []Want{{ID: "free"}, {ID: "shut", Egress: allow()}, {ID: "some", Egress: allow(most, network("fd99::2/128"))},
		{ID: "link", Egress: allow(network("0.0.0.0/0"), network("::/0"))}, {ID: "port", HostPorts: []HostPort{{HostPort: 8080, Port: 80}}}}
	as, err := n.Set(t.Context(), c)
	must(t, err)
	in := map[string]*os.File{}
	for _, w := range c.Attachments {
		in[w.ID] = open(t, as[w.ID].NetNS)
	}
	serve(t, in["port"], ":80")
	gateway := n.state.gateway().String()
	check := func(id, network, to string, open bool) {
		t.Helper()
		refused, err := reach(in[id], network, to)
		if err != nil || refused == open {
			t.Errorf("%s to %s by %s: refused %v, %v", id, to, network, refused, err)
		}
	}
	for _, c := range []struct {
		network, to                   string
		free, shut, some, all, hosted bool
	}{
		{"tcp4", remoteIP + ":9000", true, false, true, true, true},
		{"udp4", remoteIP + ":9000", true, false, true, true, true},
		{"tcp4", remoteIP + ":9001", true, false, false, true, true},
		{"udp4", remoteIP + ":9001", true, false, false, true, true},
		{"tcp4", "198.51.100.3:9000", true, false, false, true, true},
		{"tcp6", "[fd99::2]:9000", true, false, true, true, true},
		{"udp6", "[fd99::2]:9000", true, false, true, true, true},
		{"tcp6", "[fd99::3]:9000", true, false, false, true, true},
		{"udp4", gateway + ":53", true, true, true, true, true},
		{"tcp4", gateway + ":53", true, true, true, true, true},
		{"tcp4", hostIP + ":9000", false, false, false, false, false},                                           // the host stays closed whatever a policy allows
		{"tcp4", hostIP + ":8080", true, false, false, false, true},                                             // another's port of the host
		{"tcp4", as["port"].Addresses[0].Addr().String() + ":80", true, true, true, true, true},                 // another instance
		{"tcp6", net.JoinHostPort(as["port"].Addresses[1].Addr().String(), "80"), true, true, true, true, true}, //
		{"tcp4", "169.254.169.254:9000", false, false, false, false, false},                                     // a cloud's metadata
		{"tcp4", net.JoinHostPort(n.state.gateway().String(), "9000"), false, false, false, false, false},       // the gateway
	} {
		check("free", c.network, c.to, c.free)
		check("shut", c.network, c.to, c.shut)
		check("some", c.network, c.to, c.some)
		check("link", c.network, c.to, c.all)
		if c.to != hostIP+":8080" {
			check("port", c.network, c.to, c.hosted)
		}
	}
	if _, err := dial(s.remote, "tcp4", hostIP+":8080"); err != nil {
		t.Errorf("the way in: %v", err)
	}

	// An agent that is down leaves the rules, and the next one takes them up.
	must(t, n.Close())
	check("shut", "tcp4", remoteIP+":9000", false)
	check("some", "tcp6", "[fd99::2]:9000", true)
	n = s.open(t, o)
	_, err = n.Set(t.Context(), c)
	must(t, err)
	check("shut", "udp4", remoteIP+":9000", false)

	// A policy changes under an instance that runs.
	c.Attachments[1].Egress, c.Attachments[2].Egress = allow(most), allow()
	_, err = n.Set(t.Context(), c)
	must(t, err)
	check("shut", "tcp4", remoteIP+":9000", true)
	check("some", "tcp4", remoteIP+":9000", false)
	check("some", "tcp6", "[fd99::2]:9000", false)

	// Nobody speaks for another: an address that is no instance's goes nowhere.
	must(t, kernel.In(in["shut"], func() error {
		l, err := netlink.LinkByName("eth0")
		a, _ := netlink.ParseAddr("10.64.0.7/32")
		return errors.Join(err, netlink.AddrAdd(l, a))
	}))
	if refused, err := reachFrom(in["shut"], "10.64.0.7", remoteIP+":9000"); !refused {
		t.Errorf("from an address that nobody has: %v", err)
	}

	// A policy that makes no sense costs its own instance the network, and nobody else's.
	c.Attachments[1].Egress = allow(spec.EgressRule{})
	as, err = n.Set(t.Context(), c)
	if _, ok := as["shut"]; ok || err == nil || len(as) != 4 {
		t.Errorf("%v, %v", as, err)
	}
	check("shut", "tcp4", remoteIP+":9000", false)

	// Ports of the host that the operator opened are outside, too.
	must(t, n.Close())
	o.OpenHost, c.Attachments[1].Egress = true, allow()
	serve(t, s.host, ":9005")
	n = s.open(t, o)
	_, err = n.Set(t.Context(), c)
	must(t, err)
	check("free", "tcp4", hostIP+":9005", true)
	check("shut", "tcp4", hostIP+":9005", false)
	check("link", "tcp4", hostIP+":9005", true)

	// With the last policy its rules go.
	for i := range c.Attachments {
		c.Attachments[i].Egress = nil
	}
	_, err = n.Set(t.Context(), c)
	must(t, err)
	check("shut", "tcp4", remoteIP+":9001", true)
	check("shut", "tcp4", hostIP+":8080", true)
	c.Attachments[1].Egress = allow()
	_, err = n.Set(t.Context(), c)
	must(t, err)
	check("shut", "tcp4", remoteIP+":9001", false)
}

func reachFrom(ns *os.File, source, to string) (refused bool, err error) {
	err = kernel.In(ns, func() error {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: 5 * time.Second}).Dial("tcp4", to)
		if err == nil {
			c.Close()
		}
		return err
	})
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EACCES), err
}

// While rules are replaced again and again, not one connection of an instance that may reach nothing gets through.
func TestEgressHasNoWindow(t *testing.T) {
	s := newSite(t)
	serve(t, s.remote, ":9000")
	n := s.open(t, s.options("w1"))
	c := Config{Overlay: s.overlay(), Attachments: []Want{{ID: "other"}, {ID: "shut", Egress: allow()}}}
	as, err := n.Set(t.Context(), c)
	must(t, err)
	shut := open(t, as["shut"].NetNS)
	stop, tried, got := make(chan struct{}), 0, []string{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if refused, err := reach(shut, "tcp4", remoteIP+":9000"); !refused {
				got = append(got, fmt.Sprint(err))
			}
			tried++
		}
	}()
	for i := range 200 {
		c.Attachments[0].Egress = allow(network(fmt.Sprintf("203.0.113.%d/32", i)))
		_, err := n.Set(t.Context(), c)
		must(t, err)
	}
	close(stop)
	<-done
	if len(got) > 0 || tried < 20 {
		t.Errorf("%d of %d came through: %v", len(got), tried, slices.Compact(got))
	}
}
