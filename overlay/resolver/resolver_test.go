package resolver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func sk(app, service string) skerry.ServiceKey {
	return skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: app}, Service: service}
}

func addrs(third int, instances int) []Address {
	at := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 30, byte(third), byte(n)}) }
	out := []Address{{spec.BalanceRoundRobin, 0, at(1)}, {spec.BalanceClosest, 0, at(2)}, {spec.BalanceLeastLoaded, 0, at(3)}}
	for i := range instances {
		out = append(out, Address{spec.BalanceInstance, i, at(10 + i)})
	}
	return out
}

// testConfig has two applications: shop with web and db, which sees blog's api as posts; and blog, which sees nothing of
// shop. Both use the same service addresses.
func testConfig() Config {
	ports := []spec.Port{{Name: "http", Port: 8080}, {Port: 53, Protocol: "udp"}, {Name: "all", Port: 9, Protocol: "any"}}
	return Config{
		Apps: []App{
			{Key: skerry.AppKey{Namespace: "default", Name: "shop"}, Complete: true, Services: []Service{
				{Key: sk("blog", "api"), As: "posts", Addrs: addrs(3, 1)}, {Key: sk("blog", "store"), As: "db", Addrs: addrs(4, 0)},
				{Key: sk("shop", "web"), Addrs: addrs(1, 2), Ports: ports}, {Key: sk("shop", "db"), Addrs: addrs(2, 1)}}},
			{Key: skerry.AppKey{Namespace: "default", Name: "blog"}, Services: []Service{{Key: sk("blog", "api"), Addrs: addrs(1, 1)}}},
		},
		Instances: []Instance{
			{Addrs: []netip.Addr{ip("10.64.0.1"), ip("fd00::1")}, Service: sk("shop", "web"), Ordinal: 0, Local: true},
			{Addrs: []netip.Addr{ip("10.64.0.2")}, Service: sk("blog", "api"), Ordinal: 0, Local: true},
			{Addrs: []netip.Addr{ip("10.64.9.9")}, Service: sk("shop", "web"), Ordinal: 1},
			{Addrs: []netip.Addr{ip("10.64.0.3")}, Service: sk("alone", "x"), Local: true},
		},
		IPv6: true, Private: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/10")},
	}
}

func ask(t testing.TB, r *Resolver, src, name string, typ dns.Type) string {
	t.Helper()
	return tell(t, askRaw(r, src, question(t, name, typ, nil)))
}

func askRaw(r handler, src string, msg []byte) []byte {
	resp, later := r.respond(netip.AddrPortFrom(ip(src), 4321), msg, 0)
	if later != nil {
		resp = later(context.Background())
	}
	return resp
}

