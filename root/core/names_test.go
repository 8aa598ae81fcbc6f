package core

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestHostsLeadToSites has two sites report what they offer, one of them nothing that works.
func TestHostsLeadToSites(t *testing.T) {
	c := New(Options{Incarnation: "a"})
	now := time.Unix(1e9, 0)
	step := func(msg any) {
		t.Helper()
		if fx := c.Step(now, msg); fx.Err != nil {
			t.Fatal(fx.Err)
		}
	}
	step(apps.PutOrg{Org: apps.Org{Name: "acme"}})
	step(apps.PutNamespace{Namespace: apps.Namespace{Name: "acme", Org: "acme"}})
	two := 2
	svc := spec.ServiceSpec{Name: "web", Replicas: &two, Ports: []spec.Port{{Name: "http", Port: 80}}, Ingress: []spec.Ingress{{Host: "shop.example.org", Port: "http"}, {Host: "other.net", Port: "http"}}}
	svc.Image = "web:1"
	step(apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication, Metadata: spec.Metadata{Name: "shop", Namespace: "acme"},
		Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{svc}}}})
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}
	var fx wire.Effects
	for n, name := range []string{"harbour", "hill"} {
		step(ChildUp{Hello: &wire.Hello{Name: name}})
		c.give(now, c.Apps.Instances(k)[n], name, nil, &fx)
	}
	c.settle(now, &fx)
	for name, n := range map[string]int{"harbour": 2, "hill": 0} {
		r := wire.ClusterReport{Ingress: &wire.SiteIngress{Zone: name + ".example.org", Servers: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
			Entries: []wire.IngressDoor{{Service: k, Entry: "80 shop.example.org", Workers: n}, {Service: k, Entry: "80 other.net", Problem: "no"}, {Service: k, Entry: "80 forged.example.org", Workers: 9}}}}
		step(ChildFrame{Name: name, Msg: &wire.Report{Kind: wire.ReportCluster, Payload: wire.New().Marshal(&r)}})
	}
	want := []SiteNames{{Site: "harbour", Zone: "harbour.example.org", Servers: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
		Hosts: map[string]bool{"shop.example.org": true}}, {Site: "hill", Zone: "hill.example.org", Servers: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
		Hosts: map[string]bool{"shop.example.org": false}}}
	if got := c.Views().SiteNames(); !reflect.DeepEqual(got, want) {
		t.Fatalf("sites answer for %+v, want %+v", got, want)
	}
	v := c.Apps.View(c.Apps.App(k.App), "root", true)
	c.Views().showIngress(&v)
	if g := v.Services[0].Ingress; len(g) != 2 || !slices.Equal(g[0].At, []string{"harbour"}) || fmt.Sprint(g[0].Problems) != "[cluster hill: no worker offers it now]" || len(g[1].Problems) != 2 {
		t.Errorf("%+v", g)
	}
}
