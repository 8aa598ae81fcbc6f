package resolver

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// siteZones are those of a site, with two ingresses, and of the root, which hands zones to two sites.
func siteZones() AuthorityConfig {
	return AuthorityConfig{Serial: 7, Domains: []Domain{{
		Name:    "north.example.org.",
		Servers: []NameServer{{"ns1.north.example.org", []netip.Addr{ip("192.0.2.53"), ip("2001:db8::53")}}, {Name: "ns.other.test."}},
		Hosts: []Host{
			{Name: "shop.north.example.org", Points: []Point{
				{ID: "w1", Addrs: []netip.Addr{ip("192.0.2.1"), ip("2001:db8::1")}, Healthy: true, Near: []netip.Prefix{prefix("198.51.100.0/24"), prefix("2001:db8:a::/48")}},
				{ID: "w2", Addrs: []netip.Addr{ip("192.0.2.2")}, Healthy: true, Near: []netip.Prefix{prefix("203.0.113.0/24"), prefix("198.51.0.0/16")}},
				{ID: "w3", Addrs: []netip.Addr{ip("192.0.2.3")}, Near: []netip.Prefix{prefix("203.0.113.0/24"), prefix("192.168.0.0/16")}}}},
			{Name: "*.wild.north.example.org", Points: []Point{{ID: "w3", Addrs: []netip.Addr{ip("192.0.2.3")}}}},
			{Name: "deep.empty.north.example.org"},
		}}}}
}

func rootZones() AuthorityConfig {
	return AuthorityConfig{Serial: 3, Domains: []Domain{{
		Name: "example.org", Servers: []NameServer{{"ns.example.org", []netip.Addr{ip("192.0.2.99")}}},
		Hosts: []Host{{Name: "shop.example.org", Points: []Point{
			{ID: "north", Alias: SiteName("shop.example.org", "north.example.org"), Healthy: true, Near: []netip.Prefix{prefix("198.51.100.0/24")}},
			{ID: "south", Alias: SiteName("shop.example.org", "south.example.org"), Healthy: true, Near: []netip.Prefix{prefix("203.0.113.0/24")}}}}},
		Sites: []Delegation{{"north.example.org", []NameServer{{"ns1.north.example.org", []netip.Addr{ip("192.0.2.53")}}}}, {"south.example.org", []NameServer{{Name: "ns.south.test"}}}},
	}}}
}

func subnet(family byte, bits byte, data ...byte) *dns.OPTResource {
	return &dns.OPTResource{Options: []dns.Option{{Code: optSubnet, Data: append([]byte{0, family, bits, 0}, data...)}}}
}

