package core

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestOlderTokens: what the root said before it gave an instance another token changes nothing, of instances and of perWorker services.
func TestOlderTokens(t *testing.T) {
	for _, mode := range []spec.Mode{spec.ModeService, spec.ModePerWorker} {
		now := time.Unix(1_700_000_000, 0)
		c := textSite(t, now, "")
		a, _ := c.onlyAssignment(t)
		a.ID, a.Service.Service, a.Spec.Mode, a.Gen, a.Fence = "one-1", "one", mode, 7, skerry.Fence{RootEpoch: 5}
		var fx wire.Effects
		c.intake.accept(now, a, "root", &fx)
		c.settle(now, &fx, nil)
		var p *placement
		for _, p = range c.places {
			if p.A.Service == a.Service {
				break
			}
		}
		if p.A.Service != a.Service || p.Worker != "w" {
			t.Fatalf("%s: it is not placed: %+v", mode, p)
		}
		key := wire.AssignmentKey(p.A.ID)
		told, _ := c.Children.Get("w").Desired.Get(key)
		before := p.A

		old := a
		old.Fence.RootEpoch, old.Gen, old.Restart, old.Spec.Command = 4, 8, 3, []string{"/bin/old"}
		old.Revision = "old"
		var none wire.Effects
		c.intake.accept(now, old, "root", &none)
		c.settle(now, &none, nil)
		if n := c.Up.Ignored.All()[members.IgnoredToken]; n != 1 {
			t.Errorf("%s: %d are counted", mode, n)
		}
		if p := c.places[p.A.ID]; p == nil {
			t.Fatalf("%s: it is gone", mode)
		} else if a := p.A; a.Fence != before.Fence || a.Gen != before.Gen || a.Restart != before.Restart || a.Revision != before.Revision {
			t.Errorf("%s: it is taken over: %+v", mode, a)
		}
		if g := c.groups[a.ID]; g != nil && (g.A.Fence != a.Fence || g.A.Gen != a.Gen) {
			t.Errorf("%s: it is taken over: %+v", mode, g.A)
		}
		if now, _ := c.Children.Get("w").Desired.Get(key); string(now) != string(told) {
			t.Errorf("%s: its worker is told something else", mode)
		}
	}
}

// TestTokenCounterIsKept: a site that was started again gives no token that it gave before, also not when the instance that had the last
// one is gone, so that no record but the counter's knows it.
func TestTokenCounterIsKept(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	kv := map[string][]byte{}
	opt := Options{Name: "a", Incarnation: "a1", Term: 1}
	c := New(opt)
	keep := func(fx wire.Effects) {
		for _, w := range fx.Writes {
			if kv[w.Key] = w.Value; w.Value == nil {
				delete(kv, w.Key)
			}
		}
	}
	keep(c.Start(now))
	keep(c.Step(now, apps.PutOrg{Org: apps.Org{Name: "default"}}))
	gone := &placement{A: spec.Assignment{ID: "gone-1", Fence: skerry.Fence{RootEpoch: 1}}}
	var fx wire.Effects
	last := c.mint(gone, &fx)
	keep(fx)

	c = New(opt)
	for k, v := range kv {
		if err := c.Load(k, v); err != nil {
			t.Fatal(err)
		}
	}
	keep(c.Start(now))
	if next := c.mint(gone, &fx); next.Compare(last) <= 0 {
		t.Errorf("after the restart it gives %s, and gave %s before", next, last)
	}
}

// TestForgedTokens: a worker that speaks under a token far above all that its site ever gave, or about an instance that another one was
// given, is noted for it; one that a restored site has forgotten is not.
func TestForgedTokens(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for what, x := range map[string]struct {
		edit  func(c *Core, p *placement, o *wire.Observation)
		noted bool
	}{
		"its own":        {func(*Core, *placement, *wire.Observation) {}, false},
		"a little ahead": {func(c *Core, _ *placement, o *wire.Observation) { o.Fence.Sequence = c.seq + forged }, false},
		"never given":    {func(c *Core, _ *placement, o *wire.Observation) { o.Fence.Sequence = c.seq + forged + 1 }, true},
		"of another term": {func(c *Core, _ *placement, o *wire.Observation) {
			o.Fence.ClusterTerm, o.Fence.Sequence = 9, c.seq+forged+1
		}, false},
		"what another was given": {func(_ *Core, p *placement, _ *wire.Observation) { p.Worker = "x" }, true},
	} {
		c := textSite(t, now, "")
		a, _ := c.onlyAssignment(t)
		p, w := c.places[a.ID], c.workers["w"]
		o := wire.Observation{ID: a.ID, Fence: p.A.Fence}
		x.edit(c, p, &o)
		var fx wire.Effects
		if c.guard.unknownToken(now, w, p, &o, &fx); (w.trust.Record().Trust == nil) == x.noted {
			t.Errorf("%s: noted is %v, want %v", what, !x.noted, x.noted)
		}
	}
}

// TestViewOfOneGeneration: instances of two revisions may have one generation, as after a site's change was adopted; what is shown of them
// is the same each time.
func TestViewOfOneGeneration(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := textSite(t, now, "")
	a, _ := c.onlyAssignment(t)
	var fx wire.Effects
	for n, revision := range []string{"r1", "r2"} {
		a.ID, a.Service.Service, a.Gen, a.Revision = skerry.InstanceID("one-"+revision), "one", 7, revision
		a.Fence = skerry.Fence{RootEpoch: 5, Sequence: uint64(n)}
		c.intake.accept(now, a, "root", &fx)
	}
	for range 100 {
		shown := 0
		for _, v := range c.RootApps() {
			for _, s := range v.Services {
				if s.Name != "one" {
					continue
				}
				if shown++; s.Revision != "r1" || s.UpToDate != 1 || s.Instances != 2 {
					t.Fatalf("%d of %d have revision %s", s.UpToDate, s.Instances, s.Revision)
				}
			}
		}
		if shown != 1 {
			t.Fatalf("it is shown %d times", shown)
		}
	}
}
