//go:build linux

package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// nft runs a command of nft on the host.
func (s *site) nft(t *testing.T, args ...string) string {
	t.Helper()
	var out []byte
	must(t, kernel.In(s.host, func() error {
		var err error
		if out, err = exec.Command("nft", args...).CombinedOutput(); err != nil {
			err = fmt.Errorf("nft %v: %w: %s", args, err, out)
		}
		return err
	}))
	return string(out)
}

// rules are the handles of all rules of the worker's table; the kernel gives a new one to each rule that is written.
func (s *site) rules(t *testing.T, n *Network) string {
	return fmt.Sprint(regexp.MustCompile(`(?m)^\t\t.*# handle \d+$`).FindAllString(s.nft(t, "-a", "list", "table", "ip", n.opts.table()), -1))
}

// withPorts has each instance serve at port 80 behind host ports.
func withPorts(of map[string][]uint16) Config {
	var ids []string
	for id := range of {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	c := wants(ids...)
	for i, id := range ids {
		for _, p := range of[id] {
			c.Attachments[i].HostPorts = append(c.Attachments[i].HostPorts, HostPort{HostPort: p, Port: 80})
		}
	}
	return c
}

func (s *site) answers(t *testing.T, port int, want bool) {
	t.Helper()
	_, err := dial(s.remote, "tcp4", fmt.Sprintf("%s:%d", hostIP, port))
	if want && err != nil || !want && !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("host port %d: %v; it should answer: %v", port, err, want)
	}
}

// TestPortsChangeOneByOne gives and takes host ports and looks that no rule is written again for it.
func TestPortsChangeOneByOne(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	set := func(of map[string][]uint16) {
		t.Helper()
		_, err := n.Set(t.Context(), withPorts(of))
		must(t, err)
	}
	set(map[string][]uint16{"a": {8000}, "b": nil})
	serve(t, open(t, n.path("a")), ":80")
	before := s.rules(t, n)
	if !strings.Contains(before, "dnat") {
		t.Fatalf("no rule translates: %s", before)
	}
	set(map[string][]uint16{"a": {8000}, "b": {8001, 8002}})
	serve(t, open(t, n.path("b")), ":80")
	for port, want := range map[int]bool{8000: true, 8001: true, 8002: true, 8003: false} {
		s.answers(t, port, want)
	}
	set(map[string][]uint16{"a": {8002}, "b": {8001, 8003}}) // one moves, one goes, one comes
	for port, want := range map[int]bool{8000: false, 8001: true, 8002: true, 8003: true} {
		s.answers(t, port, want)
	}
	if to := n.state.Addrs["a"].String() + " . 80"; !strings.Contains(s.nft(t, "list", "table", "ip", n.opts.table()), "8002 : "+to) {
		t.Errorf("port 8002 does not lead to a, %s", to)
	}
	set(map[string][]uint16{"b": {8001}})
	for port, want := range map[int]bool{8001: true, 8002: false, 8003: false} {
		s.answers(t, port, want)
	}
	if after := s.rules(t, n); after != before {
		t.Errorf("rules were written again:\n%s\nbecame\n%s", before, after)
	}
}

// TestPortsAfterStrangers has somebody else take away the tables, or parts of them, and expects the next change to mend that.
func TestPortsAfterStrangers(t *testing.T) {
	for name, damage := range map[string]func(n *Network) []string{
		"all tables":     func(*Network) []string { return []string{"flush", "ruleset"} },
		"the host ports": func(n *Network) []string { return []string{"flush", "map", "ip", n.opts.table(), "ports"} },
		"the rules":      func(n *Network) []string { return []string{"flush", "table", "ip", n.opts.table()} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			n := s.open(t, s.options("w1"))
			_, err := n.Set(t.Context(), withPorts(map[string][]uint16{"a": {8000, 8001}}))
			must(t, err)
			serve(t, open(t, n.path("a")), ":80")
			s.nft(t, damage(n)...)
			s.answers(t, 8000, false)
			_, err = n.Set(t.Context(), withPorts(map[string][]uint16{"a": {8000, 8002}}))
			must(t, err)
			for port, want := range map[int]bool{8000: true, 8001: false, 8002: true} {
				s.answers(t, port, want)
			}
		})
	}
}

// TestGuardAfterStrangers has somebody else take away, or open, what closes the host to instances.
func TestGuardAfterStrangers(t *testing.T) {
	for _, damage := range []string{"delete", "flush"} {
		t.Run(damage, func(t *testing.T) {
			s := newSite(t)
			n := s.open(t, s.options("w1"))
			_, err := n.Set(t.Context(), withPorts(map[string][]uint16{"a": {8000}}))
			must(t, err)
			serve(t, s.host, ":70")
			inside := open(t, n.path("a"))
			reaches := func() bool {
				_, err := dial(inside, "tcp4", hostIP+":70")
				return err == nil
			}
			if reaches() {
				t.Fatal("the host is open")
			}
			s.nft(t, damage, "table", "inet", n.opts.table())
			if !reaches() {
				t.Fatal("the host is closed without the table")
			}
			_, err = n.Set(t.Context(), withPorts(map[string][]uint16{"a": {8000, 8001}}))
			must(t, err)
			if reaches() {
				t.Error("the host stays open")
			}
		})
	}
}

