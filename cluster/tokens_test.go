package cluster

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/apps"
	"skerry.dev/skerry/fleet"
)

// TestOlderTokens: what the root said before it gave an instance another token changes nothing, of instances and of perWorker services.
func TestOlderTokens(t *testing.T) {
	for _, mode := range []skerry.Mode{skerry.ModeService, skerry.ModePerWorker} {
		now := time.Unix(1_700_000_000, 0)
		c := textSite(t, now, "")
		a, _ := c.onlyAssignment(t)
		a.ID, a.Service.Service, a.Spec.Mode, a.Gen, a.Fence = "one-1", "one", mode, 7, skerry.Fence{RootEpoch: 5}
		var fx skerry.Effects
		c.accept(now, a, "root", &fx)
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
		key := skerry.AssignmentKey(p.A.ID)
		told, _ := c.Kids.Get("w").Desired.Get(key)
		before := p.A

		old := a
		old.Fence.RootEpoch, old.Gen, old.Restart, old.Spec.Command = 4, 8, 3, []string{"/bin/old"}
		old.Revision = "old"
		var none skerry.Effects
		c.accept(now, old, "root", &none)
		c.settle(now, &none, nil)
		if n := c.Up.Ignored.All()[fleet.IgnoredToken]; n != 1 {
			t.Errorf("%s: %d are counted", mode, n)
		}
		if p := c.places[p.A.ID]; p == nil || p.A.Fence != before.Fence || p.A.Gen != before.Gen || p.A.Restart != before.Restart || p.A.Revision != before.Revision {
			t.Errorf("%s: it is taken over: %+v", mode, p)
		}
		if g := c.groups[a.ID]; g != nil && (g.A.Fence != a.Fence || g.A.Gen != a.Gen) {
			t.Errorf("%s: it is taken over: %+v", mode, g.A)
		}
		if now, _ := c.Kids.Get("w").Desired.Get(key); string(now) != string(told) {
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
	keep := func(fx skerry.Effects) {
		for _, w := range fx.Writes {
			if kv[w.Key] = w.Value; w.Value == nil {
				delete(kv, w.Key)
			}
		}
	}
	keep(c.Start(now))
	keep(c.Step(now, apps.PutOrg{Org: apps.Org{Name: "default"}}))
	gone := &placement{A: skerry.Assignment{ID: "gone-1", Fence: skerry.Fence{RootEpoch: 1}}}
	var fx skerry.Effects
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
