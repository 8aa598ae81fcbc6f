package apps

import (
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
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

// follows reports whether the generation of an instance is its application's, whatever its record has: that of the last change of its own.
// A change of an application that leaves a service's template alone is then one record, and not one for each instance as well. A site has
// delegated applications change otherwise, and claims of volumes follow from what is saved.
func (i *Instance) follows(a *App) bool {
	s := a.Manifest.Spec.Service(i.Service.Service)
	return s != nil && (s.Mode == "" || s.Mode == spec.ModeService || s.Mode == spec.ModePerWorker) && !s.KeepsData() && a.Deployed &&
		!a.Deleting && !a.Delegated && i.Live() && i.Run == "" && i.Resize == nil && i.Revision == a.revisions[s.Name]
}

// keepGenerations writes down the generation of instances that no longer follow their application, as it has another template for them.
func (l *lifecycle) keepGenerations(a *App, fx *wire.Effects) {
	var late []*Instance
	for _, k := range l.servicesWithInstances(a.Key()) {
		for _, i := range l.byService[k] {
			if i.behind && !i.follows(a) {
				late = append(late, i)
			}
		}
	}
	slices.SortFunc(late, func(x, y *Instance) int { return strings.Compare(string(x.ID), string(y.ID)) })
	for _, i := range late {
		l.saveInstance(i, fx)
	}
}

func noLater(t *time.Time, now time.Time) {
	if t.After(now) {
		*t = now
	}
}
