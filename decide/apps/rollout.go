package apps

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Rollout is how far a revision of a service has come in taking the place of the one before.
//
//	canary -> watched for its time -> wave -> healthy -> pause -> wave ... -> done
//	   |                               |
//	   +--- too many failures, or not ready in time ---> refused: the revision before comes back, all at once
//
// Of a perWorker service the instances are sites, the canary is the first of them, and the wave all others (see reconcileCopies).
//
// A service has one as soon as it was deployed; the first is done at once, for there is nothing to replace.
type Rollout struct {
	Revision  string            `json:"revision"`
	From      string            `json:"from,omitempty"` // the revision that was last done; empty: there is none to go back to
	Gen       skerry.Generation `json:"generation"`
	StartedAt time.Time         `json:"startedAt"`
	EndedAt   time.Time         `json:"endedAt,omitzero"` // when it was done
	Limit     int               `json:"limit"`            // instances of the revision that there may be by now
	Wave      int               `json:"wave"`             // from 1; the canary is wave 0
	Canary    bool              `json:"canary,omitempty"` // they are being watched
	HealthyAt time.Time         `json:"healthyAt,omitzero"`
	Failures  int               `json:"failures,omitempty"` // restarts and failures of its instances
	FailedAt  time.Time         `json:"failedAt,omitzero"`  // the last of them
	Reason    string            `json:"reason,omitempty"`   // of the last of them
	Told      bool              `json:"told,omitempty"`     // that it fails
	Back      bool              `json:"back,omitempty"`     // to what ran before: without canary, waves and pauses
	// Begun: what its service waits for (startAfter) was as far once.
	Begun bool `json:"begun,omitempty"`
	// Ailing are the ordinals of replicas that served nobody although others of their version did (see findAiling).
	Ailing []int     `json:"ailing,omitempty"`
	began  time.Time // this life of the orchestrator, if that was later
}

// Refused is a revision that failed and was taken back. It is not tried again until the service's manifest changes.
type Refused struct {
	Revision string            `json:"revision"`
	Reason   string            `json:"reason"`
	At       time.Time         `json:"at"`
	Spec     spec.ServiceSpec  `json:"spec"`
	Digests  map[string]string `json:"digests,omitempty"`
}

// everything is above any number of replicas.
const everything = 1 << 20

// rollout moves a service's rollout on. It gives how many instances of the new revision there may be now, of want. It
// reports false when the revision was taken back meanwhile, and the service is to be looked at anew.
func (rs *rollouts) rollout(now time.Time, a *App, s *spec.ServiceSpec, current, old []*Instance, want int, fx *wire.Effects) (int, bool) {
	rev := a.revisions[s.Name]
	r := a.Rollouts[s.Name]
	if r == nil || r.Revision != rev {
		r = rs.startRollout(now, a, s, r, old, want, fx)
	}
	if !r.EndedAt.IsZero() {
		return want, true
	}
	if why := rs.failing(now, a, s, r, current); why != "" {
		if s.Update.Rollback == spec.RollbackAutomatic && !r.Back {
			err := rs.takeBack(now, a, s.Name, r, why, fx)
			if err == nil {
				return 0, false
			}
			why += "; it cannot be taken back: " + skerry.AsError(err).Message
		}
		if !r.Told {
			r.Told, r.Reason = true, why
			rs.saveApp(a, fx)
			rs.appEvent(fx, now, a, s.Name, "RolloutFailing", why)
			fx.Events[len(fx.Events)-1].Type = wire.EventWarning
		}
	}
	if a.Paused[s.Name] != "" || a.waitsTurn(s.Name) != "" {
		return min(len(current), want), true
	}
	limit := min(r.Limit, want)
	healthy := r.healthyAt(s, current)
	if len(current) < limit || len(old) > want-limit || healthy.IsZero() {
		if !r.HealthyAt.IsZero() {
			r.HealthyAt = time.Time{}
			rs.saveApp(a, fx)
		}
		return limit, true
	}
	if now.Before(healthy) {
		rs.wakeAt(a.Key(), healthy)
		return limit, true
	}
	if limit == want && rs.anyStoppingOld(skerry.ServiceKey{App: a.Key(), Service: s.Name}, rev) {
		return limit, true // their end comes back here
	}
	if limit == want {
		rs.endRollout(now, a, s.Name, r, current, want, fx)
		return want, true
	}
	if r.HealthyAt.IsZero() {
		r.HealthyAt = now
		rs.saveApp(a, fx)
	}
	if next := r.next(s); now.Before(next) {
		rs.wakeAt(a.Key(), next)
		return limit, true
	}
	text := "wave " + itoa(r.Wave)
	switch {
	case s.Mode.HasCopies():
		text = "the first site"
	case r.Canary:
		text = "the canary"
	}
	r.Wave++
	r.Canary, r.HealthyAt = false, time.Time{}
	r.Limit = everything
	if s.Update.Batch > 0 && !s.Mode.HasCopies() {
		r.Limit = limit + s.Update.Batch
	}
	rs.saveApp(a, fx)
	rs.appEvent(fx, now, a, s.Name, "Wave", text+" is healthy; wave "+itoa(r.Wave)+" begins, up to "+itoa(min(r.Limit, want))+" of "+
		itoa(want))
	rs.Look(a.Key())
	return min(r.Limit, want), true
}

