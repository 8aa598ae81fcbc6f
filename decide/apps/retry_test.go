package apps

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// becomes tells in each second that a service's only instance, if it has a place, is in this state. It returns how often it was placed.
func (s *site) becomes(state skerry.State, phase skerry.Phase, d time.Duration) (placed int) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(time.Second) {
		var fx wire.Effects
		for _, i := range s.c.Unplaced(s.now) {
			s.c.Place(s.now, i, "site", i.Fence, &wire.Decision{}, &fx)
			placed++
		}
		for _, i := range s.c.InstancesOf(shop) {
			if i.Holder != "" {
				o := wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: state, Phase: phase, StartedAt: s.now}
				s.c.Observe(s.now, "site", o, &fx)
			}
		}
		s.take(fx)
		s.take(s.c.Reconcile(s.now))
	}
	return placed
}

// What fails before anybody hears that it ran is tried less and less often, however old it is, and though it once ran for long.
func TestRetriesBecomeRarer(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(1, image("web:1", spec.UpdateSpec{})))
	for _, times := range []string{"first", "again"} { // again: it ran for long meanwhile, and is tried as if it had never failed
		early, later := s.becomes(skerry.Failed, skerry.PhaseNone, time.Minute), s.becomes(skerry.Failed, skerry.PhaseNone, 20*time.Minute)
		if early < 5 || early > 8 || later < 18 || later > 22 {
			t.Errorf("%s: placed %d times in the first minute, then %d times in 20; want 5 to 8, then once a minute", times, early, later)
		}
		s.becomes(skerry.Running, skerry.PhaseRunning, longestWait+2*steady)
	}
}
