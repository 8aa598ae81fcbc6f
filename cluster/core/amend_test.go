package core

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

var amendedOptions = Options{Name: "a", Incarnation: "a1", Term: 1, Policies: sched.Policies(),
	Admission: Admission{Trusted: []string{"acme"}}}

// amendedSite is a site that holds an instance for the root, was told to have two while the root was away, and has just told
// the root.
func amendedSite(t *testing.T) (*Core, skerry.AppKey, time.Time) {
	t.Helper()
	c, k, now, _ := amendedSteps(t)
	return c, k, now
}

// amendedSteps gives also what was written at each step to it.
func amendedSteps(t *testing.T) (c *Core, _ skerry.AppKey, now time.Time, steps [][]wire.Write) {
	t.Helper()
	now = time.Unix(1e9, 0)
	c = New(amendedOptions)
	steps = append(steps, c.Start(now).Writes)
	one := 1
	app := spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication, Metadata: spec.Metadata{Namespace: "acme", Name: "shop"},
		Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{{Name: "web", Replicas: &one}}}}
	app.Spec.Services[0].Image = "web:1"
	app.SetDefaults()
	s := app.Spec.Services[0]
	k := skerry.ServiceKey{App: app.Key(), Service: "web"}
	var fx wire.Effects
	c.intake.accept(now, spec.Assignment{ID: "web-raaaaaaaa", Service: k, Org: "acme", Gen: 3, Revision: s.Revision(), Spec: s, Fence: skerry.Fence{RootEpoch: 9}}, "root", &fx)
	steps = append(steps, fx.Writes)
	if fx = c.Step(now, apps.Scale{Service: k, Replicas: 2, Actor: "otto"}); fx.Err != nil {
		t.Fatal(fx.Err)
	}
	steps = append(steps, fx.Writes, c.Step(now, ParentUp{Welcome: &wire.Welcome{}}).Writes)
	if !c.amender.overrides.Has(k.App) || c.amender.overrides.Awaits(&wire.Amended{App: k.App}) {
		t.Fatal("the root was told of nothing")
	}
	return c, k.App, now, steps
}

// A commit that a slow disk or its size divides may end in a crash after any of its writes, also that of a change and that of its end.
func TestAmendmentIsTorn(t *testing.T) {
	c, k, now, steps := amendedSteps(t)
	var told wire.Amendment
	if value, ok := c.Up.Observed.Get(wire.AmendmentKey(k)); !ok || wire.New().Unmarshal(value, &told) != nil {
		t.Fatal("the root was told of nothing")
	}
	var answered wire.Effects
	c.amender.amendedItem(now, wire.AmendedKey(k), wire.New().Marshal(&wire.Amended{App: k, Seq: told.Seq, Why: "no"}), &answered)
	c.settle(now, &answered, nil)
	kv, cuts := map[string][]byte{}, 0
	for i, step := range append(steps, answered.Writes) {
		for n, w := range step {
			if kv[w.Key] = w.Value; w.Value == nil {
				delete(kv, w.Key)
			}
			next := New(amendedOptions)
			for key, value := range kv {
				if err := next.Load(key, value); err != nil {
					t.Fatalf("step %d, %d writes: %v", i, n+1, err)
				}
			}
			next.Start(now)
			if faults := next.Audit(); len(faults) > 0 {
				t.Errorf("step %d, %d writes: %q", i, n+1, faults)
			}
			cuts++
		}
	}
	if cuts < 10 {
		t.Errorf("only %d writes", cuts)
	}
}

// An answer to something else, or about something else, is none.
func TestAnswersToOtherAmendments(t *testing.T) {
	c, k, now := amendedSite(t)
	var told wire.Amendment
	if value, ok := c.Up.Observed.Get(wire.AmendmentKey(k)); !ok || wire.New().Unmarshal(value, &told) != nil {
		t.Fatal("the root was told of nothing")
	}
	var fx wire.Effects
	seq := told.Seq
	for _, x := range []wire.Amended{{App: k, Seq: seq - 1, Adopted: 4}, {App: k, Seq: seq + 1, Adopted: 4}, {App: skerry.AppKey{Namespace: "acme", Name: "bank"}, Seq: seq, Adopted: 4}} {
		c.amender.amendedItem(now, wire.AmendedKey(k), wire.New().Marshal(&x), &fx)
		if !c.amender.overrides.Has(k) || c.Apps.App(k) == nil {
			t.Fatalf("%+v was taken", x)
		}
	}
	c.amender.amendedItem(now, wire.AmendedKey(k), wire.New().Marshal(&wire.Amended{App: k, Seq: seq, Why: "no"}), &fx)
	if c.amender.overrides.Has(k) || c.Apps.App(k) != nil {
		t.Error("it was not taken")
	}
}