// held reports whether a version may not begin yet. One that has instances has begun, whatever its manifest says since.
func (rs *rollouts) held(a *App, s *spec.ServiceSpec, roll *Rollout, current []*Instance, fx *wire.Effects) bool {
	if len(s.StartAfter) == 0 || roll.Begun || roll.Back {
		return false
	}
	if len(current) == 0 && rs.startWaits(a, s) != "" {
		return true
	}
	roll.Begun = true
	rs.saveApp(a, fx)
	return false
}

func (rs *rollouts) endRollout(now time.Time, a *App, service string, roll *Rollout, current []*Instance, want int, fx *wire.Effects) {
	roll.EndedAt, roll.Canary = now, false
	rs.Look(a.Key()) // others may wait for it
	rs.saveApp(a, fx)
	runs := want
	for _, i := range current {
		if roll.ails(i) && !i.settled() {
			runs--
		}
	}
	rs.appEvent(fx, now, a, service, "RolledOut", "revision "+roll.Revision+" runs, "+itoa(runs)+" of "+itoa(want))
}

func (rs *rollouts) startRollout(now time.Time, a *App, s *spec.ServiceSpec, was *Rollout, old []*Instance, want int,
	fx *wire.Effects) *Rollout {
	roll := &Rollout{Revision: a.revisions[s.Name], Gen: a.Gen, StartedAt: now, Wave: 1, Limit: everything}
	switch {
	case was == nil && len(old) > 0:
		roll.From = old[0].Revision
	case was != nil && (!was.EndedAt.IsZero() || was.Back): // what it goes back to ran before
		roll.From = was.Revision
	case was != nil:
		roll.From = was.From // the one between never was done
	}
	switch canary := s.Update.Canary; {
	case len(old) == 0:
		roll.EndedAt = now
	case s.Mode.HasCopies():
		if want > 1 && s.Update.Sites != spec.SitesAll {
			roll.Wave, roll.Canary, roll.Limit = 0, true, 1
		}
	case canary != nil:
		roll.Wave, roll.Canary, roll.Limit = 0, true, canary.Of(want)
	case s.Update.Batch > 0:
		roll.Limit = s.Update.Batch
	}
	a.setRollout(s.Name, roll)
	rs.saveApp(a, fx)
	return roll
}

func (a *App) setRollout(service string, r *Rollout) {
	next := map[string]*Rollout{}
	for i := range a.Manifest.Spec.Services { // what is gone is forgotten
		if name := a.Manifest.Spec.Services[i].Name; a.Rollouts[name] != nil {
			next[name] = a.Rollouts[name]
		}
	}
	next[service] = r
	a.Rollouts = next
}

