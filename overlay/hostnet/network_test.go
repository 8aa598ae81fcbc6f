//go:build linux

package hostnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/overlay/internal/kernel"
)

func TestInstancesReachEachOther(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	as, err := n.Set(t.Context(), wants("a", "b"))
	must(t, err)
	a, b := as["a"], as["b"]
	if a.MTU != 1400 || len(a.DNS) != 1 || a.DNS[0].String() != "198.51.100.53" || len(a.Search) != 1 || a.Addresses[0].Bits() != 24 {
		t.Errorf("%+v", a)
	}
	nsA, nsB := open(t, a.NetNS), open(t, b.NetNS)
	serve(t, nsB, ":80") // a low port, which needs no privilege there
	for _, network := range []string{"tcp4", "udp4"} {
		from, err := dial(nsA, network, b.Addresses[0].Addr().String()+":80")
		if err != nil || from != a.Addresses[0].Addr() {
			t.Errorf("%s: seen as %s, %v", network, from, err)
		}
	}
	must(t, ping(nsA, b.Addresses[0].Addr()))
	must(t, ping(nsA, netip.MustParseAddr(remoteIP)))

	// The way out is masqueraded: the other machine knows no route back to the instances.
	serve(t, s.remote, ":9000")
	if from, err := dial(nsA, "tcp4", remoteIP+":9000"); err != nil || from.String() != hostIP {
		t.Errorf("seen outside as %s, %v", from, err)
	}
	// As the kernel tells of one device by netlink.
	stats, err := n.Stats()
	must(t, err)
	for id := range as {
		l, err := n.nl.LinkByName(n.link(id))
		must(t, err)
		want := l.Attrs().Statistics
		if st := stats[id]; st.RxBytes <= 0 || st.TxBytes <= 0 || uint64(st.RxBytes) > want.TxBytes || uint64(st.TxBytes) > want.RxBytes ||
			st.RxPackets == 0 || st.RxPackets > want.TxPackets || st.TxPackets == 0 || st.TxPackets > want.RxPackets {
			t.Errorf("%s: %+v, then by netlink %+v", id, st, want)
		}
	}
	serve(t, nsA, ":81")
	if _, err := dial(nsB, "tcp4", a.Addresses[0].Addr().String()+":81"); err != nil {
		t.Error(err)
	}
	later, err := n.Stats()
	must(t, err)
	was, is := stats["a"], later["a"]
	if is.RxPackets <= was.RxPackets || is.TxPackets <= was.TxPackets || is.RxBytes <= was.RxBytes || len(later) != 2 {
		t.Errorf("%+v, and after a connection %+v; %d attachments", was, is, len(later))
	}
}

// ping sends one echo request through an ICMP socket, which needs no privilege in an instance.
func ping(ns *os.File, to netip.Addr) error {
	return kernel.In(ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
		if err := unix.Sendto(fd, []byte{8, 0, 0, 0, 0, 0, 0, 1}, 0, &unix.SockaddrInet4{Addr: to.As4()}); err != nil {
			return err
		}
		var b [64]byte
		n, _, err := testenv.Recvfrom(fd, b[:])
		if err != nil || n < 1 || b[0] != 0 {
			return fmt.Errorf("ping %s: %v, %v", to, b[:max(n, 0)], err)
		}
		return nil
	})
}