func question(t testing.TB, name string, typ dns.Type, edns *dns.OPTResource) []byte {
	t.Helper()
	n, err := dns.NewName(name)
	if err != nil {
		t.Fatal(err)
	}
	m := dns.Message{Header: dns.Header{ID: 77, RecursionDesired: true}, Questions: []dns.Question{{Name: n, Type: typ, Class: dns.ClassINET}}}
	if edns != nil {
		var h dns.ResourceHeader
		_ = h.SetEDNS0(1400, 0, false)
		m.Additionals = append(m.Additionals, dns.Resource{Header: h, Body: edns})
	}
	out, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tell gives an answer as text: the status unless it is success, marks, and the records.
func tell(t testing.TB, raw []byte) string {
	t.Helper()
	if raw == nil {
		return "no answer"
	}
	var m dns.Message
	if err := m.Unpack(raw); err != nil {
		t.Fatalf("%v in %x", err, raw)
	}
	if m.ID != 77 || !m.Response {
		t.Fatalf("header %+v", m.Header)
	}
	var out []string
	if m.RCode != 0 {
		out = append(out, strings.TrimPrefix(m.RCode.String(), "RCode"))
	}
	if m.Truncated {
		out = append(out, "truncated")
	}
	for i, list := range [][]dns.Resource{m.Answers, m.Authorities, m.Additionals} {
		for _, rr := range list {
			s := ""
			switch b := rr.Body.(type) {
			case *dns.AResource:
				s = netip.AddrFrom4(b.A).String()
			case *dns.AAAAResource:
				s = netip.AddrFrom16(b.AAAA).String()
			case *dns.SRVResource:
				s = fmt.Sprintf("srv %d %s", b.Port, b.Target)
			case *dns.PTRResource:
				s = "ptr " + b.PTR.String()
			case *dns.SOAResource:
				s = "soa"
			case *dns.CNAMEResource:
				s = "cname " + b.CNAME.String()
			case *dns.NSResource:
				s = "ns " + b.NS.String()
			case *dns.TXTResource:
				s = "txt " + strings.Join(b.TXT, "")
			case *dns.OPTResource:
				s = "opt"
			default:
				s = rr.Header.Type.String()
			}
			if i == 2 {
				s = "+" + s
			}
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return "empty"
	}
	return strings.Join(out, ", ")
}

func TestNames(t *testing.T) {
	r := New(Options{Dial: noDial(t)})
	defer r.Close()
	r.Set(testConfig())
	const full = ".web.default.shop.default.skerry."
	for _, c := range []struct {
		src, name string
		typ       dns.Type
		want      string
	}{
		// Full names, in all forms.
		{"10.64.0.1", "any.round-robin" + full, dns.TypeA, "10.30.1.1"},
		{"10.64.0.1", "any.closest" + full, dns.TypeA, "10.30.1.2"},
		{"10.64.0.1", "any.closest" + full, dns.TypeAAAA, "fd30:5ce7::a1e:102"},
		{"10.64.0.1", "any.closest" + full, typeANY, "10.30.1.2, fd30:5ce7::a1e:102"},
		{"fd00::1", "any.least-loaded" + full, dns.TypeA, "10.30.1.3"},
		{"10.64.0.1", "1.closest" + full, dns.TypeA, "10.30.1.11"},
		{"10.64.0.1", "1.instance" + full, dns.TypeA, "10.30.1.11"},
		{"10.64.0.1", "1" + full, dns.TypeA, "10.30.1.11"},
		{"10.64.0.1", "closest" + full, dns.TypeA, "10.30.1.2"},
		{"10.64.0.1", full[1:], dns.TypeA, "10.30.1.1"},
		{"10.64.0.1", "ANY.Closest.WEB.Default.shop.DEFAULT.Skerry.", dns.TypeA, "10.30.1.2"},
		{"10.64.0.1", "any.closest.web.default.shop.default.", dns.TypeA, "10.30.1.2"},
		// Short ones, with and without the zone.
		{"10.64.0.1", "web.skerry.", dns.TypeA, "10.30.1.1"},
		{"10.64.0.1", "web.", dns.TypeA, "10.30.1.1"},
		{"10.64.0.1", "closest.web.", dns.TypeA, "10.30.1.2"},
		{"10.64.0.1", "0.web.", dns.TypeA, "10.30.1.10"},
		{"10.64.0.1", "any.closest.web.", dns.TypeA, "10.30.1.2"},
		{"10.64.0.1", "closest.db.skerry.", dns.TypeA, "10.30.2.2"},
		// What is not there.
		{"10.64.0.1", "2.web.", dns.TypeA, "NameError"},
		{"10.64.0.1", "00.web.skerry.", dns.TypeA, "NameError, soa"},
		{"10.64.0.1", "any.instance.web.skerry.", dns.TypeA, "NameError, soa"},
		{"10.64.0.1", "nearest.web.skerry.", dns.TypeA, "NameError, soa"},
		{"10.64.0.1", "cache.skerry.", dns.TypeA, "NameError, soa"},
		{"10.64.0.1", "cache.", dns.TypeA, "NameError"},
		{"10.64.0.1", "any.closest.cache.default.shop.default.", dns.TypeA, "NameError"},
		{"10.64.0.1", "any.closest.web.other.shop.default.skerry.", dns.TypeA, "NameError, soa"},
		{"10.64.0.1", "a.b.c.d.e.f.g.h.skerry.", dns.TypeA, "NameError, soa"},
		// What is there, but not of this type, or only a part of names.
		{"10.64.0.1", "web.skerry.", dns.TypeTXT, "soa"},
		{"10.64.0.1", "default.skerry.", dns.TypeA, "soa"},
		{"10.64.0.1", "shop.default.skerry.", dns.TypeA, "soa"},
		{"10.64.0.1", "default.shop.default.skerry.", dns.TypeA, "soa"},
		{"10.64.0.1", "_tcp.web.skerry.", dns.TypeA, "soa"},
		{"10.64.0.1", "skerry.", dns.TypeA, "soa"},
		{"10.64.0.1", "skerry.", dns.TypeSOA, "soa"},
		// Ports.
		{"10.64.0.1", "_http._tcp.web.skerry.", dns.TypeSRV, "srv 8080 any.round-robin" + full + ", +10.30.1.1, +fd30:5ce7::a1e:101"},
		{"10.64.0.1", "_8080._tcp.closest.web.", dns.TypeSRV, "srv 8080 any.closest" + full + ", +10.30.1.2, +fd30:5ce7::a1e:102"},
		{"10.64.0.1", "_udp-53._udp.1.web.", dns.TypeSRV, "srv 53 1.instance" + full + ", +10.30.1.11, +fd30:5ce7::a1e:10b"},
		{"10.64.0.1", "_all._udp.web.", dns.TypeSRV, "srv 9 any.round-robin" + full + ", +10.30.1.1, +fd30:5ce7::a1e:101"},
		{"10.64.0.1", "_http._udp.web.skerry.", dns.TypeSRV, "NameError, soa"},
		{"10.64.0.1", "_http._tcp.web.skerry.", dns.TypeA, "soa"},
		// Other applications.
		{"10.64.0.1", "any.closest.api.default.blog.default.skerry.", dns.TypeA, "10.30.3.2"},
		{"10.64.0.1", "posts.", dns.TypeA, "10.30.3.1"},
		{"10.64.0.1", "db.", dns.TypeA, "10.30.2.1"}, // its own comes first
		{"10.64.0.1", "api.skerry.", dns.TypeA, "NameError, soa"},
		{"10.64.0.2", "any.closest.api.default.blog.default.skerry.", dns.TypeA, "10.30.1.2"},
		{"10.64.0.2", "any.closest.web.default.shop.default.skerry.", dns.TypeA, "NameError, soa"},
		{"10.64.0.2", "shop.default.skerry.", dns.TypeA, "NameError, soa"},
		{"10.64.0.2", "web.", dns.TypeA, "NameError"},
		{"10.64.0.3", "any.closest.web.default.shop.default.skerry.", dns.TypeA, "NameError, soa"},
		{"10.64.9.9", "web.", dns.TypeA, "Refused"}, // not of this worker
		{"192.0.2.1", "web.", dns.TypeA, "Refused"},
		// Reverse names.
		{"10.64.0.1", "2.1.30.10.in-addr.arpa.", dns.TypePTR, "ptr any.closest" + full},
		{"10.64.0.2", "2.1.30.10.in-addr.arpa.", dns.TypePTR, "ptr any.closest.api.default.blog.default.skerry."},
		{"10.64.0.1", "9.9.64.10.in-addr.arpa.", dns.TypePTR, "ptr 1.instance" + full},
		{"10.64.0.2", "9.9.64.10.in-addr.arpa.", dns.TypePTR, "NameError"},
		{"10.64.0.1", "9.9.30.10.in-addr.arpa.", dns.TypePTR, "NameError"},
		{"10.64.0.1", "2.1.30.10.in-addr.arpa.", dns.TypeA, "empty"},
		{"10.64.0.1", "2.0.1.0.e.1.a.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.7.e.c.5.0.3.d.f.ip6.arpa.", dns.TypePTR, "ptr any.closest" + full},
		// Names with a meaning of their own.
		{"10.64.0.1", "localhost.", dns.TypeA, "127.0.0.1"},
		{"10.64.0.1", "x.localhost.", dns.TypeAAAA, "::1"},
		// What goes to the host's servers, of which there are none here.
		{"10.64.0.1", "example.org.", dns.TypeA, "ServerFailure"},
		{"10.64.0.1", "closest.com.", dns.TypeA, "ServerFailure"},
		{"10.64.0.1", "com.", dns.TypeNS, "ServerFailure"},
		{"10.64.0.1", ".", dns.TypeNS, "ServerFailure"},
		{"10.64.0.1", "7.2.0.192.in-addr.arpa.", dns.TypePTR, "ServerFailure"},
		{"10.64.0.1", "30.10.in-addr.arpa.", dns.TypePTR, "ServerFailure"},
	} {
		if got := ask(t, r, c.src, c.name, c.typ); got != c.want {
			t.Errorf("%s asks for %s of %s\n got %s\nwant %s", c.src, c.typ, c.name, got, c.want)
		}
	}
	c := testConfig()
	c.Apps[0].Services[2].Addrs[1].Addr = netip.Addr{}
	c.Instances[2].Addrs = append(c.Instances[2].Addrs, netip.Addr{})
	r.Set(c)
	if got := ask(t, r, "10.64.0.1", "closest.web.skerry.", dns.TypeA); got != "NameError, soa" {
		t.Error(got)
	}
	c = testConfig()
	c.IPv6 = false
	r.Set(c)
	if got := ask(t, r, "10.64.0.1", "web.skerry.", dns.TypeAAAA); got != "soa" {
		t.Error(got)
	}
	if n := r.Names(skerry.AppKey{Namespace: "default", Name: "blog"}); len(n) != 1 || n[0] != "any.round-robin.api.default.blog.default.skerry." {
		t.Error(n)
	}
	if s := r.Stats(); s["queries"] == 0 || s["refused"] != 2 {
		t.Error(s)
	}
}

func noDial(t testing.TB) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, network, addr string) (net.Conn, error) {
		t.Errorf("asked %s %s", network, addr)
		return nil, net.ErrClosed
	}
}

func TestWantedIsToldAndAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := []string{}
		var ready chan struct{}
		r := New(Options{Dial: noDial(t), Wanted: func(app skerry.AppKey, s skerry.ServiceKey) <-chan struct{} {
			told = append(told, app.Name+" wants "+s.String())
			return ready
		}})
		defer r.Close()
		c := testConfig()
		r.Set(c)
		// Known and here: no waiting.
		if got := ask(t, r, "10.64.0.1", "web.", dns.TypeA); got != "10.30.1.1" || len(told) != 1 || told[0] != "shop wants default/shop/web" {
			t.Error(got, told)
		}
		// An application that is known completely is not asked about.
		if got := ask(t, r, "10.64.0.1", "cache.", dns.TypeA); got != "NameError" || len(told) != 1 {
			t.Error(got, told)
		}
		// Known, but its routes are not here: the answer waits, and no longer than it should.
		ready = make(chan struct{})
		start := time.Now()
		if got := ask(t, r, "10.64.0.1", "web.", dns.TypeA); got != "10.30.1.1" || time.Since(start) != time.Second {
			t.Error(got, time.Since(start))
		}
		// Unknown, and it comes.
		time.AfterFunc(300*time.Millisecond, func() {
			c.Apps[1].Services = append(c.Apps[1].Services, Service{Key: sk("blog", "late"), Addrs: addrs(7, 0)})
			r.Set(c)
			close(ready)
		})
		start = time.Now()
		if got := ask(t, r, "10.64.0.2", "late.skerry.", dns.TypeA); got != "10.30.7.1" || time.Since(start) != 300*time.Millisecond {
			t.Error(got, time.Since(start))
		}
		// Unknown, and it is known that it does not exist.
		if got := ask(t, r, "10.64.0.2", "never.skerry.", dns.TypeA); got != "NameError, soa" {
			t.Error(got)
		}
		// Nobody above answers: a short name is given up, of a full one nothing is claimed.
		ready = make(chan struct{})
		if got := ask(t, r, "10.64.0.2", "never.skerry.", dns.TypeA); got != "NameError, soa" {
			t.Error(got)
		}
		if got := ask(t, r, "10.64.0.2", "any.closest.x.default.shop.default.skerry.", dns.TypeA); got != "ServerFailure" {
			t.Error(got)
		}
		if told[len(told)-1] != "blog wants default/shop/x" {
			t.Error(told)
		}
	})
}

func TestOneInstanceCannotHoldEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Dial: noDial(t), Wanted: func(skerry.AppKey, skerry.ServiceKey) <-chan struct{} { return make(chan struct{}) }})
		defer r.Close()
		r.Set(testConfig())
		var wg sync.WaitGroup
		msg := question(t, "x.skerry.", dns.TypeA, nil)
		for range maxSlowEach {
			resp, later := r.respond(netip.AddrPortFrom(ip("10.64.0.2"), 1), msg, 0)
			if resp != nil {
				t.Fatal("answered")
			}
			wg.Go(func() { later(t.Context()) })
		}
		if got := ask(t, r, "10.64.0.2", "y.skerry.", dns.TypeA); got != "ServerFailure" {
			t.Error(got)
		}
		if got := ask(t, r, "10.64.0.1", "web.skerry.", dns.TypeA); got != "10.30.1.1" {
			t.Error(got)
		}
		wg.Wait()
		if got := ask(t, r, "10.64.0.2", "y.skerry.", dns.TypeA); got != "NameError, soa" {
			t.Error(got)
		}
		if len(r.ours.by) != 0 || r.ours.n != 0 {
			t.Error(r.ours)
		}
	})
}

func TestMalformedQuestions(t *testing.T) {
	r := New(Options{Dial: noDial(t)})
	defer r.Close()
	r.Set(testConfig())
	good := question(t, "web.skerry.", dns.TypeA, &dns.OPTResource{})
	change := func(f func(b []byte) []byte) []byte { return f(append([]byte{}, good...)) }
	for name, c := range map[string]struct {
		msg  []byte
		want string
	}{
		"good":            {good, "10.30.1.1, +opt"},
		"nothing":         {nil, "no answer"},
		"short":           {good[:11], "no answer"},
		"an answer":       {change(func(b []byte) []byte { b[2] |= 0x80; return b }), "no answer"},
		"notify":          {change(func(b []byte) []byte { b[2] |= 4 << 3; return b }), "NotImplemented"},
		"no question":     {change(func(b []byte) []byte { b[5] = 0; return b }), "FormatError"},
		"two questions":   {change(func(b []byte) []byte { b[5] = 2; return b }), "FormatError"},
		"cut question":    {good[:20], "FormatError"},
		"cut OPT":         {good[:len(good)-3], "FormatError"},
		"class chaos":     {change(func(b []byte) []byte { b[27] = 3; return b }), "Refused, +opt"},
		"transfer":        {change(func(b []byte) []byte { b[25] = 252; return b }), "Refused, +opt"},
		"EDNS version":    {change(func(b []byte) []byte { b[len(b)-5] = 1; return b }), "Success, +opt"}, // the rest of the status is in OPT
		"two OPT":         {change(func(b []byte) []byte { b[11] = 2; return append(b, b[len(b)-11:]...) }), "FormatError, +opt"},
		"bad subnet":      {question(t, "web.skerry.", dns.TypeA, &dns.OPTResource{Options: []dns.Option{{Code: optSubnet, Data: []byte{0, 1, 33, 0}}}}), "FormatError, +opt"},
		"subnet":          {question(t, "web.skerry.", dns.TypeA, &dns.OPTResource{Options: []dns.Option{{Code: optSubnet, Data: []byte{0, 1, 8, 0, 10}}}}), "10.30.1.1, +opt"},
		"pointer to self": {change(func(b []byte) []byte { b[12], b[13] = 0xc0, 12; return b }), "FormatError"},
	} {
		raw := askRaw(r, "10.64.0.1", c.msg)
		got := tell(t, raw)
		if name == "EDNS version" && raw[len(raw)-6] != 1 {
			t.Error("no BADVERS")
		} else if name == "EDNS version" {
			got = "Success, " + got
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