// FuzzAmended has the root answer anything.
func FuzzAmended(f *testing.F) {
	k := skerry.AppKey{Namespace: "acme", Name: "shop"}
	f.Add("amended/acme/shop", []byte{0xa0})
	f.Add("amended/acme/shop", wire.New().Marshal(&wire.Amended{App: k, Seq: 2, Adopted: 4}))
	f.Add("amended//", wire.New().Marshal(&wire.Amended{App: k, Seq: 1, Why: "no"}))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		c, k, now := amendedSite(t)
		var fx wire.Effects
		c.amender.amendedItem(now, key, data, &fx)
		if c.amender.overrides.Has(k) != (c.Apps.App(k) != nil) {
			t.Error("half of it was given back")
		}
		c.Tick(now.Add(time.Minute))
		if faults := c.Audit(); len(faults) > 0 {
			t.Error(faults)
		}
	})
}

// TestDelegatedTokens: what is delegated to a site keeps the root's part of its token, and the site's own is given with each place.
// Were it kept, an instance that lost its place would show one that was overtaken.
func TestDelegatedTokens(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := textSite(t, now, "")
	a, _ := c.onlyAssignment(t)
	a.ID, a.Fence, a.Service.App.Name = "web-raaaaaaaa", skerry.Fence{RootEpoch: 9}, "shop"
	var fx wire.Effects
	c.intake.accept(now, a, "root", &fx)
	c.settle(now, &fx, nil)
	if p := c.places[a.ID]; p == nil || p.A.Fence.Sequence == 0 {
		t.Fatalf("it has no place: %+v", p)
	}
	if c.amender.amend(now, a.Service.App, apps.Scale{Service: a.Service, Replicas: 2}, &fx); fx.Err != nil {
		t.Fatal(fx.Err)
	}
	if f := c.Apps.Instance(a.ID).Fence; f != (skerry.Fence{RootEpoch: 9}) {
		t.Errorf("it has %s", f)
	}
}

// TestFailoverOfDelegated: that an instance ends when the site is out of touch holds at once, also where the rest of what the root wants
// of its application waits for an answer: the root takes it as confirmed.
func TestFailoverOfDelegated(t *testing.T) {
	site := newOverlayNetSite(t)
	site.join(1)
	root, web := newRootOf(site), key("acme", "shop")
	one := 1
	app := spec.Application{Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{{Name: "web", Replicas: &one}}}}
	app.Spec.Services[0].Image = "web:1"
	app.SetDefaults()
	asked := spec.Assignment{ID: "web-raaaaaaaa", Service: web, Org: "acme", Gen: 3, Spec: app.Spec.Services[0],
		Fence: skerry.Fence{RootEpoch: 9}}
	asked.Revision = asked.Spec.Revision()
	tell := func() {
		t.Helper()
		root.put(map[string][]byte{wire.AssignmentKey(asked.ID): wire.New().Marshal(&asked)})
	}
	tell()
	site.do(ParentDown{})
	site.do(apps.Scale{Service: web, Replicas: 2, Actor: "otto"})
	site.do(ParentUp{Welcome: &wire.Welcome{Incarnation: "root"}})
	asked.Failover, asked.Gen = true, 9
	tell()
	p := site.c.places[asked.ID]
	if p == nil || !site.c.amender.overrides.Has(web.App) {
		t.Fatalf("got %+v, delegated: %v, want it to be delegated", p, site.c.amender.overrides.Has(web.App))
	}
	if !p.A.Failover || p.A.Gen == asked.Gen {
		t.Errorf("got fail-over %v and generation %d, want that alone to be taken", p.A.Failover, p.A.Gen)
	}
}

// TestGenerationOfTheRoot: a site that has no manifest of an application of the root does not say that a generation is not kept.
func TestGenerationOfTheRoot(t *testing.T) {
	now := time.Unix(1e9, 0)
	c := New(amendedOptions)
	c.Start(now)
	s := spec.ServiceSpec{Name: "web"}
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}
	var fx wire.Effects
	c.intake.accept(now, spec.Assignment{ID: "web-raaaaaaaa", Service: k, Org: "acme", Gen: 3, Revision: "r", Spec: s,
		Fence: skerry.Fence{RootEpoch: 9}}, "root", &fx)
	for _, gen := range []skerry.Generation{0, 2, 3} {
		if v, err := c.AppView(k.App, gen); err != nil || v.Manifest != nil {
			t.Errorf("generation %d: got %v, %v, want it without a manifest", gen, v.Manifest, err)
		}
	}
}