func TestHostPorts(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	cfg := wants("web", "client")
	cfg.Attachments[0].HostPorts = []HostPort{
		{HostPort: 8080, Port: 80},
		{HostPort: 8080, Port: 80, Proto: UDP},
		{HostIP: netip.MustParseAddr(hostIP), HostPort: 8081, Port: 80},
	}
	as, err := n.Set(t.Context(), cfg)
	must(t, err)
	web, client := open(t, as["web"].NetNS), open(t, as["client"].NetNS)
	serve(t, web, ":80")
	gateway := n.state.gateway()
	for _, c := range []struct {
		name, network string
		from          *os.File
		to            string
		seen          string
	}{
		{"from another machine", "tcp4", s.remote, hostIP + ":8080", remoteIP},
		{"from another machine by UDP", "udp4", s.remote, hostIP + ":8080", remoteIP},
		{"from another machine to one address", "tcp4", s.remote, hostIP + ":8081", remoteIP},
		{"from the host", "tcp4", s.host, hostIP + ":8080", hostIP},
		{"from the host by UDP", "udp4", s.host, hostIP + ":8080", hostIP},
		{"from the host's loopback", "tcp4", s.host, "127.0.0.1:8080", gateway.String()},
		{"from the host's loopback by UDP", "udp4", s.host, "127.0.0.1:8080", gateway.String()},
		{"from an instance", "tcp4", client, hostIP + ":8080", gateway.String()},
		{"from the instance itself", "tcp4", web, hostIP + ":8080", gateway.String()},
	} {
		if from, err := dial(c.from, c.network, c.to); err != nil || from.String() != c.seen {
			t.Errorf("%s: seen as %s, not %s; %v", c.name, from, c.seen, err)
		}
	}
	if _, err := dial(s.host, "tcp4", "127.0.0.1:8081"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port of one address answers on another: %v", err)
	}
	// route_localnet must not open the host's loopback to instances.
	serve(t, s.host, "127.0.0.1:7000")
	must(t, kernel.In(client, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(lo)
	}))
	must(t, kernel.In(client, func() error {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		_ = kernel.Sysctl("ipv4/conf/eth0/route_localnet", "1")
		_, table, _ := net.ParseCIDR("127.0.0.0/8")
		return netlink.RouteReplace(&netlink.Route{LinkIndex: eth.Attrs().Index, Dst: table, Gw: gateway.AsSlice()})
	}))
	err = kernel.In(client, func() error {
		c, err := net.DialTimeout("tcp4", "127.0.0.1:7000", 300*time.Millisecond)
		if err == nil {
			c.Close()
		}
		return err
	})
	if err == nil {
		t.Error("an instance reaches a loopback service of the host")
	}

	// The ports go with the configuration.
	cfg.Attachments[0].HostPorts = cfg.Attachments[0].HostPorts[2:]
	_, err = n.Set(t.Context(), cfg)
	must(t, err)
	if _, err := dial(s.remote, "tcp4", hostIP+":8080"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port that was taken away: %v", err)
	}
	if _, err := dial(s.remote, "tcp4", hostIP+":8081"); err != nil {
		t.Errorf("a port that stayed: %v", err)
	}
}

// TestPortsOfOneAddress: a port of the loopback address is the host's alone, and one of another address is a port of its own. A
// neighbour that routes the loopback address to the host gets nowhere, though a port is translated before the kernel sees a martian.
func TestPortsOfOneAddress(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	cfg := wants("web", "other")
	loopback := netip.MustParseAddr("127.0.0.1")
	cfg.Attachments[0].HostPorts = []HostPort{{HostIP: loopback, HostPort: 8080, Port: 80},
		{HostIP: loopback, HostPort: 8080, Port: 80, Proto: UDP}}
	cfg.Attachments[1].HostPorts = []HostPort{{HostIP: netip.MustParseAddr(hostIP), HostPort: 8080, Port: 81}}
	have, err := n.Set(t.Context(), cfg)
	must(t, err)
	serve(t, open(t, have["web"].NetNS), ":80")
	for _, network := range []string{"tcp4", "udp4"} {
		if _, err := dial(s.host, network, "127.0.0.1:8080"); err != nil {
			t.Errorf("%s from the host: %v, want an answer", network, err)
		}
	}
	if _, err := dial(s.remote, "tcp4", hostIP+":8080"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("from another machine, at the address of the other instance: the error is %v, want %v of its port 81", err, unix.ECONNREFUSED)
	}
	serve(t, open(t, have["other"].NetNS), ":81")
	if _, err := dial(s.remote, "tcp4", hostIP+":8080"); err != nil {
		t.Errorf("from another machine, at the address of the other instance: %v, want an answer", err)
	}
	must(t, kernel.In(s.remote, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(lo); err != nil {
			return err
		}
		route, err := netlink.RouteGet(net.ParseIP(hostIP))
		if err != nil {
			return err
		}
		link, err := netlink.LinkByIndex(route[0].LinkIndex)
		if err != nil {
			return err
		}
		if err := kernel.Sysctl("ipv4/conf/"+link.Attrs().Name+"/route_localnet", "1"); err != nil {
			return err
		}
		_, loopback, err := net.ParseCIDR("127.0.0.0/8")
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: loopback, Gw: net.ParseIP(hostIP)})
	}))
	err = kernel.In(s.remote, func() error {
		c, err := net.DialTimeout("tcp4", "127.0.0.1:8080", 2*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	})
	if err == nil {
		t.Error("a neighbour reaches a port of the host's loopback address, want no answer")
	}
}