// next is when the wave after a healthy one begins.
func (r *Rollout) next(s *spec.ServiceSpec) time.Time {
	if r.HealthyAt.IsZero() || r.Canary {
		return r.HealthyAt // it was watched for long enough
	}
	return r.HealthyAt.Add(time.Duration(s.Update.Pause))
}

// healthyAt is from when on all instances of a wave count as healthy, if nothing happens until then. The zero time means
// that one is not ready.
func (r *Rollout) healthyAt(s *spec.ServiceSpec, list []*Instance) time.Time {
	since := r.StartedAt
	for _, i := range list {
		if r.ails(i) {
			continue
		}
		if !i.settled() || i.Resize != nil {
			return time.Time{}
		}
		since = latest(since, latest(i.countedAt(), i.Limited))
		if i.Copies == nil {
			since = latest(since, sinceOf(i, skerry.Ready))
		}
	}
	watch := r.watch(s)
	if r.Canary && s.Update.Canary != nil && !s.Mode.HasCopies() {
		watch = max(watch, time.Duration(s.Update.Canary.For))
	}
	return latest(since, r.FailedAt).Add(watch)
}

// watch is for how long an instance of the revision must have been ready to count. Each restart and failure doubles it, and begins it anew:
// a version that ends again and again, and is ready between, takes nobody's place.
func (r *Rollout) watch(s *spec.ServiceSpec) time.Duration {
	watch := s.Update.Healthy()
	if watch == 0 && s.Mode.HasCopies() {
		watch = spec.HealthyTime
	}
	return watch << min(r.Failures, 8)
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// findAiling notes the replicas of the version before that stay where their data is, and serve nobody although others of that version do:
// what is broken may be their worker. The new version comes there last, and what becomes of it there says nothing about it. One that serves
// again before its turn, and not just for a moment, is judged. The same holds for workers of a perWorker service
// (cluster/core/exchange.go).
func (rs *rollouts) findAiling(now time.Time, app *App, svc *spec.ServiceSpec, roll *Rollout, old []*Instance, fx *wire.Effects) {
	if roll == nil || !roll.EndedAt.IsZero() || roll.Back {
		return // those that serve nobody are of the version that failed
	}
	steady := func(i *Instance) bool { return i.IsReady() && !skerry.HasCondition(i.Conditions, skerry.CrashLoop) }
	serving := map[string]bool{}
	for _, i := range old {
		serving[i.Revision] = serving[i.Revision] || steady(i)
	}
	was := slices.Clone(roll.Ailing)
	for _, i := range old {
		at := sinceOf(i, skerry.Ready).Add(svc.Update.Healthy())
		switch ails := roll.ails(i); {
		case ails && steady(i) && now.Before(at):
			rs.wakeAt(app.Key(), at)
		case ails && steady(i):
			roll.Ailing = slices.DeleteFunc(roll.Ailing, func(ordinal int) bool { return ordinal == i.Ordinal })
		case !ails && !steady(i) && serving[i.Revision] && !outOfTouch(i) && rs.DataAt(i) != "":
			roll.Ailing = append(roll.Ailing, i.Ordinal)
		}
	}
	if !slices.Equal(was, roll.Ailing) {
		rs.saveApp(app, fx)
	}
}

// ails reports whether a replica is one of those that say nothing about the version.
func (r *Rollout) ails(i *Instance) bool { return r != nil && slices.Contains(r.Ailing, i.Ordinal) }

// proven reports whether all replicas that say something about the new version serve, and no other one is left of the version before.
func (rs *rollouts) proven(now time.Time, a *App, s *spec.ServiceSpec, current, old []*Instance) bool {
	r, some := a.Rollouts[s.Name], false
	for _, i := range current {
		if r.ails(i) {
			continue
		} else if !rs.serves(now, a, s, i) {
			return false
		}
		some = true
	}
	return some && !slices.ContainsFunc(old, func(i *Instance) bool { return !r.ails(i) })
}

// serves reports whether an instance counts for as ready when an old one is to be ended.
func (rs *rollouts) serves(now time.Time, a *App, s *spec.ServiceSpec, i *Instance) bool {
	if !i.IsReady() {
		return false
	}
	r := a.Rollouts[s.Name]
	if r == nil || !r.EndedAt.IsZero() || r.Revision != i.Revision {
		return true
	}
	at := latest(sinceOf(i, skerry.Ready), r.FailedAt).Add(r.watch(s))
	if now.Before(at) {
		rs.wakeAt(a.Key(), at)
		return false
	}
	return true
}

// failing says why a revision counts as failed, or "". What has no place yet, is out of
// touch or held on its device says nothing about it.
func (rs *rollouts) failing(now time.Time, a *App, s *spec.ServiceSpec, r *Rollout, list []*Instance) string {
	if r.Failures >= *s.Update.Failures {
		return "instances of revision " + r.Revision + " failed " + itoa(r.Failures) + " times: " + orNothing(r.Reason)
	}
	began := r.began
	for _, i := range list {
		if r.ails(i) {
			continue
		}
		if r := i.Resize; r != nil && r.Reason != "" {
			if at := latest(r.Since, began).Add(time.Duration(*s.Update.Deadline)); now.Before(at) {
				rs.wakeAt(a.Key(), at)
			} else {
				return "instance " + string(i.ID) + " was not given the limits of revision " + r.Revision + " for " +
					s.Update.Deadline.String() + ": " + r.Reason
			}
		}
		if i.well() || i.silent() {
			continue
		}
		// Not since before this life: its clock may be years ahead of that, or the machine was off, and a version would be taken back for it.
		since := latest(latest(latest(r.StartedAt, sinceOf(i, skerry.Ready)), latest(sinceOf(i, skerry.Reachable), sinceOf(i, skerry.Frozen))),
			latest(began, i.nearerAt()))
		at := since.Add(time.Duration(*s.Update.Deadline))
		if now.Before(at) {
			rs.wakeAt(a.Key(), at)
			continue
		}
		return "instance " + string(i.ID) + " of revision " + r.Revision + " was not ready for " + s.Update.Deadline.String() + ": " + reasonOf(i)
	}
	return ""
}

// reasonOf says why an instance is not ready.
func reasonOf(i *Instance) string {
	if why := conditionOf(i, skerry.Ready); why != "" {
		return why
	}
	return "not ready"
}

// goesBack reports whether what ran before is on its way back.
func (r *Rollout) goesBack() bool { return r.Back && r.EndedAt.IsZero() }

// takeBack puts a service back to what ran before, and remembers what failed.
func (rs *rollouts) takeBack(now time.Time, a *App, service string, r *Rollout, why string, fx *wire.Effects) error {
	p := rs.history.find(a.Key(), func(p *Past) bool { return p.revision(service) == r.From })
	if r.From == "" || p == nil {
		return skerry.Errorf(skerry.CodeConflict, "no earlier version of it is kept")
	}
	bad := *a.Manifest.Spec.Service(service)
	refused := &Refused{Revision: r.Revision, Reason: why, At: now, Spec: bad, Digests: digestsOf(&bad, a.Digests)}
	next := a.withServices(now, p, service)
	if err := rs.editor.replace(now, a, next, fx); err != nil {
		return err
	}
	a.Refused, a.Paused = with(a.Refused, service, refused), without(a.Paused, service) // to resume is to try again what was taken back
	a.setRollout(service, &Rollout{Revision: a.revisions[service], Gen: a.Gen, StartedAt: now, Wave: 1, Limit: everything, Back: true,
		Ailing: r.Ailing})
	rs.saveApp(a, fx)
	rs.appEvent(fx, now, a, service, "RolledBack", "revision "+r.Revision+" is taken back for "+a.revisions[service]+": "+why)
	fx.Events[len(fx.Events)-1].Type = wire.EventWarning
	rs.Look(a.Key())
	return nil
}
