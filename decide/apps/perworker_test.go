package apps

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestPerWorkerThatHasDoneItsWork: a site that says so, which none of ours does, gets another one. That is wanted; less than none never is.
func TestPerWorkerThatHasDoneItsWork(t *testing.T) {
	s := newSite(t)
	s.c.SetTargets([]string{"site"})
	s.tell(apply(1, func(a *Apply) {
		x := &a.App.Spec.Services[0]
		x.Mode, x.Replicas, x.Restart.Policy = spec.ModePerWorker, nil, "onFailure"
	}))
	var fx wire.Effects
	for _, i := range s.c.Unplaced(s.now) {
		s.c.Place(s.now, i, "site", i.Fence, &wire.Decision{}, &fx)
	}
	for _, i := range s.c.InstancesOf(shop) {
		s.c.Observe(s.now, "site", wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Terminated}, &fx)
	}
	s.take(fx)
	s.now = s.now.Add(time.Second)
	s.take(s.c.Reconcile(s.now))
	if v := s.view(); v.Want != 1 || v.Ready != 0 {
		t.Errorf("%d of %d", v.Ready, v.Want)
	}
}