func TestPortConflicts(t *testing.T) {
	s := newSite(t)
	serve(t, s.host, ":5000")
	n := s.open(t, s.options("w1"))
	cfg := wants("a", "b", "c", "d")
	cfg.Attachments[0].HostPorts = []HostPort{{HostPort: 80, Port: 80}}
	cfg.Attachments[1].HostPorts = []HostPort{{HostPort: 80, Port: 8080}}
	cfg.Attachments[2].HostPorts = []HostPort{{HostPort: 5000, Port: 80}}
	cfg.Attachments[3].HostPorts = []HostPort{{HostIP: netip.MustParseAddr("203.0.113.9"), HostPort: 80, Port: 80}}
	as, err := n.Set(t.Context(), cfg)
	if len(as) != 1 || as["a"].NetNS == "" || err == nil {
		t.Fatalf("%v, %v", as, err)
	}
	for id, want := range map[string]string{
		"b": "host port *:80/tcp is taken by a",
		"c": "host port *:5000/tcp is used by a process of the host",
		"d": "203.0.113.9:80/tcp is taken by a",
	} {
		if !strings.Contains(err.Error(), "attach "+id+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if ae, ok := errors.AsType[*AttachError](err); !ok || ae.ID == "" {
		t.Errorf("no AttachError in %v", err)
	}
}

// picture is all there is to see of the network on a host, without what changes by itself.
func (s *site) picture(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	must(t, kernel.In(s.host, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			a := l.Attrs()
			fmt.Fprintln(&b, a.Name, l.Type(), a.MTU, a.MasterIndex != 0, a.Flags&net.FlagUp)
			if l.Type() == "bridge" {
				fmt.Fprintln(&b, a.HardwareAddr)
			}
		}
		return err
	}))
	for _, args := range [][]string{{"ip", "-4", "-o", "addr"}, {"nft", "list", "ruleset"}} {
		var out []byte
		must(t, kernel.In(s.host, func() error {
			var err error
			out, err = exec.Command(args[0], args[1:]...).CombinedOutput()
			return err
		}))
		tables := strings.SplitAfter(string(out), "\n}\n") // in the order in which they were written
		slices.Sort(tables)
		b.WriteString(strings.Join(tables, ""))
	}
	return b.String()
}

