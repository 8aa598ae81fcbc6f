package hostnet

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAllocate(t *testing.T) {
	s := &state{Subnet: netip.MustParsePrefix("10.1.0.0/29"), Addrs: map[string]netip.Addr{}}
	give := func(id, want string) {
		t.Helper()
		a, err := s.allocate(id)
		if err != nil || a.String() != want {
			t.Errorf("%s gets %s, %v, not %s", id, a, err, want)
		}
	}
	give("a", "10.1.0.2")
	give("b", "10.1.0.3")
	give("a", "10.1.0.2")
	delete(s.Addrs, "a")
	give("c", "10.1.0.4") // not the one that has just become free
	give("d", "10.1.0.5")
	give("e", "10.1.0.6")
	give("f", "10.1.0.2")
	if a, err := s.allocate("g"); err == nil {
		t.Errorf("a sixth address: %s", a)
	}
	if s.broadcast().String() != "10.1.0.7" || s.gateway().String() != "10.1.0.1" || s.number(s.Addrs["d"]) != 5 {
		t.Errorf("%s %s", s.broadcast(), s.gateway())
	}
	wide := &state{Subnet: netip.MustParsePrefix("10.1.0.0/16")}
	if wide.broadcast().String() != "10.1.255.255" || wide.number(netip.MustParseAddr("10.1.1.2")) != 258 {
		t.Error(wide.broadcast())
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"subnet":"10.31.0.0/24","addrs":{"a":"10.31.0.2","b":"10.31.0.2","c":"10.9.9.9","..":"10.31.0.4"},"last":"10.31.0.2"}`))
	f.Add([]byte(`{"subnet":"::/0"}`))
	f.Add([]byte(`{"subnet":"10.0.0.0/29","last":"10.0.0.6","addrs":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := parseState(data)
		if !s.Subnet.IsValid() {
			return
		}
		if s.Addrs == nil {
			s.Addrs = map[string]netip.Addr{}
		}
		seen := map[netip.Addr]string{}
		check := func(id string, a netip.Addr) {
			if !s.Subnet.Contains(a) && s.block(a) < 0 || a == s.gateway() || a == s.broadcast() || seen[a] != "" {
				t.Errorf("%s has %s of %s, as has %q", id, a, s.Subnet, seen[a])
			}
			seen[a] = id
		}
		for id, a := range s.Addrs {
			check(id, a)
		}
		if a, err := s.allocate("a new one"); err == nil {
			check("new", a)
		}
	})
}

func TestBlocks(t *testing.T) {
	prefix := netip.MustParsePrefix
	blocks := []netip.Prefix{prefix("10.64.0.0/29"), prefix("10.70.1.64/29")}
	s := &state{Subnet: prefix("10.1.0.0/29"), Addrs: map[string]netip.Addr{}}
	if err := s.hold(blocks); err != nil {
		t.Fatal(err)
	}
	seen := map[netip.Addr]bool{}
	for i := range 16 {
		a, err := s.allocateOf(fmt.Sprint(i), blocks)
		if err != nil || seen[a] {
			t.Fatalf("%d: %s, %v", i, a, err)
		}
		seen[a] = true
	}
	if a, err := s.allocateOf("more", blocks); err == nil {
		t.Errorf("a seventeenth address: %s", a)
	}
	if got := s.device(netip.MustParseAddr("10.70.1.66")); got != "b0042" {
		t.Errorf("device %s", got)
	}
	// The freed one comes last.
	delete(s.Addrs, "3")
	delete(s.Addrs, "9")
	if a, err := s.allocateOf("x", blocks); err != nil || a.String() != "10.64.0.3" {
		t.Errorf("%s, %v", a, err)
	}
	// A block that is used keeps its place; one that is not gives it to another.
	if err := s.hold([]netip.Prefix{prefix("10.80.0.0/26")}); err != nil || len(s.Blocks) != 3 {
		t.Errorf("%v, %v", s.Blocks, err)
	}
	for id, a := range s.Addrs {
		if blocks[0].Contains(a) {
			delete(s.Addrs, id)
		}
	}
	if err := s.hold([]netip.Prefix{prefix("10.80.0.0/26"), prefix("10.81.0.0/26")}); err != nil || s.Blocks[0] != prefix("10.81.0.0/26") {
		t.Errorf("%v, %v", s.Blocks, err)
	}
	if err := s.hold([]netip.Prefix{prefix("10.70.1.64/28")}); err == nil {
		t.Error("a block that overlaps one that is used is accepted")
	}
	if got := parseState([]byte(`{"subnet":"10.31.0.0/24","blocks":["10.64.0.0/26"],"addrs":{"a":"10.64.0.0","b":"10.65.0.0"}}`)); len(got.Addrs) != 1 || !got.Addrs["a"].IsValid() {
		t.Errorf("%v", got)
	}
}

