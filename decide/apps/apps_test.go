package apps

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func controller(t *testing.T, q Quota) *Controller {
	t.Helper()
	c := New([16]byte{1}, "t")
	c.networks.mostBytes = 1 << 30 // there is no store, and some tests fill a network
	do(t, c, PutOrg{Org: Org{Name: "harbour", Quota: q}})
	do(t, c, PutNamespace{Namespace: Namespace{Name: "default", Org: "harbour"}})
	return c
}

func do(t *testing.T, c *Controller, msg any) wire.Effects {
	t.Helper()
	fx, ok := c.Handle(now, msg)
	if !ok || fx.Err != nil {
		t.Fatalf("%T: %v %v", msg, ok, fx.Err)
	}
	fx.Merge(c.Reconcile(now))
	return fx
}

func refused(t *testing.T, c *Controller, msg any, code skerry.Code, part string) {
	t.Helper()
	fx, _ := c.Handle(now, msg)
	e := skerry.AsError(fx.Err)
	if e == nil || e.Code != code || !strings.Contains(e.Error(), part) {
		t.Errorf("%T: %v, want %s with %q", msg, e, code, part)
	} else if e.Hint == "" && len(e.Problems) == 0 {
		t.Errorf("%T: no hint: %v", msg, e)
	}
	if len(fx.Writes) > 0 {
		t.Errorf("%T was refused and half written", msg)
	}
}

func apply(replicas int, edit ...func(*Apply)) Apply {
	s := spec.ServiceSpec{Name: "web", Replicas: &replicas, Resources: spec.Resources{CPU: 500, Memory: 64 * skerry.MiB}}
	s.Image = "web:1"
	a := Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication, Metadata: spec.Metadata{Name: "shop"},
		Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}}
	for _, f := range edit {
		f(&a)
	}
	return a
}

var shop = skerry.AppKey{Namespace: "default", Name: "shop"}

func TestRegisterThenDeploy(t *testing.T) {
	c := controller(t, Quota{})
	do(t, c, apply(2, func(a *Apply) { a.Register = true }))
	if n := len(c.InstancesOf(shop)); n != 0 || c.View(c.App(shop), "root", false).Status != "Registered" {
		t.Fatalf("%d instances of a registered application", n)
	}
	do(t, c, Deploy{Key: shop})
	if n := len(c.Unplaced(now)); n != 2 {
		t.Fatalf("%d instances wait for a place, want 2", n)
	}
	// Registering a change of a deployed application does not take it down.
	do(t, c, apply(3, func(a *Apply) { a.Register = true }))
	if n := len(c.InstancesOf(shop)); n != 3 {
		t.Errorf("%d instances", n)
	}
}

func TestApplyTwiceIsUnchanged(t *testing.T) {
	c := controller(t, Quota{})
	do(t, c, apply(2))
	fx := do(t, c, apply(2))
	if r := fx.Result.(Applied); !r.Unchanged || r.Gen != 1 {
		t.Errorf("%+v", r)
	}
	fx = do(t, c, apply(3))
	if r := fx.Result.(Applied); r.Unchanged || r.Gen != 2 || r.Created {
		t.Errorf("%+v", r)
	}
}

func TestQuota(t *testing.T) {
	c := controller(t, Quota{CPU: 2000, Instances: 5})
	do(t, c, apply(4))
	refused(t, c, Scale{Service: skerry.ServiceKey{App: shop, Service: "web"}, Replicas: 5}, skerry.CodeQuota, "harbour may use 2 cores")
	refused(t, c, apply(1, func(a *Apply) { a.App.Metadata.Name = "other" }), skerry.CodeQuota, "2 are used and the application asks for 0.5")
	do(t, c, Scale{Service: skerry.ServiceKey{App: shop, Service: "web"}, Replicas: 2})
	do(t, c, apply(1, func(a *Apply) { a.App.Metadata.Name = "other" }))
	refused(t, c, apply(5, func(a *Apply) { a.App.Spec.Services[0].Resources.CPU = 0 }), skerry.CodeQuota, "instances")
}

// Amounts of which the sum is no number any more are more than a quota, and not less than nothing.
func TestQuotaOfHugeAmounts(t *testing.T) {
	c := controller(t, Quota{Memory: skerry.GiB})
	for _, replicas := range []int{1, 2, 3, 4} {
		refused(t, c, apply(replicas, func(a *Apply) { a.App.Spec.Services[0].Resources.Memory = spec.MaxAmount }), skerry.CodeQuota, "harbour may use 1Gi")
	}
}

func TestQuotaOfServiceAddresses(t *testing.T) {
	c := controller(t, Quota{ServiceAddresses: 12})
	do(t, c, apply(4)) // three by policy, four by number
	web := skerry.ServiceKey{App: shop, Service: "web"}
	refused(t, c, apply(3, func(a *Apply) { a.App.Metadata.Name = "other" }), skerry.CodeQuota, "12 service addresses; 7 are used and the application asks for 6")
	refused(t, c, Scale{Service: web, Replicas: 10}, skerry.CodeQuota, "asks for 13")
	do(t, c, apply(0, func(a *Apply) {
		a.App.Metadata.Name = "batch"
		a.App.Spec.Services[0].Replicas, a.App.Spec.Services[0].Mode = nil, spec.ModeJob
	}))
	if u := c.Usage("harbour", skerry.AppKey{}); u.ServiceAddresses != 10 {
		t.Errorf("%d service addresses are used, want 10", u.ServiceAddresses)
	}
	do(t, c, Scale{Service: web, Replicas: 6})
	refused(t, c, Scale{Service: web, Replicas: 7}, skerry.CodeQuota, "service addresses")
}