func TestSetIsIdempotentAndForgets(t *testing.T) {
	s := newSite(t)
	before := s.picture(t)
	n := s.open(t, s.options("w1"))
	cfg := wants("a", "b", "c")
	cfg.Attachments[1].HostPorts = []HostPort{{HostPort: 80, Port: 80}}
	first, err := n.Set(t.Context(), cfg)
	must(t, err)
	full := s.picture(t)
	again, err := n.Set(t.Context(), cfg)
	must(t, err)
	if fmt.Sprint(again) != fmt.Sprint(first) || s.picture(t) != full {
		t.Error("the second Set changed something")
	}
	less, err := n.Set(t.Context(), wants("b"))
	must(t, err)
	if len(less) != 1 || less["b"].Addresses[0] != first["b"].Addresses[0] {
		t.Errorf("%v", less)
	}
	n.reapers.Wait()
	p := s.picture(t)
	if strings.Count(p, "\n"+n.opts.prefix()+".") != 1 || strings.Contains(p, " : "+first["b"].Addresses[0].Addr().String()) {
		t.Errorf("more than one cable, or a port, is left:\n%s", p)
	}
	if isNS(first["a"].NetNS) {
		t.Error("a namespace is left")
	}
	// An address rests before somebody else gets it.
	more, err := n.Set(t.Context(), wants("b", "d"))
	must(t, err)
	for _, a := range first {
		if a.Addresses[0] == more["d"].Addresses[0] {
			t.Errorf("%s was given to the next one at once", a.Addresses[0])
		}
	}
	must(t, n.CleanUp(t.Context()))
	if after := s.picture(t); after != before {
		t.Errorf("left over:\n%s", after)
	}
	s.nothingLeft(t, n.opts)
	// It can begin anew.
	_, err = n.Set(t.Context(), wants("a"))
	must(t, err)
}

func (s *site) nothingLeft(t *testing.T, o Options) {
	t.Helper()
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); bytes.Contains(mounts, []byte(o.RunDir)) {
		t.Error("namespaces are still mounted")
	}
	for _, dir := range []string{o.RunDir, o.StateDir} {
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Errorf("files are left: %v", left)
		}
	}
}