func TestClaims(t *testing.T) {
	ip := netip.MustParseAddr
	wants := []Want{
		{ID: "a", HostPorts: []HostPort{{HostPort: 80, Port: 1}, {HostPort: 53, Port: 53, Proto: UDP}}},
		{ID: "b", HostPorts: []HostPort{{HostPort: 80, Port: 2, Proto: UDP}, {HostPort: 53, Port: 53}}},
		{ID: "c", HostPorts: []HostPort{{HostIP: ip("192.0.2.1"), HostPort: 80, Port: 3}}},
		{ID: "d", HostPorts: []HostPort{{HostIP: ip("192.0.2.1"), HostPort: 81, Port: 3}}},
		{ID: "e", HostPorts: []HostPort{{HostIP: ip("192.0.2.2"), HostPort: 81, Port: 3}}},
		{ID: "f", HostPorts: []HostPort{{HostIP: ip("0.0.0.0"), HostPort: 81, Port: 3}}},
		{ID: "g", HostPorts: []HostPort{{HostPort: 0, Port: 3}}},
		{ID: "h", HostPorts: []HostPort{{HostPort: 9, Port: 3, Proto: "sctp"}}},
		{ID: "i", HostPorts: []HostPort{{HostIP: ip("::1"), HostPort: 9, Port: 3}}},
	}
	ms, errs := claims(wants, func(string) netip.Addr { return netip.Addr{} })
	var got []string
	for _, m := range ms {
		got = append(got, m.id+" "+m.String())
	}
	want := "a *:80/tcp, a *:53/udp, b *:80/udp, b *:53/tcp, d 192.0.2.1:81/tcp, e 192.0.2.2:81/tcp"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	for id, text := range map[string]string{"c": "taken by a", "f": "taken by d", "g": "1 to 65535", "h": "tcp or udp", "i": "IPv4"} {
		if errs[id] == nil || !strings.Contains(errs[id].Error(), text) {
			t.Errorf("%s: %v", id, errs[id])
		}
	}
	if len(errs) != 5 {
		t.Errorf("%v", errs)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Name: "w", StateDir: "/a", RunDir: "/b"}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"Name":     func(o *Options) { o.Name = "" },
		"StateDir": func(o *Options) { o.StateDir = "x" },
		"RunDir":   func(o *Options) { o.RunDir = "" },
		"Subnet":   func(o *Options) { o.Subnet = netip.MustParsePrefix("fd00::/64") },
		"Subnet ":  func(o *Options) { o.Subnet = netip.MustParsePrefix("10.0.0.0/30") },
	} {
		o := good
		change(&o)
		if err := o.check(); err == nil || !strings.Contains(err.Error(), "option "+strings.TrimSpace(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := Options{Name: strings.Repeat("w-", 60)}
	full := &state{Subnet: netip.MustParsePrefix("10.0.0.0/16"), Blocks: make([]netip.Prefix, maxBlocks)}
	full.Blocks[maxBlocks-1] = netip.MustParsePrefix("10.64.0.0/26")
	for _, a := range []string{"10.0.255.254", "10.64.0.63"} {
		if n := len(long.prefix() + ".i" + full.device(netip.MustParseAddr(a))); n > 15 {
			t.Errorf("an interface name has %d characters", n)
		}
	}
	if tab := long.table(); strings.ContainsAny(tab, "-") || len(tab) > 70 {
		t.Error(tab)
	}
	block := netip.MustParsePrefix
	for _, c := range []Config{{Attachments: []Want{{ID: "a"}, {ID: "a"}}}, {Attachments: []Want{{ID: "../x"}}}, {Attachments: []Want{{}}},
		{Overlay: &Overlay{Blocks: []netip.Prefix{block("10.64.0.0/26"), block("10.64.0.0/26")}}}, {Overlay: &Overlay{Blocks: []netip.Prefix{block("10.64.0.1/26")}}},
		{Overlay: &Overlay{Blocks: []netip.Prefix{block("fd00::/64")}}}, {Overlay: &Overlay{V6: block("fd00::/48")}}, {Overlay: &Overlay{Overhead: 9000}}} {
		if c.check() == nil {
			t.Errorf("%v is accepted", c)
		}
	}
}

func TestResolvers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# comment\nnameserver 127.0.0.1\nnameserver 192.0.2.1\nnameserver ::1\nnameserver 192.0.2.9\nsearch a b\ndomain c.example\noptions ndots:2\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	servers, search := resolvers(file)
	// The fourth server does not count in resolv.conf(5).
	if fmt.Sprint(servers) != "[192.0.2.1]" || fmt.Sprint(search) != "[c.example]" {
		t.Errorf("%v %v", servers, search)
	}
	if servers, search := resolvers(file + ".missing"); servers != nil || search != nil {
		t.Errorf("%v %v", servers, search)
	}
}

func FuzzResolvConf(f *testing.F) {
	f.Add("nameserver 192.0.2.1\nsearch a b\n")
	f.Add("nameserver ::ffff:1.2.3.4%eth0\nsearch \x00\n")
	f.Fuzz(func(t *testing.T, text string) {
		servers, search := parseResolvConf(text)
		if len(servers) > 3 || len(search) > 6 {
			t.Errorf("%v %v", servers, search)
		}
		for _, s := range reachable(servers) {
			if !s.Is4() || s.IsLoopback() {
				t.Errorf("%s", s)
			}
		}
		for _, d := range search {
			if strings.ContainsAny(d, " \t\n") {
				t.Errorf("%q", d)
			}
		}
	})
}
