package core

import (
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestEndedIsNotDoneAgain: what ended on a worker stays known until its owner takes it back. Meanwhile the worker may be removed and
// come back empty, or another kind of agent may take its name over: neither is to do the work again.
func TestEndedIsNotDoneAgain(t *testing.T) {
	for _, removed := range []bool{true, false} {
		t.Run(fmt.Sprintf("removed %v", removed), func(t *testing.T) {
			now := time.Unix(1_700_000_000, 0)
			c := textSite(t, now, wire.CarrierMQTT)
			a, _ := c.onlyAssignment(t)
			a.ID, a.Fence, a.Spec.Mode = "sum-1", skerry.Fence{RootEpoch: 1}, spec.ModeJob
			var fx wire.Effects
			c.intake.accept(now, a, "root", &fx)
			c.settle(now, &fx, nil)
			key := wire.AssignmentKey(a.ID)
			told := func() bool {
				k := c.Children.Get("w")
				if k == nil {
					return false
				}
				_, ok := k.Desired.Get(key)
				return ok
			}
			p := c.places[a.ID]
			if !told() {
				t.Fatalf("it was not placed: %+v", p)
			}
			c.reports.observe(now, "w", wire.Observation{ID: a.ID, Gen: a.Gen, Fence: p.A.Fence, State: skerry.Terminated, Phase: skerry.PhaseExited}, &fx)
			if !told() || c.places[a.ID] != p || !p.ended() {
				t.Fatalf("it did not end: %+v", p)
			}

			c.Step(now, ChildDown{Name: "w"})
			carrier := ""
			if removed {
				if fx := c.Step(now, RemoveWorker{Name: "w"}); fx.Err != nil {
					t.Fatal(fx.Err)
				}
				carrier = wire.CarrierMQTT
			}
			c.Step(now, ChildUp{Hello: &wire.Hello{Name: "w", Carrier: carrier}})
			if told() {
				t.Error("the worker is to do it again")
			}
			a.Gen++ // something else of the application changed
			c.intake.accept(now, a, "root", &fx)
			if told() {
				t.Error("the worker is to do it again after a change")
			}
			if c.places[a.ID] == nil || !c.places[a.ID].ended() {
				t.Error("its owner would not learn how it ended")
			}
		})
	}
}
