package core

import (
	"testing"
	"time"

	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// What sleeps is kept at the site that had it, which wakes it; another site cannot, and without that site it is woken at once.
func TestSleepingService(t *testing.T) {
	r := newHostileRoot(t, "harbour", "stranger")
	k := r.apply("shop", "shop.example.org", "harbour")
	zero, none := 0, spec.Duration(0)
	app := r.c.Apps.App(k.App).Manifest
	app.Spec.Services = append([]spec.ServiceSpec{}, app.Spec.Services...)
	app.Spec.Services[0].Scale = &spec.ScaleSpec{Min: &zero, Max: 3, Down: &none}
	app.Spec.Services[0].Resources.CPU = 100
	r.step(apps.Apply{App: app})
	count := func() int { return *r.c.Apps.App(k.App).Manifest.Spec.Services[0].Replicas }
	r.step(apps.Scale{Service: k, Replicas: 0})
	for _, i := range r.c.Apps.Instances(k) {
		var fx wire.Effects
		r.c.gone(r.now, i.Holder, i.ID, &fx)
	}
	tick := func() {
		r.now = r.now.Add(apps.ScaleEvery)
		r.keep(r.c.Tick(r.now))
	}
	tick()
	if n := len(r.c.Apps.Instances(k)); n != 0 {
		t.Fatalf("%d instances are left", n)
	}
	if !r.has("harbour", wire.NetworkItem(k.App)) || r.has("stranger", wire.NetworkItem(k.App)) {
		t.Fatal("the site that had it last does not keep its ways in")
	}
	report := func(site string, waiting bool) {
		in := &wire.SiteIngress{Entries: []wire.IngressDoor{{Service: k, Entry: "80 shop.example.org", Workers: 1, Waiting: waiting}}}
		r.step(ChildFrame{Name: site, Msg: &wire.Report{Kind: wire.ReportCluster, Payload: wire.New().Marshal(&wire.ClusterReport{Ingress: in})}})
	}
	report("stranger", true)
	report("harbour", false)
	for range 5 {
		tick()
	}
	if count() != 0 {
		t.Error("a site that has nothing to do with it woke it")
	}
	report("harbour", true)
	r.keep(r.c.Tick(r.now))
	if count() != 1 {
		t.Errorf("%d are wanted, and somebody waits", count())
	}
	// Asleep again, its site is removed.
	report("harbour", false)
	r.step(apps.Scale{Service: k, Replicas: 0})
	for _, i := range r.c.Apps.Instances(k) {
		var fx wire.Effects
		r.c.gone(r.now, i.Holder, i.ID, &fx)
	}
	tick()
	if !r.has("harbour", wire.NetworkItem(k.App)) || count() != 0 {
		t.Fatalf("%d are wanted", count())
	}
	r.step(ChildDown{Name: "harbour"})
	r.step(RemoveCluster{Name: "harbour"})
	r.keep(r.c.Tick(r.now.Add(time.Millisecond)))
	if count() != 1 {
		t.Error("nobody is there to wake it, and it sleeps on")
	}
}
