package apps

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// rollouts has the instances of services be as many as are wanted, and of the version that is wanted. Reconcile asks it service by service.
//
//	reconcileService ─► rollout: how many of the new version may there be? ─► resize what differs in limits alone
//	                                                                       ─► create and stop, no more at a time than an update may
//	reconcilePerWorker ─► one for each child, child by child
type rollouts struct {
	*lifecycle
	editor  *editor
	history *history
	mover   *mover
}

// reconcileService keeps replicas instances of the current revision. A rolling update never has more than replicas +
// maxSurge instances, and never fewer than replicas - maxUnavailable ready ones on its own account.
func (rs *rollouts) reconcileService(now time.Time, a *App, s *spec.ServiceSpec, fx *wire.Effects) {
	sk := skerry.ServiceKey{App: a.Key(), Service: s.Name}
	rev, want := a.revisions[s.Name], *s.Replicas
	var current, old []*Instance
	for _, i := range rs.Instances(sk) {
		if rs.settleCrashLoop(now, i) {
			rs.saveInstance(i, fx)
		}
		switch {
		case i.State == skerry.Terminated && !i.Stopping && i.Revision == rev && want > 0:
			want-- // it has done its work, and its restart policy says that this was all
		case i.State == skerry.Terminated && !i.Stopping:
			rs.discard(now, i, fx)
		case !i.Live():
		case i.wanted() == rev:
			rs.unask(i, "", fx)
			current = append(current, i)
		default:
			rs.unask(i, rev, fx)
			old = append(old, i)
		}
	}
	current, old = rs.followLimits(now, a, s, current, old, fx)
	current = rs.mover.settleReplacements(now, current, fx)
	rs.takeOver(now, a, s, current, fx)
	limit, ok := rs.rollout(now, a, s, current, old, want, fx)
	if !ok {
		return // it goes back to what ran before
	}
	current, old = rs.resize(now, a, s, current, old, limit, fx)
	if s.Update.Strategy == "recreate" && len(old) > 0 && (a.Paused[s.Name] != "" || a.waitsTurn(s.Name) != "") {
		return
	}
	if s.Update.Strategy == "recreate" && len(old) > 0 {
		end := true
		for _, i := range old {
			end = rs.mayEnd(now, a, s, i, fx) && end
		}
		for _, i := range old {
			if end {
				rs.stop(now, i, "replaced by a new version", fx)
			}
		}
		return // Gone makes the application dirty again
	}
	if s.Update.Strategy == "recreate" && rs.anyStoppingOld(sk, rev) {
		return
	}
	// More than is wanted: end those first that serve least.
	if extra := len(current) - want; extra > 0 {
		slices.SortStableFunc(current, lessUseful)
		for _, i := range current[:extra] {
			rs.stop(now, i, "scaled down", fx)
		}
		current = current[extra:]
	}
	leaving := rs.leaving(s, sk)
	room := want + *s.Update.MaxSurge - len(current) - len(old) - leaving
	if len(old) == 0 {
		room = want - len(current) - leaving
	}
	for n := min(limit-len(current), room); n > 0; n-- {
		current = append(current, rs.create(now, a, s, rs.freeOrdinal(sk, rev), "", "", fx))
	}
	// A job is not begun again, and copies on all workers are not doubled.
	if like := slices.IndexFunc(old, func(i *Instance) bool { return i.Spec.Mode == s.Mode }); like >= 0 {
		for n := want - limit - len(old) - leaving; n > 0; n-- { // a wave is not done, and one of the others has gone
			old = append(old, rs.createAs(now, a, old[like], rs.freeOrdinal(sk, old[like].Revision), "", fx))
		}
	}
	// Old ones that are not ready serve nobody and go at once, but only for what is already on its way in their place.
	ready, placed := 0, 0
	for _, i := range append(slices.Clone(current), old...) {
		if rs.serves(now, a, s, i) {
			ready++
		}
	}
	for _, i := range current {
		if !rs.serves(now, a, s, i) && (i.State == skerry.WorkerScheduled || i.State == skerry.Running) {
			placed++
		}
	}
	spare := ready - (want - *s.Update.MaxUnavailable)
	if !s.EndsFirst() { // else its holder is asked
		spare = min(spare, max(0, ready-want)+placed)
	}
	slices.SortStableFunc(old, lessUseful)
	for _, i := range old[:max(0, len(old)-max(0, want-limit))] {
		serving := i.IsReady()
		if serving && spare <= 0 || s.EndsFirst() && !rs.mayEnd(now, a, s, i, fx) {
			continue
		}
		if serving {
			spare--
		}
		rs.stop(now, i, "replaced by a new version", fx)
	}
	rs.restartOneByOne(now, a, s, current, fx)
	if len(old) == 0 {
		rs.mover.seekElsewhere(now, a, s, current, fx)
	}
}

// takeOver lets instances of an unchanged template follow the application's generation without touching them.
func (rs *rollouts) takeOver(now time.Time, a *App, s *spec.ServiceSpec, list []*Instance, fx *wire.Effects) {
	for _, i := range list {
		if i.Resize != nil {
			if i.Resize.Gen != a.Gen {
				i.Resize.Gen, i.Resize.Spec = a.Gen, s
				rs.saveInstance(i, fx)
			}
			continue
		}
		if i.Gen != a.Gen {
			i.Gen = a.Gen
			i.Spec = s
			i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, true, "")
			rs.saveInstance(i, fx)
		}
	}
}

// restartOneByOne hands an asked-for restart to one instance at a time, so that the others serve meanwhile.
func (rs *rollouts) restartOneByOne(now time.Time, a *App, s *spec.ServiceSpec, list []*Instance, fx *wire.Effects) {
	asked := a.Restarts[s.Name]
	for _, i := range list {
		if i.Restart == asked && i.State == skerry.Running && !i.IsReady() && len(list) > 1 {
			return // the last one restarted is not back yet
		}
	}
	for _, i := range list {
		if i.Restart >= asked {
			continue
		}
		wasServing := i.IsReady()
		i.Restart = asked
		if wasServing {
			i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Ready, false, "restart was asked for")
		}
		rs.saveInstance(i, fx)
		if wasServing {
			return
		}
	}
}

// lessUseful orders instances so that those that serve least come first.
func lessUseful(a, b *Instance) int {
	rank := func(i *Instance) int {
		switch {
		case i.IsReady():
			return 2
		case i.State == skerry.Running:
			return 1
		}
		return 0
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	return b.Ordinal - a.Ordinal
}
