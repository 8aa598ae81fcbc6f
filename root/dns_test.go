package root

import (
	"fmt"
	"net/netip"
	"testing"

	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/root/core"
)

// TestZonesLeadToSites has two sites answer for one host name, one of them with nothing that works.
func TestZonesLeadToSites(t *testing.T) {
	var sites []core.SiteNames
	for _, name := range []string{"harbour", "hill"} {
		sites = append(sites, core.SiteNames{Site: name, Zone: name + ".example.org", Servers: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
			Hosts: map[string]bool{"shop.example.org": name == "harbour", "other.net": true}})
	}
	o := &tier.NameOptions{Listen: "192.0.2.1:53", Zones: []string{"example.org"}}
	if err := o.Fill(); err != nil {
		t.Fatal(err)
	}
	d := zonesOf(1, o, sites).Domains[0]
	if len(d.Hosts) != 1 || d.Hosts[0].Name != "shop.example.org" || len(d.Hosts[0].Points) != 2 {
		t.Fatalf("%+v", d.Hosts)
	}
	got := fmt.Sprint(d.Hosts[0].Points[0].Alias, d.Hosts[0].Points[0].Healthy, d.Hosts[0].Points[1].Healthy)
	if got != "shop.example.org.harbour.example.org. true false" && got != "shop.example.org.harbour.example.org.true false" {
		t.Error(got)
	}
	if len(d.Sites) != 2 || d.Sites[0].Name != "harbour.example.org" || d.Sites[0].Servers[0].Name != "ns.harbour.example.org" {
		t.Errorf("%+v", d.Sites)
	}
}