func TestRestartKeepsAddressesAndTraffic(t *testing.T) {
	s := newSite(t)
	o := s.options("w1")
	cfg := wants("a", "b")
	cfg.Attachments[0].HostPorts = []HostPort{{HostPort: 80, Port: 80}}
	n := s.open(t, o)
	first, err := n.Set(t.Context(), cfg)
	must(t, err)
	n.Close()
	if _, err := n.Set(t.Context(), cfg); err == nil {
		t.Error("Set after Close")
	}
	before := s.picture(t)
	serve(t, open(t, first["a"].NetNS), ":80")
	if _, err := dial(s.remote, "tcp4", hostIP+":80"); err != nil {
		t.Errorf("without an agent: %v", err)
	}
	other := filepath.Join(o.RunDir, "oci", "in-use") // a driver keeps something beside the namespaces
	must(t, os.MkdirAll(other, 0o700))
	n = s.open(t, o)
	again, err := n.Set(t.Context(), cfg)
	must(t, err)
	must(t, os.RemoveAll(filepath.Dir(other)))
	if fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("%v became %v", first, again)
	}
	if after := s.picture(t); after != before {
		t.Errorf("a restart changed\n%s\ninto\n%s", before, after)
	}
	if _, err := dial(s.remote, "tcp4", hostIP+":80"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

// TestRepair lets a crash happen at each step of an attachment.
func TestRepair(t *testing.T) {
	s := newSite(t)
	o := s.options("w1")
	n := s.open(t, o)
	as, err := n.Set(t.Context(), wants("a", "b"))
	must(t, err)
	link, path := n.link("a"), as["a"].NetNS
	for name, damage := range map[string]func() error{
		"no cable": func() error {
			return kernel.In(s.host, func() error {
				l, err := netlink.LinkByName(link)
				if err != nil {
					return err
				}
				return netlink.LinkDel(l)
			})
		},
		"no namespace":    func() error { return removeNS(path) },
		"name of nothing": func() error { return errors.Join(removeNS(path), os.WriteFile(path, nil, 0o444)) },
		"no address": func() error {
			return kernel.In(open(t, path), func() error {
				eth, err := netlink.LinkByName("eth0")
				if err != nil {
					return err
				}
				return netlink.LinkSetDown(eth)
			})
		},
		"a stranger": func() error { return newNS(filepath.Join(o.RunDir, "ghost"), func(*os.File) error { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			must(t, damage())
			n, err := New(o)
			must(t, err)
			defer n.Close()
			again, err := n.Set(t.Context(), wants("a", "b"))
			must(t, err)
			if fmt.Sprint(again) != fmt.Sprint(as) {
				t.Errorf("%v became %v", as, again)
			}
			must(t, ping(open(t, again["a"].NetNS), again["b"].Addresses[0].Addr()))
			if isNS(filepath.Join(o.RunDir, "ghost")) {
				t.Error("what nobody wants is still there")
			}
		})
	}
}

func TestCrashThenCleanUp(t *testing.T) {
	s := newSite(t)
	before := s.picture(t)
	o := s.options("w1")
	n := s.open(t, o)
	cfg := wants("a", "b")
	cfg.Attachments[0].HostPorts = []HostPort{{HostPort: 80, Port: 80}}
	_, err := n.Set(t.Context(), cfg)
	must(t, err)
	n.Close()
	must(t, os.Remove(stateFile(&o))) // worse than a crash
	c := s.open(t, o)
	must(t, c.CleanUp(t.Context()))
	must(t, c.CleanUp(t.Context()))
	if after := s.picture(t); after != before {
		t.Errorf("left over:\n%s", after)
	}
	s.nothingLeft(t, o)
}

// TestHeldNamespace removes an instance of which a process is still there.
func TestHeldNamespace(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	as, err := n.Set(t.Context(), wants("a"))
	must(t, err)
	open(t, as["a"].NetNS) // as good as a process
	_, err = n.Set(t.Context(), Config{})
	must(t, err)
	n.reapers.Wait()
	if p := s.picture(t); strings.Contains(strings.ReplaceAll(p, n.opts.prefix()+".*", ""), n.opts.prefix()+".") { // a rule names them all
		t.Errorf("the cable is still there:\n%s", p)
	}
}

func TestWorkersOnOneHost(t *testing.T) {
	s := newSite(t)
	n1, n2 := s.open(t, s.options("w1")), s.open(t, s.options("w2"))
	a1, err := n1.Set(t.Context(), wants("a"))
	must(t, err)
	a2, err := n2.Set(t.Context(), wants("a"))
	must(t, err)
	if a1["a"].Addresses[0].Overlaps(a2["a"].Addresses[0]) {
		t.Errorf("%v and %v overlap", a1, a2)
	}
	must(t, ping(open(t, a1["a"].NetNS), a2["a"].Addresses[0].Addr()))
	must(t, n1.CleanUp(t.Context()))
	must(t, ping(open(t, a2["a"].NetNS), netip.MustParseAddr(remoteIP)))
	if p := s.picture(t); strings.Contains(p, n1.opts.prefix()) || !strings.Contains(p, "skerry_w2") {
		t.Errorf("the wrong one is gone:\n%s", p)
	}
}

func TestSubnetOverlap(t *testing.T) {
	s := newSite(t)
	o := s.options("w1")
	o.Subnet = netip.MustParsePrefix("198.51.100.0/25")
	n := s.open(t, o)
	if _, err := n.Set(t.Context(), wants("a")); err == nil || !strings.Contains(err.Error(), "overlaps the host's route to 198.51.100.0/24") {
		t.Errorf("got %v", err)
	}
	o.Name, o.Subnet = "w2", netip.MustParsePrefix("10.99.0.0/29")
	n = s.open(t, o)
	as, err := n.Set(t.Context(), wants("a", "b", "c", "d", "e", "f"))
	if len(as) != 5 || err == nil || !strings.Contains(err.Error(), "larger subnet") {
		t.Errorf("%v, %v", as, err)
	}
	n.Close()
	// Another subnet means other addresses, also for what is up.
	o.Subnet = netip.MustParsePrefix("10.98.0.0/24")
	n = s.open(t, o)
	as, err = n.Set(t.Context(), wants("a", "b"))
	must(t, err)
	if got := as["a"].Addresses[0].String(); got != "10.98.0.2/24" {
		t.Errorf("got %s", got)
	}
	must(t, ping(open(t, as["a"].NetNS), as["b"].Addresses[0].Addr()))
}

func TestOverlay(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	as, err := n.Set(t.Context(), wants("old"))
	must(t, err)
	old := as["old"].Addresses[0]
	cfg := wants("old", "a", "b")
	cfg.Overlay = &Overlay{Blocks: []netip.Prefix{netip.MustParsePrefix("10.64.7.64/26")}, V6: netip.MustParsePrefix("fd12:3456:789a:7::/64"), Overhead: 96, Resolver: true}
	as, err = n.Set(t.Context(), cfg)
	must(t, err)
	if as["old"].Addresses[0] != old {
		t.Errorf("an attachment that was there moved from %s to %s", old, as["old"].Addresses[0])
	}
	a, b := as["a"], as["b"]
	if got := fmt.Sprint(a.Addresses, a.MTU, a.DNS); got != fmt.Sprintf("[10.64.7.64/32 fd12:3456:789a:7::a40:740/128] %d [%s]", n.mtu-96, n.state.gateway()) {
		t.Error(got)
	}
	must(t, ping(open(t, a.NetNS), b.Addresses[0].Addr()))
	must(t, ping(open(t, a.NetNS), old.Addr()))
	must(t, ping(open(t, a.NetNS), netip.MustParseAddr(remoteIP)))
	serve(t, open(t, b.NetNS), ":80")
	for _, c := range []struct {
		from *os.File
		to   string
	}{{s.host, "10.64.7.65:80"}, {open(t, a.NetNS), "10.64.7.65:80"}, {s.host, "[fd12:3456:789a:7::a40:741]:80"}} {
		if _, err := dial(c.from, "tcp", c.to); err != nil {
			t.Errorf("%s: %v", c.to, err)
		}
	}
	if nets := fmt.Sprint(n.Networks()); strings.Contains(nets, "10.64.") || strings.Contains(nets, "10.31.") || !strings.Contains(nets, "198.51.100.0/24") {
		t.Errorf("the host's networks: %s", nets)
	}
	n.Close()
	// The next process finds all of it, and gives a new block when one more is needed.
	n = s.open(t, s.options("w1"))
	cfg.Overlay.Blocks = append(cfg.Overlay.Blocks, netip.MustParsePrefix("10.64.9.0/26"))
	cfg.Attachments = append(cfg.Attachments, Want{ID: "c", In: 1 << 20, Out: 1 << 20})
	again, err := n.Set(t.Context(), cfg)
	must(t, err)
	if again["a"].Addresses[0] != a.Addresses[0] || again["c"].Device != n.opts.prefix()+".b0002" {
		t.Errorf("%v, then %v", as, again)
	}
	cfg.Overlay.Blocks = append(cfg.Overlay.Blocks, netip.MustParsePrefix("198.51.100.64/26"))
	_, err = n.Set(t.Context(), cfg)
	if o, is := errors.AsType[*Overlap](err); !is || o.Block != cfg.Overlay.Blocks[len(cfg.Overlay.Blocks)-1] || !o.Route.Overlaps(o.Block) {
		t.Errorf("a block of the host's own network: %v", err)
	}
	must(t, n.CleanUp(t.Context()))
}

func TestUnprivileged(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	for _, err := range []error{unix.EPERM, fmt.Errorf("x: %w", unix.EACCES), unix.EOPNOTSUPP} {
		if u, ok := errors.AsType[*Unsupported](unsupported(err)); !ok || u.Cure == "" {
			t.Errorf("%v is %v", err, unsupported(err))
		}
	}
	// For real: a thread without capabilities.
	err := thread.Do(func() error {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			return err
		}
		_, err := n.Set(t.Context(), wants("a"))
		return err
	})
	if _, ok := errors.AsType[*Unsupported](err); !ok {
		t.Errorf("without capabilities: %v", err)
	}
}

func BenchmarkAttach(b *testing.B) {
	s := newSite(b)
	n := s.open(b, s.options("w1"))
	_, err := n.Set(b.Context(), Config{})
	must(b, err)
	for b.Loop() {
		_, err := n.Set(b.Context(), wants("a"))
		must(b, err)
		b.StopTimer()
		_, err = n.Set(b.Context(), Config{})
		must(b, err)
		b.StartTimer()
	}
}
