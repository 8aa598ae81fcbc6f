package apps

import (
	"slices"
	"time"
)

// Start ends loading. What was noted under a clock that was ahead of the present one counts as of now: else nothing would follow
// from it until that time comes.
func (l *lifecycle) Start(now time.Time) {
	l.loading = nil
	for _, i := range l.inst {
		i.Conditions = slices.Clone(i.Conditions)
		for n := range i.Conditions {
			noLater(&i.Conditions[n].Since, now)
		}
		i.Timeline = slices.Clone(i.Timeline)
		for n := range i.Timeline {
			noLater(&i.Timeline[n].At, now)
		}
		if a := l.apps[i.Service.App]; a != nil && i.Gen != a.Gen && i.follows(a) {
			i.Gen, i.Spec, i.behind = a.Gen, a.Manifest.Spec.Service(i.Service.Service), true
			i.shareResources()
		}
	}
	for _, a := range l.apps {
		for _, r := range a.Rollouts {
			r.began = now
			noLater(&r.StartedAt, now)
			noLater(&r.HealthyAt, now)
			noLater(&r.FailedAt, now)
		}
	}
}

func noLater(t *time.Time, now time.Time) {
	if t.After(now) {
		*t = now
	}
}
