package core

import (
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A server that does postStart itself tells with the end of main that it was for that: the restart policy takes it for a failure, whatever
// the status.
func TestEndForAPostStart(t *testing.T) {
	d := newDevice(t)
	a := hookedAssignment(false)
	a.Spec.Restart.Policy = "onFailure"
	i := d.runs(a)
	fx := d.step(Exited{ID: a.ID, Name: spec.MainContainer, Attempt: 1, PostStart: "cold"})
	told := slices.ContainsFunc(fx.Events, func(e wire.Event) bool { return e.Reason == "PostStartFailed" && e.Instance == a.ID })
	if i.Phase != skerry.PhaseBackOff || i.Reason != "postStart of container main failed: cold" || !told {
		t.Errorf("after the end: phase %s because %q, told %t; expected BackOff because of the hook, and an event", i.Phase, i.Reason, told)
	}
}

// What a start waits for is its instance's reason until it has started; a word about another attempt is not.
func TestWaits(t *testing.T) {
	d := newDevice(t)
	a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
	d.wants(a)
	d.step(Prepared{ID: a.ID, Fence: a.Fence})
	i := d.c.ledger.insts[a.ID]
	d.step(Waits{ID: a.ID, Attempt: 7, Text: "old"})
	if d.step(Waits{ID: a.ID, Attempt: 1, Text: "no volume"}); i.Reason != "no volume" {
		t.Errorf("the reason is %q, expected what it waits for", i.Reason)
	}
	d.step(Started{ID: a.ID, Name: spec.MainContainer, Attempt: 1, At: d.now, Handle: []byte(`"h"`)})
	if d.step(Waits{ID: a.ID, Attempt: 1, Text: "late"}); i.Reason != "" {
		t.Errorf("after its start the reason is %q, expected none", i.Reason)
	}
}

// Who meddles with volumes is told of with the instance that has them, else without one.
func TestVolumeDeleted(t *testing.T) {
	d := newDevice(t)
	a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
	for _, want := range []skerry.InstanceID{"", a.ID} {
		if want != "" {
			d.runs(a)
		}
		fx := d.step(VolumeDeleted{Claim: spec.VolumeClaim{Service: a.Service, Volume: "data"}, Text: "gone"})
		if len(fx.Events) != 1 || fx.Events[0].Instance != want || fx.Events[0].App != a.Service.App ||
			!strings.Contains(fx.Events[0].Text, "gone") {
			t.Errorf("the events are %+v, expected one of instance %q", fx.Events, want)
		}
	}
	of := spec.VolumeClaim{Service: a.Service, Ordinal: a.Ordinal, Volume: "data"}
	for _, gone := range []spec.VolumeClaim{of, of.Whole()} {
		d.c.volumes.claims[gone] = &volumes{VolumeClaim: gone, Gone: true}
		if fx := d.step(VolumeDeleted{Claim: of, Text: "gone"}); len(fx.Events) != 0 {
			t.Errorf("the events about a volume that is to go, as %s, are %+v, expected none", gone, fx.Events)
		}
		delete(d.c.volumes.claims, gone)
	}
}
