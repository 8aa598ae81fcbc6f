package apps

import (
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// A version of a service, or a run of a job, begins when others are as far as startAfter says. What has begun goes on, whatever becomes
// of them: an instance that is replaced waits for nobody, and neither does a version that an update goes back to.

// startWaits says what a service waits for before it begins, or "".
func (instances *ledger) startWaits(app *App, service *spec.ServiceSpec) string {
	for _, after := range service.StartAfter {
		other := app.Manifest.Spec.Service(after.Service)
		if other == nil {
			continue // apply has checked it
		}
		switch {
		case after.Condition == spec.AfterCompleted:
			run := lastRun(app.Runs[other.Name])
			switch {
			case run == nil || run.Revision != app.revisions[other.Name] || run.Result == "":
				return "job " + other.Name + " is to succeed first"
			case run.Result != "Succeeded":
				return "job " + other.Name + " is to succeed first, and has ended: " + run.Result
			}
		case !instances.begun(app, other, after.Condition != spec.AfterRunning):
			return "service " + other.Name + " is to be " + after.Condition + " first"
		}
	}
	return ""
}

// begun reports whether an instance of a service's present version runs, or is ready.
func (l *ledger) begun(a *App, s *spec.ServiceSpec, ready bool) bool {
	return slices.ContainsFunc(l.Instances(skerry.ServiceKey{App: a.Key(), Service: s.Name}), func(i *Instance) bool {
		switch {
		case i.Stopping || i.Revision != a.revisions[s.Name]:
			return false
		case s.Mode.HasCopies() && i.Have > 0: // of the copies at its site one is ready, beside those of the version before
			return true
		case ready:
			return i.IsReady()
		}
		return i.State == skerry.Running || i.State == skerry.Terminated
	})
}

func lastRun(list []*Run) *Run {
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}
