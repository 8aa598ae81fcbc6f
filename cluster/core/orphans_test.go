package core

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestOrphanThatDoesNotRun: a site that was rolled back leaves alone what runs and what it does not know. What its worker has on its
// list and does not run is taken off it: it would start with the next agent, with nobody to end it.
func TestOrphanThatDoesNotRun(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1})
	c.Start(now)
	codec := wire.New()

	// What the worker was told by the site, before that forgot it.
	told, held := reconcile.NewSource(members.Desired, "s/", "a1", reconcile.Options{}), reconcile.NewReplica(members.Desired, "r/", reconcile.Options{})
	for _, id := range []skerry.InstanceID{"listed", "runs"} {
		if _, err := told.Put(wire.AssignmentKey(id), codec.Marshal(&spec.Assignment{ID: id})); err != nil {
			t.Fatal(err)
		}
	}
	told.Connect(now, held.State())
	for _, m := range told.Next(now) {
		held.Apply(m)
	}
	runs := reconcile.NewSource(members.Observed, "o/", "w1", reconcile.Options{})
	if _, err := runs.Put(wire.AssignmentKey("runs"), codec.Marshal(&wire.Observation{ID: "runs", State: skerry.Running})); err != nil {
		t.Fatal(err)
	}

	exchange(c, now, runs, held)
	if !c.Children.Get("w").Settled() {
		t.Fatal("they do not come to rest")
	}
	if _, _, ok := held.Get(wire.AssignmentKey("listed")); ok {
		t.Error("what does not run stays on the list")
	}
	if _, orphan, ok := held.Get(wire.AssignmentKey("runs")); !ok || !orphan {
		t.Error("what runs was ended")
	}
}

// A site that is rebuilt takes up what it gave a worker itself, and not what a worker has made up: that would run at other workers next,
// under any organisation's name. Nor is a copy that every worker is to have taken up from another one.
func TestMadeUpAssignments(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	admission := Admission{Trusted: []string{"acme"}}
	first := New(Options{Name: "a", Incarnation: "a1", Term: 1, Admission: admission, Secret: [32]byte{1}})
	first.Start(now)
	first.workers["w"] = &worker{Name: "w"}
	codec := wire.New()
	one := 1
	honest := spec.Assignment{ID: "web-cabcdefgh", Org: "acme", Service: key("acme", "shop"), Gen: 1, Fence: skerry.Fence{RootEpoch: 5, ClusterTerm: 1, Sequence: 6}, Spec: spec.ServiceSpec{Name: "web", Mode: spec.ModeService, Replicas: &one}}
	honest.Spec.Image = "web:1"
	other, forged, stripped := honest, honest, honest
	honestValue := first.given("w", &honest)
	first.workers["other"] = &worker{Name: "other"}
	first.given("other", &other)
	forged.Seal, forged.Spec.Security.Privileged = honest.Seal, true
	for what, value := range map[string][]byte{"": honestValue, "another worker's": codec.Marshal(&other), "changed": codec.Marshal(&forged), "without a seal": codec.Marshal(&stripped)} {
		c := New(Options{Name: "a", Incarnation: "a2", Term: 1 << 20, Rebuild: true, Admission: admission, Secret: [32]byte{1}})
		c.Start(now)
		told, held := reconcile.NewSource(members.Desired, "s/", "a1", reconcile.Options{}), reconcile.NewReplica(members.Desired, "r/", reconcile.Options{})
		if _, err := told.Put(wire.AssignmentKey(honest.ID), value); err != nil {
			t.Fatal(err)
		}
		told.Connect(now, held.State())
		for _, m := range told.Next(now) {
			held.Apply(m)
		}
		runs := reconcile.NewSource(members.Observed, "o/", "w1", reconcile.Options{})
		if _, err := runs.Put(wire.AssignmentKey(honest.ID), codec.Marshal(&wire.Observation{ID: honest.ID, Gen: 1, Fence: honest.Fence, State: skerry.Running, Ready: true})); err != nil {
			t.Fatal(err)
		}
		exchange(c, now, runs, held)
		c.Tick(c.rebuilder.rebuild.Due(c.rebuilder.rootAway()))
		r := c.Rebuilt()
		if taken := len(r.Local) == 1; r.Waiting || taken != (what == "") || taken == (c.Apps.App(honest.Service.App) == nil) {
			t.Errorf("%q: %+v", what, r)
		}
		if what != "" && (len(r.Left) != 1 || !strings.Contains(r.Left[0].Why, "not shown")) {
			t.Errorf("%s: %+v", what, r.Left)
		}
		if fx := c.Step(now, apps.DecideOrphan{Name: string(honest.ID), Adopt: true}); what != "" && (fx.Err == nil || !strings.Contains(fx.Err.Error(), "not shown")) {
			t.Errorf("%s: adopted by hand: %v", what, fx.Err)
		}
	}
}

// exchange connects worker w to the site, and has both say all they have to say. It gives what the site writes and tells meanwhile.
func exchange(c *Core, now time.Time, runs *reconcile.Source, held *reconcile.Replica) (all wire.Effects) {
	step := func(msg any) []wire.Outgoing {
		fx := c.Step(now, msg)
		all.Writes, all.Events = append(all.Writes, fx.Writes...), append(all.Events, fx.Events...)
		return fx.Sends
	}
	hello := &wire.Hello{Name: "w", Sets: []wire.SetAck{held.State(), {Set: members.Observed, Incarnation: runs.Incarnation(), Gen: runs.Gen()}}}
	down := step(ChildUp{Hello: hello})
	runs.Connect(now, wire.SetAck{Set: members.Observed})
	up := runs.Next(now)
	for range 20 {
		for _, s := range down {
			if m, ok := s.Msg.(*wire.SetAck); ok {
				runs.Handle(now, m)
				continue
			}
			up = append(up, held.Apply(s.Msg.(wire.Message)).Reply...)
		}
		down = nil
		for _, m := range up {
			down = append(down, step(ChildFrame{Name: "w", Msg: m})...)
		}
		up = nil
	}
	return all
}
