package apps

import (
	"cmp"
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
//	reconcileCopies ─► one for each child, child by child
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
	roll := a.Rollouts[s.Name]
	held := rs.held(a, s, roll, current, fx)
	if held {
		limit = min(limit, len(current))
	}
	rs.findAiling(now, a, s, roll, old, fx)
	current, old = rs.resize(now, a, s, current, old, limit, fx)
	old = rs.endSurplus(now, s, want-len(current), old, fx)
	if s.Update.Strategy == "recreate" && len(old) > 0 && (held || a.Paused[s.Name] != "" || a.waitsTurn(s.Name) != "") {
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
	if n := min(limit-len(current), room); n > 0 {
		for next := rs.freeOrdinals(sk, rev); n > 0; n-- {
			current = append(current, rs.create(now, a, s, next(), "", "", fx))
		}
	}
	// A job is not begun again, and copies on all workers are not doubled.
	if like := slices.IndexFunc(old, func(i *Instance) bool { return i.Spec.Mode == s.Mode }); like >= 0 {
		for n := want - limit - len(old) - leaving; n > 0; n-- { // a wave is not done, and one of the others has gone
			old = append(old, rs.createAs(now, a, old[like], rs.freeOrdinal(sk, old[like].Revision), "", fx))
		}
	}
	// Old ones that are not ready serve nobody and go at once, but only for what is already on its way in their place.
	ready, placed := 0, 0
	for _, i := range old {
		if roll.ails(i) || rs.serves(now, a, s, i) { // one that ails comes last, and the others do not wait for it
			ready++
		}
	}
	for _, i := range current {
		switch {
		case rs.serves(now, a, s, i):
			ready++
		case i.State == skerry.WorkerScheduled || i.State == skerry.Running:
			placed++
		}
	}
	spare := ready - (want - *s.Update.MaxUnavailable)
	if !s.EndsFirst() { // else its holder is asked
		spare = min(spare, max(0, ready-want)+placed)
	}
	slices.SortStableFunc(old, func(x, y *Instance) int {
		switch late := roll.ails(x); {
		case late == roll.ails(y):
			return lessUseful(x, y)
		case late:
			return 1
		}
		return -1
	})
	proven := rs.proven(now, a, s, current, old)
	for _, i := range old[:max(0, len(old)-max(0, want-limit))] {
		serving := i.IsReady() && !roll.ails(i)
		if roll.ails(i) && !proven || serving && spare <= 0 || s.EndsFirst() && !rs.mayEnd(now, a, s, i, fx) {
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

// endSurplus ends those of an old version that will have no successor, where others end before their successors start: nobody has to
// have a place for it. A copy that is on its way to another worker does not count.
func (rs *rollouts) endSurplus(now time.Time, s *spec.ServiceSpec, want int, old []*Instance, fx *wire.Effects) (left []*Instance) {
	var counted []*Instance
	for _, i := range old {
		if i.Replaces == "" {
			counted = append(counted, i)
		}
	}
	surplus := min(len(counted)-max(want, 0), len(counted))
	if surplus <= 0 || !s.EndsFirst() {
		return old
	}
	slices.SortStableFunc(counted, lessUseful)
	for _, i := range counted[:surplus] {
		rs.stop(now, i, "scaled down", fx)
	}
	return slices.DeleteFunc(old, func(i *Instance) bool { return slices.Contains(counted[:surplus], i) })
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
			rs.follow(now, a, s, i, fx)
		}
	}
}

// follow gives an instance the newest generation of its application.
func (rs *rollouts) follow(now time.Time, a *App, s *spec.ServiceSpec, i *Instance, fx *wire.Effects) {
	was := i.Conditions
	i.Gen, i.Spec = a.Gen, s
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, true, "")
	if i.follows(a) && slices.Equal(was, i.Conditions) {
		i.behind = true
		i.shareResources()
		rs.showInstance(i, fx)
	} else {
		rs.saveInstance(i, fx)
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

// awayAfter is for how long a site must have been out of touch for an update to go on without it.
const awayAfter = time.Minute

// reconcileCopies keeps an instance of a service with a copy on each worker at every child, which has the copies: the sites of a root,
// or the site itself. An update takes the sites in turn, and each of them its workers (cluster/core/exchange.go).
//
//	first site, the one with the fewest copies ─► done there, watched for healthyTime ─► as many sites at a time as are done ─► done
//	   └─── too many failures, or not ready in time ───► every site that has it goes back, all at once
//
// A site that is out of touch or in quarantine, or does not admit the version, is neither waited for nor counted: another one goes first,
// and it gets the version when it can. By then the update may be done, and is no longer taken back for what happens at that one site.
func (rs *rollouts) reconcileCopies(now time.Time, a *App, s *spec.ServiceSpec, fx *wire.Effects) {
	rev := a.revisions[s.Name]
	have, ending := rs.byTarget(now, a, s, fx)
	var current, old []*Instance
	for _, t := range rs.targets {
		switch i := have[t]; {
		case i == nil:
		case i.Revision == rev:
			current = append(current, i)
		default:
			old = append(old, i)
		}
	}
	rs.takeOver(now, a, s, current, fx)
	roll := a.Rollouts[s.Name]
	if roll == nil || roll.Revision != rev {
		roll = rs.startRollout(now, a, s, roll, old, len(current)+len(old), fx)
	}
	judged, rest := rs.judged(now, a, slices.DeleteFunc(slices.Clone(current), (*Instance).barred)), rs.judged(now, a, old)
	limit := 0
	if want := len(judged) + len(rest); want > 0 {
		var ok bool
		if limit, ok = rs.rollout(now, a, s, judged, rest, want, fx); !ok {
			return // it goes back to what ran before
		}
	}
	held := rs.held(a, s, roll, current, fx)
	if held {
		limit = min(limit, len(judged))
	}
	next := rs.nextSites(now, a, s, roll, judged, rest, limit)
	for at, target := range rs.targets {
		switch i := have[target]; {
		case !rs.Allows(s, target):
		case i == nil && roll.Canary && roll.EndedAt.IsZero() && len(old) > 0: // it has joined, and is no site to try something at
			if like := rs.ofRevision(skerry.ServiceKey{App: a.Key(), Service: s.Name}, roll.From); like != nil {
				rs.createAs(now, a, like, at, target, fx)
			}
		case i == nil && !held:
			current = append(current, rs.create(now, a, s, at, target, "", fx))
		case slices.Contains(next, i):
			rs.stop(now, i, "replaced by a new version", fx)
			if was := ending[target]; was != nil && i.Copies != nil { // it has copies yet, and its site is no older one, which cannot keep them
				rs.revive(now, a, s, was, fx)
				current = append(current, was)
			} else {
				current = append(current, rs.create(now, a, s, at, target, "", fx))
			}
		}
	}
	how := ""
	switch {
	case a.Paused[s.Name] != "" || a.waitsTurn(s.Name) != "":
		how = spec.ExchangeHeld
	case roll.goesBack():
		how = spec.ExchangeBack
	}
	for _, i := range current {
		if i.Restart < a.Restarts[s.Name] || i.Exchange != how {
			i.Restart, i.Exchange = a.Restarts[s.Name], how
			rs.saveInstance(i, fx)
		}
	}
}

// byTarget gives the instance of a service at each child, and the one of the wanted revision that was told to end there last and may have
// copies yet. It ends those that are nowhere wanted.
func (rs *rollouts) byTarget(now time.Time, app *App, svc *spec.ServiceSpec, fx *wire.Effects) (have, ending map[string]*Instance) {
	have, ending = map[string]*Instance{}, map[string]*Instance{}
	rev := app.revisions[svc.Name]
	for _, i := range rs.Instances(skerry.ServiceKey{App: app.Key(), Service: svc.Name}) {
		if rs.settleCrashLoop(now, i) {
			rs.saveInstance(i, fx)
		}
		was := have[i.Target]
		switch {
		case i.Stopping && i.Revision == rev && i.Holder == i.Target:
			ending[i.Target] = i
		case !i.Live():
		case !slices.Contains(rs.targets, i.Target) || !rs.Allows(svc, i.Target):
			rs.stop(now, i, "no longer wanted there", fx)
		case was != nil && was.Revision == rev: // half of a commit was lost
			rs.stop(now, i, "replaced", fx)
		default:
			if was != nil {
				rs.stop(now, was, "replaced by a new version", fx)
			}
			have[i.Target] = i
		}
	}
	return have, ending
}

// judged leaves out the sites that an update does not wait for, because they are out of touch or get nothing new.
func (rs *rollouts) judged(now time.Time, a *App, list []*Instance) (out []*Instance) {
	for _, i := range list {
		if rs.shut[i.Target] {
			continue
		}
		if outOfTouch(i) {
			at := sinceOf(i, skerry.Reachable).Add(awayAfter)
			if !now.Before(at) {
				continue
			}
			rs.wakeAt(a.Key(), at)
		}
		out = append(out, i)
	}
	return out
}

// nextSites chooses the sites that get the new version now, of those that have another one. limit is how many may have it.
func (rs *rollouts) nextSites(now time.Time, app *App, svc *spec.ServiceSpec, roll *Rollout, judged, rest []*Instance,
	limit int) []*Instance {
	more, done, busy := limit-len(judged), 0, 0
	for _, i := range judged {
		if i.settled() {
			done++
		} else {
			busy++
		}
		if roll.EndedAt.IsZero() && skerry.HasCondition(i.Conditions, skerry.CrashLoop) && (i.Copies == nil || !i.well()) {
			more = 0
		}
	}
	if app.Paused[svc.Name] != "" || roll.EndedAt.IsZero() && roll.Told && !rs.recovered(now, app, svc, roll, judged) {
		more = 0
	}
	if svc.Update.Sites != spec.SitesAll && !roll.goesBack() { // never more at a time than have shown that it works
		more = min(more, max(1, done)-busy)
	}
	rest = slices.DeleteFunc(slices.Clone(rest), outOfTouch)
	slices.SortStableFunc(rest, func(a, b *Instance) int { return cmp.Compare(a.exposed(), b.exposed()) })
	return rest[:min(max(more, 0), len(rest))]
}

// recovered reports whether a version that failed, and stays, has served since then for as long as one is watched.
func (rs *rollouts) recovered(now time.Time, app *App, svc *spec.ServiceSpec, roll *Rollout, judged []*Instance) bool {
	at := roll.healthyAt(svc, judged)
	if now.Before(at) {
		rs.wakeAt(app.Key(), at)
		return false
	}
	return !at.IsZero()
}

// exposed orders sites by how much a bad version would harm there. One that serves nobody proves nothing, and comes last.
func (i *Instance) exposed() int {
	if i.Have == 0 {
		return everything
	}
	return i.Have
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
