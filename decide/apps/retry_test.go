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

// How long something last ran is told by its timeline, also for what stands for the copies at a site.
func TestLastRan(t *testing.T) {
	began := time.Unix(1e9, 0)
	step := func(minute int, state skerry.State, phase skerry.Phase) wire.Step {
		return wire.Step{At: began.Add(time.Duration(minute) * time.Minute), State: state, Phase: phase}
	}
	requested := step(0, skerry.Requested, skerry.PhaseNone)
	for name, c := range map[string]struct {
		target   string
		timeline []wire.Step
		want     int
	}{
		"nothing":       {"", nil, 0},
		"never ran":     {"", []wire.Step{requested, step(1, skerry.WorkerScheduled, skerry.PhaseFetching)}, 0},
		"runs":          {"", []wire.Step{requested, step(2, skerry.Running, skerry.PhaseRunning)}, 58},
		"ran elsewhere": {"", []wire.Step{step(0, skerry.Running, skerry.PhaseRunning), step(9, skerry.Requested, skerry.PhaseNone)}, 0},
		"restarted, and failed": {"", []wire.Step{requested, step(1, skerry.Running, skerry.PhaseRunning),
			step(31, skerry.Running, skerry.PhaseBackOff), step(32, skerry.Running, skerry.PhaseRunning),
			step(35, skerry.Failed, skerry.PhaseExited)}, 3},
		"copies at a site": {"site", []wire.Step{requested, step(1, skerry.WorkerScheduled, skerry.PhaseNone),
			step(2, skerry.Running, skerry.PhaseNone)}, 58},
		"copies that ran": {"site", []wire.Step{requested, step(2, skerry.Running, skerry.PhaseNone),
			step(12, skerry.WorkerScheduled, skerry.PhaseNone)}, 10},
	} {
		i := Instance{Target: c.target}
		i.Timeline = c.timeline
		if got := i.lastRan(began.Add(time.Hour)); got != time.Duration(c.want)*time.Minute {
			t.Errorf("%s: got %v, want %d minutes", name, got, c.want)
		}
	}
}
