//go:build linux

package hostnet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// What listens on the host is not for instances, at whatever address, nor is what a cloud tells its machines; the outside is, and
// names are.
func TestHostIsClosedToInstances(t *testing.T) {
	s := newSite(t)
	const metadata = "169.254.169.254"
	must(t, kernel.In(s.remote, func() error {
		l, err := netlink.LinkByName("wan")
		if err != nil {
			return err
		}
		a, _ := netlink.ParseAddr(metadata + "/32")
		return netlink.AddrAdd(l, a)
	}))
	serve(t, s.remote, ":9000")
	serve(t, s.host, ":9000")
	serve(t, s.host, ":53")
	must(t, kernel.In(s.host, func() error {
		l, err := (&net.ListenConfig{Control: OpenToInstances}).Listen(t.Context(), "tcp", ":8443")
		if err != nil {
			return err
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, c.RemoteAddr().String())
				c.Close()
			}
		}()
		t.Cleanup(func() { l.Close(); <-done })
		return nil
	}))
	o := s.options("w1")
	n := s.open(t, o)
	as, err := n.Set(t.Context(), wants("a"))
	must(t, err)
	a, gateway := open(t, as["a"].NetNS), n.state.gateway().String()

	serve(t, a, ":80")
	if _, err := dial(s.host, "tcp4", as["a"].Addresses[0].Addr().String()+":80"); err != nil {
		t.Errorf("the host's own probes are cut off: %v", err)
	}
	must(t, ping(a, netip.MustParseAddr(gateway)))
	s.elsewhere(t, "168.63.129.16", "100.100.100.200", "192.0.0.192")
	for name, c := range map[string]struct {
		network, to string
		closed      bool
	}{
		"the gateway":                   {"tcp4", gateway + ":9000", true},
		"the gateway by UDP":            {"udp4", gateway + ":9000", true},
		"the host's address":            {"tcp4", hostIP + ":9000", true},
		"a cloud's metadata":            {"tcp4", metadata + ":9000", true},
		"a cloud's metadata by UDP":     {"udp4", metadata + ":9000", true},
		"that of Azure":                 {"tcp4", "168.63.129.16:9000", true},
		"that of Alibaba":               {"tcp4", "100.100.100.200:9000", true},
		"that of Oracle":                {"tcp4", "192.0.0.192:9000", true},
		"metadata by a mapped address":  {"tcp", "[::ffff:" + metadata + "]:9000", true},
		"the gateway's names":           {"udp4", gateway + ":53", false},
		"the gateway's names by TCP":    {"tcp4", gateway + ":53", false},
		"names at the host's address":   {"udp4", hostIP + ":53", true},
		"another machine":               {"tcp4", remoteIP + ":9000", false},
		"an ingress":                    {"tcp4", hostIP + ":8443", false},
		"an ingress at another address": {"tcp4", gateway + ":8443", false},
	} {
		_, err := dial(a, c.network, c.to)
		// It is refused at once, not left to time out.
		if refused := errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EACCES); err == nil == c.closed || c.closed && !refused {
			t.Errorf("%s: %v", name, err)
		}
	}

	must(t, n.Close())
	o.OpenHost, o.Closed = true, []netip.Prefix{netip.MustParsePrefix(remoteIP + "/31")}
	n = s.open(t, o)
	_, err = n.Set(context.Background(), wants("a"))
	must(t, err)
	if _, err := dial(a, "tcp4", remoteIP+":9000"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a network that the operator closed: %v", err)
	}
	serve(t, s.host, ":9001") // the way to others is closed, not theirs to here
	if _, err := dial(s.remote, "tcp4", hostIP+":9001"); err != nil {
		t.Error(err)
	}
	must(t, n.Close())
	o.Closed = nil
	n = s.open(t, o)
	_, err = n.Set(context.Background(), wants("a"))
	must(t, err)
	for _, to := range []string{gateway + ":9000", metadata + ":9000"} {
		if _, err := dial(a, "tcp4", to); err != nil {
			t.Errorf("%s, opened by the operator: %v", to, err)
		}
	}
}

// elsewhere gives the remote machine further addresses, to which the host has its default route.
func (s *site) elsewhere(t *testing.T, addresses ...string) {
	t.Helper()
	must(t, kernel.In(s.remote, func() error {
		l, err := netlink.LinkByName("wan")
		for _, text := range addresses {
			if err != nil {
				return err
			}
			a := netip.MustParseAddr(text)
			err = netlink.AddrAdd(l, &netlink.Addr{IPNet: kernel.IPNet(netip.PrefixFrom(a, a.BitLen())), Flags: unix.IFA_F_NODAD})
		}
		return err
	}))
}

// What a cloud tells its machines by IPv6 is closed as well. Of IPv6 an instance has a route to unique local addresses alone, which both are.
func TestMetadataByIPv6(t *testing.T) {
	s := newSite(t)
	f := s.overlay()
	s.withV6(t, f.V6)
	must(t, kernel.In(s.host, func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: kernel.IPNet(netip.MustParsePrefix("::/0")), Gw: net.ParseIP("fd99::2")})
	}))
	closed := []string{"fd00:ec2::254", "fd20:ce::254"}
	s.elsewhere(t, append(closed, "fd20:ce::253")...)
	serve(t, s.remote, ":9000")
	n := s.open(t, s.options("w1"))
	as, err := n.Set(t.Context(), Config{Overlay: f, Attachments: []Want{{ID: "free"}, {ID: "all", Egress: allow(network("::/0"))}}})
	must(t, err)
	for _, id := range []string{"free", "all"} {
		in := open(t, as[id].NetNS)
		if refused, err := reach(in, "tcp6", "[fd20:ce::253]:9000"); refused || err != nil {
			t.Errorf("%s to what is open: refused %v, %v", id, refused, err)
		}
		for _, to := range closed {
			if refused, err := reach(in, "tcp6", "["+to+"]:9000"); !refused {
				t.Errorf("%s to %s: %v", id, to, err)
			}
		}
	}
}