func TestAuthority(t *testing.T) {
	for _, c := range []struct {
		zones func() AuthorityConfig
		src   string
		name  string
		typ   dns.Type
		opt   *dns.OPTResource
		want  string
	}{
		// The nearest, by the resolver's address or by the client's network that it tells.
		{siteZones, "198.51.100.9", "shop.north.example.org.", dns.TypeA, nil, "192.0.2.1"},
		{siteZones, "198.51.7.9", "shop.north.example.org.", dns.TypeA, nil, "192.0.2.2"},
		{siteZones, "203.0.113.9", "Shop.North.Example.org.", dns.TypeA, nil, "192.0.2.2"}, // w3 is not healthy
		{siteZones, "198.51.100.9", "shop.north.example.org.", dns.TypeAAAA, nil, "2001:db8::1"},
		{siteZones, "203.0.113.9", "shop.north.example.org.", dns.TypeAAAA, nil, "soa"},
		{siteZones, "203.0.113.9", "shop.north.example.org.", dns.TypeA, subnet(1, 24, 198, 51, 100), "192.0.2.1, +opt"},
		{siteZones, "203.0.113.9", "shop.north.example.org.", dns.TypeA, subnet(2, 48, 0x20, 1, 0xd, 0xb8, 0, 10), "192.0.2.1, +opt"},
		{siteZones, "203.0.113.9", "shop.north.example.org.", dns.TypeA, subnet(1, 0), "192.0.2.2, +opt"},
		// None healthy: better than nothing.
		{siteZones, "203.0.113.9", "a.wild.north.example.org.", dns.TypeA, nil, "192.0.2.3"},
		{siteZones, "203.0.113.9", "a.b.wild.north.example.org.", dns.TypeA, nil, "NameError, soa"},
		{siteZones, "203.0.113.9", "wild.north.example.org.", dns.TypeA, nil, "soa"},
		{siteZones, "203.0.113.9", "empty.north.example.org.", dns.TypeA, nil, "soa"},
		{siteZones, "203.0.113.9", "deep.empty.north.example.org.", dns.TypeA, nil, "soa"},
		{siteZones, "203.0.113.9", "no.north.example.org.", dns.TypeA, nil, "NameError, soa"},
		{siteZones, "203.0.113.9", "x.shop.north.example.org.", dns.TypeA, nil, "NameError, soa"},
		{siteZones, "203.0.113.9", "north.example.org.", dns.TypeSOA, nil, "soa"},
		{siteZones, "203.0.113.9", "north.example.org.", dns.TypeA, nil, "soa"},
		{siteZones, "203.0.113.9", "north.example.org.", dns.TypeNS, nil, "ns ns1.north.example.org., ns ns.other.test., +192.0.2.53, +2001:db8::53"},
		{siteZones, "203.0.113.9", "ns1.north.example.org.", dns.TypeA, nil, "192.0.2.53"},
		{siteZones, "203.0.113.9", "example.org.", dns.TypeA, nil, "Refused"},
		{siteZones, "203.0.113.9", "evilnorth.example.org.", dns.TypeA, nil, "Refused"},
		{siteZones, "203.0.113.9", ".", dns.TypeNS, nil, "Refused"},
		{siteZones, "203.0.113.9", "shop.north.example.org.", typeANY, nil, "truncated"},
		// The root sends to the nearest site, and hands its zone over.
		{rootZones, "198.51.100.9", "shop.example.org.", dns.TypeA, nil, "cname shop.example.org.north.example.org."},
		{rootZones, "203.0.113.9", "shop.example.org.", dns.TypeAAAA, nil, "cname shop.example.org.south.example.org."},
		{rootZones, "203.0.113.9", "shop.example.org.north.example.org.", dns.TypeA, nil, "ns ns1.north.example.org., +192.0.2.53"},
		{rootZones, "203.0.113.9", "north.example.org.", dns.TypeNS, nil, "ns ns1.north.example.org., +192.0.2.53"},
		{rootZones, "203.0.113.9", "x.south.example.org.", dns.TypeA, nil, "ns ns.south.test."},
		{rootZones, "203.0.113.9", "north.example.org.", dns.Type(43), nil, "soa"},
		{rootZones, "203.0.113.9", "example.org.", dns.TypeNS, nil, "ns ns.example.org., +192.0.2.99"},
	} {
		a := NewAuthority(AuthorityOptions{})
		a.Set(c.zones())
		resp := askRaw(a, c.src, question(t, c.name, c.typ, c.opt))
		if got := tell(t, resp); got != c.want {
			t.Errorf("%s asks for %s of %s\n got %s\nwant %s", c.src, c.typ, c.name, got, c.want)
		}
		var m dns.Message
		if m.Unpack(resp) != nil || m.RecursionAvailable || m.Authoritative == (c.want == "Refused" || c.want == "truncated" || strings.HasPrefix(c.want, "ns ") && !strings.HasPrefix(c.name, "example") && c.zones().Serial == 3) {
			t.Errorf("%s of %s: header %+v", c.typ, c.name, m.Header)
		}
		if len(resp) > 512 {
			t.Error("long")
		}
		a.Close()
	}
}

func TestAuthorityTellsTheScope(t *testing.T) {
	a := NewAuthority(AuthorityOptions{Rank: func(client netip.Prefix, host string, p *Point) float64 {
		if client != prefix("198.51.100.0/24") || host != "shop.north.example.org" {
			t.Error(client, host)
		}
		return map[string]float64{"w1": 20, "w2": 10, "w3": 1}[p.ID]
	}})
	defer a.Close()
	a.Set(siteZones())
	resp := askRaw(a, "192.0.2.200", question(t, "shop.north.example.org.", dns.TypeA, subnet(1, 32, 198, 51, 100, 7)))
	var m dns.Message
	if err := m.Unpack(resp); err != nil || tell(t, resp) != "192.0.2.2, +opt" {
		t.Fatal(err, tell(t, resp))
	}
	if o := m.Additionals[0].Body.(*dns.OPTResource).Options; len(o) != 1 || string(o[0].Data) != "\x00\x01\x20\x18\xc6\x33\x64\x07" || m.Answers[0].Header.TTL != 10 {
		t.Errorf("%v, ttl %d", o, m.Answers[0].Header.TTL)
	}
}

