package cluster

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/fleet"
	"skerry.dev/skerry/internal/wire"
	"skerry.dev/skerry/reconcile"
)

// TestOrphanThatDoesNotRun: a site that was rolled back leaves alone what runs and what it does not know. What its worker has on its
// list and does not run is taken off it: it would start with the next agent, with nobody to end it.
func TestOrphanThatDoesNotRun(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1})
	c.Start(now)
	codec := wire.New()

	// What the worker was told by the site, before that forgot it.
	told, held := reconcile.NewSource(fleet.Desired, "s/", "a1", reconcile.Options{}), reconcile.NewReplica(fleet.Desired, "r/", reconcile.Options{})
	for _, id := range []skerry.InstanceID{"listed", "runs"} {
		if _, err := told.Put(skerry.AssignmentKey(id), codec.Marshal(&skerry.Assignment{ID: id})); err != nil {
			t.Fatal(err)
		}
	}
	told.Connect(now, held.State())
	for _, m := range told.Next(now) {
		held.Apply(m)
	}
	runs := reconcile.NewSource(fleet.Observed, "o/", "w1", reconcile.Options{})
	if _, err := runs.Put(skerry.AssignmentKey("runs"), codec.Marshal(&skerry.Observation{ID: "runs", State: skerry.Running})); err != nil {
		t.Fatal(err)
	}

	var down []skerry.Outgoing
	hello := &skerry.Hello{Name: "w", Sets: []skerry.SetAck{held.State(), {Set: fleet.Observed, Incarnation: runs.Incarnation(), Gen: runs.Gen()}}}
	down = c.Step(now, ChildUp{Hello: hello}).Sends
	runs.Connect(now, skerry.SetAck{Set: fleet.Observed})
	up := runs.Next(now)
	for range 20 {
		for _, s := range down {
			if m, ok := s.Msg.(*skerry.SetAck); ok {
				runs.Handle(now, m)
				continue
			}
			up = append(up, held.Apply(s.Msg.(skerry.Message)).Reply...)
		}
		down = nil
		for _, m := range up {
			down = append(down, c.Step(now, ChildFrame{Name: "w", Msg: m}).Sends...)
		}
		up = nil
	}
	if !c.Kids.Get("w").Settled() {
		t.Fatal("they do not come to rest")
	}
	if _, _, ok := held.Get(skerry.AssignmentKey("listed")); ok {
		t.Error("what does not run stays on the list")
	}
	if _, orphan, ok := held.Get(skerry.AssignmentKey("runs")); !ok || !orphan {
		t.Error("what runs was ended")
	}
}