// TestPortWithoutAddress: an instance for which no address is left harms only itself by its host ports.
func TestPortWithoutAddress(t *testing.T) {
	s := newSite(t)
	o := s.options("w1")
	o.Subnet = netip.MustParsePrefix("10.9.0.0/29")
	n := s.open(t, o)
	of := map[string][]uint16{}
	for i := range 6 {
		of[fmt.Sprint("i", i)] = []uint16{8000 + uint16(i)}
	}
	made, err := n.Set(t.Context(), withPorts(of))
	if failed := (&AttachError{}); !errors.As(err, &failed) || failed.ID != "i5" || len(made) != 5 {
		t.Fatalf("%d of 5 attachments are made: %v", len(made), err)
	}
	serve(t, open(t, n.path("i0")), ":80")
	s.answers(t, 8000, true)
}

// older writes the table as agents did before there was a map, with two rules for each host port, and takes away what those do not know.
func older(t *testing.T, n *Network, ms []mapping) {
	t.Helper()
	nft, err := n.nftables()
	must(t, err)
	w, err := newWriter(nft, &nftables.Table{Family: nftables.TableFamilyIPv4, Name: n.opts.table()})
	must(t, err)
	nat := nftables.ChainTypeNAT
	for i, ch := range []*nftables.Chain{
		{Name: "raw", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw},
		{Name: "prerouting", Type: nat, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest},
		{Name: "output", Type: nat, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest},
		{Name: "postrouting", Type: nat, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource},
	} {
		w.chain(ch)
		for _, m := range ms {
			if i != 1 && i != 2 {
				continue
			}
			w.rule(ch, []expr.Any{
				&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
			}, protocol(unix.IPPROTO_TCP), toPort(m.HostPort.HostPort), []expr.Any{
				&expr.Immediate{Register: 1, Data: m.to.AsSlice()},
				&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(m.Port)},
				&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
			})
		}
	}
	w.end()
	must(t, nft.Flush())
}

// TestPortsOfOlderAgents changes between agents of now and those that wrote rules for each host port.
func TestPortsOfOlderAgents(t *testing.T) {
	s := newSite(t)
	o := s.options("w1")
	conf := withPorts(map[string][]uint16{"a": {8000}})
	n := s.open(t, o)
	_, err := n.Set(t.Context(), conf)
	must(t, err)
	serve(t, open(t, n.path("a")), ":80")
	written := s.nft(t, "list", "table", "ip", n.opts.table())
	saved := filepath.Join(t.TempDir(), "ruleset") // as people keep their rules
	must(t, os.WriteFile(saved, []byte(s.nft(t, "list", "ruleset")), 0o600))
	s.nft(t, "flush", "ruleset")
	s.nft(t, "-f", saved)
	s.answers(t, 8000, true)
	to := n.state.Addrs["a"]
	must(t, n.Close())

	n = s.open(t, o)
	older(t, n, []mapping{{HostPort{HostPort: 8000, Port: 80}, "a", to}, {HostPort{HostPort: 8001, Port: 80}, "a", to}})
	for port, want := range map[int]bool{8000: true, 8001: true} {
		s.answers(t, port, want)
	}
	if table := s.nft(t, "list", "table", "ip", n.opts.table()); strings.Contains(table, "map ports") {
		t.Errorf("the older agent left the map, whose ports it does not keep up:\n%s", table)
	}
	_, err = n.Set(t.Context(), conf)
	must(t, err)
	for port, want := range map[int]bool{8000: true, 8001: false} {
		s.answers(t, port, want)
	}
	if table := s.nft(t, "list", "table", "ip", n.opts.table()); table != written {
		t.Errorf("the table of an older agent became\n%s\nnot\n%s", table, written)
	}
}

func TestDifference(t *testing.T) {
	at := func(port uint16, id string) mapping {
		return mapping{HostPort{HostPort: port, Port: 80}, id, netip.MustParseAddr("10.0.0.1")}
	}
	gone, fresh := difference([]mapping{at(1, "a"), at(2, "a"), at(3, "b")}, []mapping{at(0, "c"), at(1, "a"), at(3, "c")})
	if !slices.Equal(gone, []mapping{at(2, "a"), at(3, "b")}) || !slices.Equal(fresh, []mapping{at(0, "c"), at(3, "c")}) {
		t.Errorf("gone %v, fresh %v", gone, fresh)
	}
}

// TestPortOfAnotherMachine: a port of an address that is not the host's, because it moved away or because ip_nonlocal_bind has the host
// take any for its own, catches nothing that goes to the machine that has it.
func TestPortOfAnotherMachine(t *testing.T) {
	s := newSite(t)
	must(t, kernel.In(s.host, func() error { return kernel.Sysctl("ipv4/ip_nonlocal_bind", "1") }))
	n := s.open(t, s.options("w1"))
	cfg := wants("thief", "victim")
	cfg.Attachments[0].HostPorts = []HostPort{{HostIP: netip.MustParseAddr(remoteIP), HostPort: 8080, Port: 80}}
	have, err := n.Set(t.Context(), cfg)
	must(t, err)
	serve(t, s.remote, ":8080") // and nothing listens at port 80 of the instance
	if _, err := dial(s.host, "tcp4", remoteIP+":8080"); err != nil {
		t.Errorf("from the host to the other machine: %v, want its answer", err)
	}
	if _, err := dial(open(t, have["victim"].NetNS), "tcp4", remoteIP+":8080"); err != nil {
		t.Errorf("from another instance to the other machine: %v, want its answer", err)
	}
}