func TestRefusals(t *testing.T) {
	c := controller(t, Quota{})
	refused(t, c, apply(1, func(a *Apply) { a.App.Metadata.Namespace = "nowhere" }), skerry.CodeNotFound, `no namespace "nowhere"`)
	refused(t, c, apply(1, func(a *Apply) { a.Expect = 3 }), skerry.CodeConflict, "not at generation 3")
	refused(t, c, Scale{Service: skerry.ServiceKey{App: shop, Service: "web"}}, skerry.CodeNotFound, "no application")
	refused(t, c, DeleteInstance{ID: "web-x"}, skerry.CodeNotFound, "no instance")
	refused(t, c, PutNamespace{Namespace: Namespace{Name: "x", Org: "nobody"}}, skerry.CodeNotFound, "no organisation")
	do(t, c, PutOrg{Org: Org{Name: "other"}})
	refused(t, c, PutNamespace{Namespace: Namespace{Name: "default", Org: "other"}}, skerry.CodeConflict, "exists already")
	refused(t, c, DeleteOrg{Name: "harbour"}, skerry.CodeConflict, "still owns namespace default")
	do(t, c, apply(1))
	refused(t, c, DeleteNamespace{Name: "default"}, skerry.CodeConflict, "still holds application shop")
	do(t, c, apply(1, func(a *Apply) {
		a.App.Metadata.Name = "batch"
		a.App.Spec.Services[0].Replicas, a.App.Spec.Services[0].Mode = nil, spec.ModeJob
	}))
	refused(t, c, Scale{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "batch"}, Service: "web"}, Replicas: 2}, skerry.CodeInvalid, "has no replicas")
	refused(t, c, apply(1, func(a *Apply) {
		s := &a.App.Spec.Services[0]
		s.Replicas, s.Mode, s.Cron = nil, spec.ModeCron, &spec.CronSpec{Schedule: "every day"}
	}), skerry.CodeInvalid, "cron.schedule")
}

func TestStateSurvivesLoading(t *testing.T) {
	c := controller(t, Quota{CPU: 9000})
	store := map[string][]byte{}
	keep := func(fx wire.Effects) {
		for _, w := range fx.Writes {
			if w.Value == nil {
				delete(store, w.Key)
			} else {
				store[w.Key] = w.Value
			}
		}
	}
	keep(do(t, c, PutOrg{Org: Org{Name: "harbour", Quota: Quota{CPU: 9000}}}))
	store["ns/default"] = mustJSON(Namespace{Name: "default", Org: "harbour"})
	keep(do(t, c, apply(3)))
	d := New([16]byte{2}, "t")
	for k, v := range store {
		if ours, err := d.Load(k, v); !ours || err != nil {
			t.Fatalf("%s: %v %v", k, ours, err)
		}
	}
	d.Reconcile(now)
	if len(d.InstancesOf(shop)) != 3 || len(d.Unplaced(now)) != 3 || d.App(shop).Gen != 1 {
		t.Errorf("%d instances, %d unplaced", len(d.InstancesOf(shop)), len(d.Unplaced(now)))
	}
	if _, err := d.Load("app/default/x", []byte("{")); err == nil {
		t.Error("a damaged record is taken")
	}
}

// A dry run makes the checks of an apply, tells what it would do, and changes nothing.
func TestDryRun(t *testing.T) {
	c := controller(t, Quota{Instances: 4})
	dry := func(a Apply) Apply { a.DryRun = true; return a }
	try := func(a Apply) Applied {
		t.Helper()
		fx, _ := c.Handle(now, dry(a))
		if fx.Err != nil || len(fx.Writes) > 0 || len(fx.Events) > 0 {
			t.Fatalf("a dry run had effects: %+v", fx)
		}
		return fx.Result.(Applied)
	}
	if res := try(apply(2)); !res.Created || res.Gen != 1 || c.App(shop) != nil {
		t.Errorf("a new application: %+v", res)
	}
	do(t, c, apply(2))
	if res := try(apply(2)); res.Created || !res.Unchanged || res.Gen != 1 {
		t.Errorf("the same again: %+v", res)
	}
	if res := try(apply(3)); res.Created || res.Unchanged || res.Gen != 2 || *c.App(shop).Manifest.Spec.Services[0].Replicas != 2 {
		t.Errorf("another number: %+v", res)
	}
	refused(t, c, dry(apply(5)), skerry.CodeQuota, "")
	refused(t, c, dry(apply(2, func(a *Apply) { a.Expect = 7 })), skerry.CodeConflict, "generation 7")
}