func TestEqualPointsShareClients(t *testing.T) {
	a := NewAuthority(AuthorityOptions{Rate: 1e6})
	defer a.Close()
	a.Set(AuthorityConfig{Domains: []Domain{{Name: "x.test", Hosts: []Host{{Name: "h.x.test", Points: []Point{
		{ID: "a", Addrs: []netip.Addr{ip("192.0.2.1")}, Healthy: true}, {ID: "b", Addrs: []netip.Addr{ip("192.0.2.2")}, Healthy: true}}}}}}})
	n := map[string]int{}
	for i := range 2000 {
		src := netip.AddrFrom4([4]byte{198, byte(i >> 8), byte(i), 1}).String()
		got := tell(t, askRaw(a, src, question(t, "h.x.test.", dns.TypeA, nil)))
		if again := tell(t, askRaw(a, src, question(t, "h.x.test.", dns.TypeA, nil))); again != got {
			t.Fatal("a client does not stay")
		}
		n[got]++
	}
	// The deviation of 2000 fair tosses is 22.
	if n["192.0.2.1"] < 850 || n["192.0.2.2"] < 850 {
		t.Error(n)
	}
}

func TestAnswersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAuthority(AuthorityOptions{Rate: 10})
		defer a.Close()
		a.Set(siteZones())
		msg := question(t, "shop.north.example.org.", dns.TypeA, nil)
		count := func(src string, n int) map[string]int {
			out := map[string]int{}
			for range n {
				out[tell(t, askRaw(a, src, msg))]++
			}
			return out
		}
		got := count("203.0.113.9", 30)
		if got["192.0.2.2"] != 10 || got["truncated"] != 10 || got["no answer"] != 10 {
			t.Error(got)
		}
		if got := count("203.0.113.77", 2); got["192.0.2.2"] != 0 { // the same network
			t.Error(got)
		}
		if got := count("198.51.3.1", 1); got["192.0.2.2"] != 1 {
			t.Error(got)
		}
		resp, _ := a.respond(netip.MustParseAddrPort("203.0.113.9:1"), msg, 65535)
		if tell(t, resp) != "192.0.2.2" {
			t.Error("TCP is limited too")
		}
		time.Sleep(500 * time.Millisecond)
		if got := count("203.0.113.9", 10); got["192.0.2.2"] != 5 {
			t.Error(got)
		}
		if s := a.Stats(); s["limited"] != 27 {
			t.Error(s)
		}
	})
	l := newLimiter(1)
	for i := range 2 * maxBuckets {
		l.take(netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i >> 16), byte(i >> 8), byte(i), 0}), 24), time.Unix(1, 0))
	}
	if len(l.buckets) > maxBuckets {
		t.Error(len(l.buckets))
	}
}

func TestAuthoritySockets(t *testing.T) {
	a := NewAuthority(AuthorityOptions{})
	a.Set(siteZones())
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.ServeUDP(pc) })
	c, err := net.Dial("udp", pc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(question(t, "north.example.org.", dns.TypeSOA, nil)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 512)
	n, err := c.Read(buf)
	if err != nil || tell(t, buf[:n]) != "soa" {
		t.Error(err)
	}
	if h := a.Hosts(); len(h) != 3 || h[0] != "*.wild.north.example.org" {
		t.Error(h)
	}
	a.Close()
	wg.Wait()
}

func FuzzAuthority(f *testing.F) {
	f.Add(question(f, "shop.north.example.org.", dns.TypeA, subnet(1, 24, 198, 51, 100)), false)
	f.Add(question(f, "x.shop.north.example.org.", typeANY, nil), true)
	a := NewAuthority(AuthorityOptions{Rate: 1e9})
	a.Set(siteZones())
	f.Fuzz(func(t *testing.T, msg []byte, tcp bool) {
		limit := 0
		if tcp {
			limit = 65535
		}
		resp, later := a.respond(netip.MustParseAddrPort("203.0.113.9:1"), msg, limit)
		if later != nil {
			t.Fatal("it waits")
		}
		if resp == nil {
			return
		}
		var m dns.Message
		if err := m.Unpack(resp); err != nil || !m.Response {
			t.Fatalf("%v: %x to %x", err, resp, msg)
		}
		if !tcp && len(resp) > 512 {
			t.Fatalf("%d bytes for %d", len(resp), len(msg))
		}
	})
}
