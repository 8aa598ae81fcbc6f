package cluster

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/overlay/resolver"
)

func TestZones(t *testing.T) {
	o := &tier.NameOptions{Listen: "192.0.2.53:53", Zones: []string{"Harbour.Example.org.", "example.org"}}
	if err := o.Fill(); err != nil || o.Zone() != "harbour.example.org" || fmt.Sprint(o.Addrs) != "[192.0.2.53]" {
		t.Fatalf("%+v, %v", o, err)
	}
	c := zonesOf(7, o, []network.HostEntries{{Host: "shop.example.org", Entries: []network.Entry{{Worker: "a", Healthy: true}}}, {Host: "*.else.net"}})
	var got []string
	for _, d := range c.Domains {
		for _, h := range d.Hosts {
			got = append(got, d.Name+": "+h.Name)
		}
	}
	want := []string{"harbour.example.org: shop.example.org.harbour.example.org.", "harbour.example.org: *.else.net.harbour.example.org.", "example.org: shop.example.org"}
	if !slices.Equal(got, want) || c.Serial != 7 {
		t.Errorf("%q", got)
	}
	for _, bad := range []tier.NameOptions{{Listen: "192.0.2.53:53"}, {Zones: []string{"x.org"}}, {Listen: "nowhere", Zones: []string{"x.org"}}, {Listen: ":53", Zones: []string{"*.x.org"}}} {
		if bad.Fill() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// A host that is called as another one is in the site's zone, or as the zone's name server, takes nothing from others.
func TestHostsNamedLikeOthers(t *testing.T) {
	o := &tier.NameOptions{Listen: "192.0.2.53:53", Zones: []string{"harbour.example.org"}}
	if err := o.Fill(); err != nil {
		t.Fatal(err)
	}
	entry := func(worker string, addr string) []network.Entry {
		return []network.Entry{{Worker: worker, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Healthy: true}}
	}
	a := resolver.NewAuthority(resolver.AuthorityOptions{})
	a.Set(zonesOf(1, o, []network.HostEntries{{Host: "ns.harbour.example.org", Entries: entry("thief", "198.51.100.66")},
		{Host: "shop.example.net", Entries: entry("shop", "198.51.100.1")},
		{Host: "shop.example.net.harbour.example.org", Entries: entry("thief", "198.51.100.66")},
		{Host: "till", Entries: entry("thief", "198.51.100.66")}, {Host: "till.harbour.example.org", Entries: entry("till", "198.51.100.2")}}))
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- a.ServeUDP(pc) }()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
	for name, want := range map[string]string{"ns.harbour.example.org.": "192.0.2.53",
		"shop.example.net.harbour.example.org.": "198.51.100.1", "till.harbour.example.org.": "198.51.100.2"} {
		if got, err := r.LookupHost(t.Context(), name); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%s is at %v (%v), want %s", name, got, err, want)
		}
	}
	a.Close()
	<-served
}

func TestNearestStaysUntilAnotherIsClearlyNearer(t *testing.T) {
	far := map[string]float64{"a": 10, "b": 9}
	for _, x := range []struct {
		was  string
		a    float64
		want string
	}{{"", 10, "b"}, {"a", 10, "a"}, {"a", 12, "b"}, {"gone", 10, "b"}} {
		f := maps.Clone(far)
		f["a"] = x.a
		if got := nearestOf(f, x.was); got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
	}
	if nearestOf(nil, "a") != "" {
		t.Error("somebody is near without having been measured")
	}
	n := newNameServer(&Server{})
	p := netip.MustParsePrefix("198.51.100.0/24")
	point := func(id string) *resolver.Point { return &resolver.Point{ID: id} }
	if ms := n.rank(p, "", point("a")); ms == ms {
		t.Errorf("%v without measuring", ms)
	}
	if got := n.recently(time.Now()); len(got) != 1 || got[0] != p {
		t.Errorf("asked: %v", got)
	}
	n.far[p], n.best[p] = map[string]float64{"a": 10, "b": 9}, "a"
	if n.rank(p, "", point("a")) >= n.rank(p, "", point("b")) {
		t.Error("clients swing")
	}
}
