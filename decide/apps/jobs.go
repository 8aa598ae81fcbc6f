package apps

import (
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/crontab"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// maxRuns is how many runs of a service are remembered.
const maxRuns = 10

// Retries of a run wait for this long after a failure, twice as long after each further one in a row, at most the longest. Kubernetes does
// the same.
const (
	firstRerun   = 10 * time.Second
	longestRerun = 6 * time.Minute
)

// jobs has runs of jobs and schedules begin, go on and end.
type jobs struct{ *lifecycle }

// reconcileJob drives the runs of a job or a schedule.
func (js *jobs) reconcileJob(now time.Time, a *App, s *spec.ServiceSpec, fx *wire.Effects) {
	if a.Runs == nil {
		a.Runs = map[string][]*Run{}
	}
	// What ran before the service became a job belongs to no run.
	for _, i := range js.Instances(skerry.ServiceKey{App: a.Key(), Service: s.Name}) {
		switch {
		case i.Run != "" || i.Stopping:
		case i.State.Final():
			js.discard(now, i, fx)
		default:
			js.stop(now, i, "replaced by a job", fx)
		}
	}
	if s.Mode == spec.ModeCron {
		js.startScheduled(now, a, s, fx)
	} else {
		if !a.jobBegun(s) && js.startWaits(a, s) == "" {
			js.startRun(now, a, s, js.freeRun(a, s, runID(a, s, a.Restarts[s.Name])), true, fx)
		}
	}
	for _, r := range a.Runs[s.Name] {
		js.driveRun(now, a, s, r, fx)
	}
	js.expire(now, a, s, fx)
}

// freeRun makes a run's name one that no run and no instance has had: who goes back to an earlier version of a job wants it run
// again, and what that version did then has nothing to do with it.
func (js *jobs) freeRun(a *App, s *spec.ServiceSpec, id string) string {
	taken := map[string]bool{}
	for _, r := range a.Runs[s.Name] {
		taken[r.ID] = true
	}
	for _, i := range js.byService[skerry.ServiceKey{App: a.Key(), Service: s.Name}] {
		taken[i.Run] = true
	}
	name := id
	for n := 2; taken[name]; n++ {
		name = id + "." + itoa(n)
	}
	return name
}

// runID names the run of a job: there is one for each revision, and for each restart that was asked for.
func runID(a *App, s *spec.ServiceSpec, restarts uint64) string {
	return a.revisions[s.Name] + "." + itoa(int(restarts))
}

// jobBegun reports whether the run of a job has begun that its present version is to have, or the last restart that was asked for.
func (a *App) jobBegun(s *spec.ServiceSpec) bool {
	id, last := runID(a, s, a.Restarts[s.Name]), lastRun(a.Runs[s.Name])
	return last != nil && (last.ID == id || strings.HasPrefix(last.ID, id+"."))
}

// startRun begins a run. replace ends the ones that go on.
func (js *jobs) startRun(now time.Time, a *App, s *spec.ServiceSpec, id string, replace bool, fx *wire.Effects) {
	list := a.Runs[s.Name]
	if replace {
		for _, r := range list {
			if r.Result == "" {
				r.Result, r.EndedAt = "Replaced", now
			}
		}
	}
	list = append(list, &Run{ID: id, Revision: a.revisions[s.Name], StartedAt: now})
	for len(list) > maxRuns && list[0].Result != "" {
		list = list[1:]
	}
	a.Runs[s.Name] = list
	js.saveApp(a, fx)
}

// startScheduled starts the run that is due. Of several missed ones only the last is made up for.
//
// Schedules follow the wall clock, which may jump; waiting follows the monotonic one, and looks again in time.
func (js *jobs) startScheduled(now time.Time, a *App, s *spec.ServiceSpec, fx *wire.Effects) {
	sched, err := crontab.Parse(s.Cron.Schedule)
	if err != nil {
		return // apply has checked it
	}
	wall := now.Round(0)
	last := lastRun(a.Runs[s.Name])
	from := a.scheduledFrom(s.Name).Round(0)
	if crontab.SetBack(sched, from, wall) {
		a.setBack(s.Name, wall)
		from = wall
	}
	due, next := crontab.Due(sched, from, wall)
	if !due.IsZero() {
		goesOn := last != nil && last.Result == ""
		if goesOn && s.Cron.Concurrency == "forbid" {
			js.appEvent(fx, now, a, s.Name, "RunSkipped", "the last run has not ended")
			last.Seen = due // so that the schedule moves on
			js.saveApp(a, fx)
		} else {
			js.startRun(now, a, s, js.freeRun(a, s, due.Format("20060102t150405")), s.Cron.Concurrency == "replace", fx)
		}
	}
	if !next.IsZero() {
		js.wakeAt(a.Key(), now.Add(min(next.Sub(wall), crontab.Check)))
	}
}

// driveRun keeps a run's instances going until it has succeeded or failed.
func (js *jobs) driveRun(now time.Time, a *App, s *spec.ServiceSpec, r *Run, fx *wire.Effects) {
	active, changed := 0, false
	for _, i := range js.Instances(skerry.ServiceKey{App: a.Key(), Service: s.Name}) {
		if i.Run != r.ID {
			continue
		}
		switch {
		case i.State == skerry.Terminated && !i.counted && !i.Stopping:
			i.counted = true
			changed = true
		case i.State == skerry.Failed && !i.counted:
			i.counted = true
			changed = true
		}
		if i.Live() && i.State != skerry.Failed {
			if r.Result != "" {
				js.stop(now, i, "its run has ended: "+r.Result, fx)
			} else {
				active++
			}
		}
	}
	if changed {
		js.count(now, a, s, r)
		js.saveApp(a, fx)
	}
	if r.Result != "" {
		return
	}
	switch {
	case r.Succeeded >= *s.Job.Completions:
		r.Result, r.EndedAt = "Succeeded", now
	case r.Failed > *s.Job.BackoffLimit:
		r.Result, r.EndedAt = "Failed", now
	case js.tooLate(now, a, s, r, active):
		r.Result, r.EndedAt = "Failed", now
	case r.retryAt.After(now):
		js.wakeAt(a.Key(), r.retryAt)
		return
	default:
		for n := min(*s.Job.Parallelism, *s.Job.Completions-r.Succeeded) - active; n > 0; n-- {
			js.create(now, a, s, r.Succeeded+r.Failed+active, "", r.ID, fx)
			active++
		}
		return
	}
	js.saveApp(a, fx)
	text := itoa(r.Succeeded) + " succeeded, " + itoa(r.Failed) + " failed"
	if r.Reason != "" {
		text += "; " + r.Reason
	}
	js.appEvent(fx, now, a, s.Name, "Job"+r.Result, text)
	js.Look(a.Key()) // ends what is left of it
}

// due is when a run must be done, or the zero time.
func (r *Run) due(s *spec.ServiceSpec) time.Time {
	if s.Job == nil || s.Job.FinishBefore == nil {
		return time.Time{}
	}
	return r.StartedAt.Add(time.Duration(*s.Job.FinishBefore))
}

// tooLate reports whether a run cannot be done before its deadline, and says why: what is left, in rounds of
// job.parallelism, takes longer by the estimate given or by what instances of earlier runs took.
func (js *jobs) tooLate(now time.Time, a *App, s *spec.ServiceSpec, r *Run, active int) bool {
	due := r.due(s)
	if due.IsZero() {
		return false
	}
	js.wakeAt(a.Key(), due)
	left := due.Sub(now)
	if left <= 0 {
		r.Reason = "it was not done within " + s.Job.FinishBefore.String()
		return true
	}
	estimate, from := time.Duration(0), "earlier runs"
	for _, o := range a.Runs[s.Name] {
		estimate = max(estimate, o.Took)
	}
	if s.Job.Estimate != nil {
		estimate, from = time.Duration(*s.Job.Estimate), "the estimate"
	}
	open := *s.Job.Completions - r.Succeeded - active // those that run are on their way
	if r.Succeeded+r.Failed+active > 0 {
		return false // it was begun, and an estimate is no more than that: it has until its deadline
	}
	rounds := (open + *s.Job.Parallelism - 1) / *s.Job.Parallelism
	if need := time.Duration(max(rounds, 0)) * estimate; need > left {
		r.Reason = itoa(open) + " instances, " + itoa(*s.Job.Parallelism) + " at a time, take " + need.String() + " by " + from + ", and " + left.Truncate(time.Millisecond).String() + " are left"
		return true
	}
	return false
}

// count takes a run's result from its instances; those already dropped were counted before and only raise the numbers.
func (js *jobs) count(now time.Time, a *App, s *spec.ServiceSpec, r *Run) {
	ok, bad, before := 0, 0, *r
	for _, i := range js.byService[skerry.ServiceKey{App: a.Key(), Service: s.Name}] {
		if i.Run != r.ID {
			continue
		}
		switch {
		case i.State == skerry.Terminated && !i.Stopping:
			ok++
			if i.Exit != nil && !i.StartedAt.IsZero() {
				r.Took = max(r.Took, min(i.Exit.At.Sub(i.StartedAt), now.Sub(r.StartedAt))) // the first two are by another clock
			}
		case i.State == skerry.Failed:
			bad++
		}
	}
	r.Succeeded, r.Failed = max(r.Succeeded, ok), max(r.Failed, bad)
	if r.Succeeded > before.Succeeded {
		r.forgiven, r.retryAt = r.Failed, time.Time{}
	} else if r.Failed > before.Failed {
		r.retryAt = now.Add(min(firstRerun<<min(r.Failed-r.forgiven-1, 10), longestRerun))
	}
}

// expire ends the records of instances whose time to be shown is over.
func (js *jobs) expire(now time.Time, a *App, s *spec.ServiceSpec, fx *wire.Effects) {
	for _, i := range js.Instances(skerry.ServiceKey{App: a.Key(), Service: s.Name}) {
		if i.Stopping || i.State != skerry.Terminated && i.State != skerry.Failed {
			continue
		}
		ended := i.since(func(t wire.Step) bool { return t.State == i.State })
		if slices.ContainsFunc(a.Runs[s.Name], func(r *Run) bool { return r.ID == i.Run && r.Result == "" }) {
			continue // its run is counted by what is here
		}
		if at := ended.Add(time.Duration(*s.Job.TTL)); at.After(now) {
			js.wakeAt(a.Key(), at)
		} else {
			js.discard(now, i, fx)
		}
	}
}
