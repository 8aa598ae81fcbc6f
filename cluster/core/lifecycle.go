package core

import (
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/cluster/placing"
	"skerry.dev/skerry/decide/questions"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// lifecycle is what becomes of a placement: it gets a worker, another one, a successor, and ends. Each change here keeps the books, the
// ledger, the workers' sets and the owner's picture in line, and decides nothing: whoever calls has found the place or the reason.
//
//	refuse ◄─ addPlacement ─► waits ─ give ─► has a worker ─ migrate ─► has a successor ─ takeOver ─► has another worker
//	                            ▲                │  │  └ strand ─► out of touch ─ restore ─┐      └ abandon ─► as before
//	                            └───── move ─────┘  └──────────────────────────────────────┘
//	                                                remove ─► its worker ends it ─ gone ─► drop
type lifecycle struct {
	*sender
	then       sequel
	questions  *questions.Questions
	starts     *placing.Starts
	dependents *autonomy.Dependents
	scaling    *autonomy.Scaling
}

// sequel is what follows elsewhere from what becomes of a placement.
type sequel interface {
	// runs says that an instance runs for the first time where it is.
	runs(now time.Time, p *placement, fx *wire.Effects)
	// still says that nothing is left of an instance, and that the root still wants it.
	still(now time.Time, id skerry.InstanceID, fx *wire.Effects)
}

// addPlacement takes a placement in, new or read.
func (l *lifecycle) addPlacement(p *placement) {
	l.enter(p)
	l.boundTo(p)
	l.bind(p, p.Worker)
}

// boundTo keeps the index of instances that depend on the root, and notes that something follows its load.
func (l *lifecycle) boundTo(p *placement) {
	if p.Origin == "root" && p.A.Spec.Scale != nil {
		l.scaling.Follow()
	}
	_, depends := p.stopsAfter()
	l.dependents.Bind(p.A.ID, depends)
}

// forget has nothing remember a placement.
func (l *lifecycle) forget(p *placement) {
	l.endOriginal(p)
	l.letGoNow(p.A.ID)
	if l.strike(p) {
		l.neighbours.Forget(p.A.Service.App)
	}
	l.touchClaims(p)
	l.starts.Done(p.A.ID)
	l.questions.Drop(p.A.ID)
	l.dependents.Bind(p.A.ID, false)
}

// changed persists a placement and tells its owner.
func (l *lifecycle) changed(now time.Time, p *placement, fx *wire.Effects) {
	l.note(now, p, fx)
	fx.Put(prefixPlace+string(p.A.ID), mustJSON(p))
	l.tell(now, p, fx)
}

// further tells the owner of a step that goes into the store with the next change (wire.Observation.OnlyFurther).
func (l *lifecycle) further(now time.Time, p *placement, fx *wire.Effects) {
	l.note(now, p, fx)
	l.tell(now, p, fx)
}

// note takes up what a placement has become.
func (l *lifecycle) note(now time.Time, p *placement, fx *wire.Effects) {
	if n := len(p.Timeline); n == 0 || p.Timeline[n-1].State != p.Obs.State || p.Timeline[n-1].Phase != p.Obs.Phase {
		p.Timeline = append(p.Timeline, wire.Step{At: now, State: p.Obs.State, Phase: p.Obs.Phase, Text: p.Obs.Reason})
		if len(p.Timeline) > 24 {
			p.Timeline = slices.Delete(p.Timeline, 1, 2)
		}
	}
	l.seeStart(now, p, fx)
}

// tell tells users and the owner of it.
func (l *lifecycle) tell(now time.Time, p *placement, fx *wire.Effects) {
	fx.Changed = append(fx.Changed, wire.Change{App: p.A.Service.App, Instance: p.A.ID, Org: p.A.Org})
	if p.Group != "" {
		if g := l.groups[p.Group]; g != nil {
			l.tellGroup(now, g, fx)
		}
		return
	}
	l.tellUp(now, p, fx)
}

// tellUp gives the owner what it may know of an instance: the root learns no address and no worker.
func (l *lifecycle) tellUp(now time.Time, inst *placement, fx *wire.Effects) {
	obs := inst.Obs
	if inst.Group != "" {
		return
	}
	obs.Successor, obs.Revision, obs.Limits, obs.Crowded = l.answerOf(inst), inst.A.Revision, inst.Limits,
		l.workers.redact(inst, inst.Strain.Crowded)
	if l.mine(inst) {
		l.Apps.Instance(inst.A.ID).Worker = skerry.WorkerName(inst.Worker)
		if l.Apps.Observe(now, Self, obs, fx) {
			l.remove(now, inst, fx)
		}
	}
	if inst.Origin == "local" {
		return
	}
	obs.Asked = min(inst.Extra, obs.Restart)
	obs.Restart -= obs.Asked
	obs.Successor = l.redactAnswer(inst, obs.Successor)
	obs.Reason, obs.Frozen, obs.CrashLoop = l.workers.redact(inst, obs.Reason), l.workers.redact(inst, obs.Frozen),
		l.workers.redact(inst, obs.CrashLoop)
	if obs.Limits != nil {
		obs.Limits = &wire.LimitsRefusal{Gen: obs.Limits.Gen, Reason: l.workers.redact(inst, obs.Limits.Reason), InUse: obs.Limits.InUse}
	}
	l.report(&inst.A.Spec, obs)
}

// seeStart keeps the index of what is about to start, and notes what has.
func (l *lifecycle) seeStart(now time.Time, p *placement, fx *wire.Effects) {
	if p.Obs.State == skerry.Running && !p.Ran && p.Worker != "" {
		p.Ran = true
		l.then.runs(now, p, fx)
	}
	if !p.starting() || p.Late != nil && p.Late.Worker == p.Worker {
		l.starts.Done(p.A.ID)
		return
	}
	l.starts.Expect(p.A.ID, p.Placed.Add(placing.Patience))
}

// crowd tells whether an instance is clear of the saturation point of its runtime, when that changes: by what is
// expected of it, or by what it was seen to use.
func (l *lifecycle) crowd(now time.Time, p *placement, fx *wire.Effects) {
	text := ""
	if w := l.workers[p.Worker]; w != nil && !p.ended() {
		if text = p.Strain.Why(); text == "" && p.A.Spec.ExpectedRate > 0 {
			text = p.A.Spec.Crowded(p.A.Runtime, w.Facts.RuntimeCosts())
		}
	}
	if text == p.Strain.Crowded {
		return
	}
	was := p.Strain.Crowded
	p.Strain.Crowded = text
	l.changed(now, p, fx)
	switch {
	case text != "":
		l.event(fx, now, p, wire.EventWarning, "NoHeadRoom", text)
	case was != "":
		l.event(fx, now, p, wire.EventNormal, "HeadRoom", "it is clear of its saturation point again")
	}
}

// move takes an instance from its worker and lets it wait for another. avoid keeps it from the same one in this round.
func (l *lifecycle) move(now time.Time, inst *placement, why string, avoid bool, fx *wire.Effects) {
	l.unstrand(inst)
	l.abandon(inst)
	if inst.mayRun() {
		l.endNow(inst)
	} else {
		l.letGo(inst)
	}
	if !inst.ended() {
		l.leave(inst, inst.Worker)
	}
	l.reserve(inst, -1)
	l.questions.Drop(inst.A.ID) // what was asked was about another place
	if avoid && inst.Worker != "" {
		inst.Avoid = append(inst.Avoid, inst.Worker)
	}
	old := inst.Obs
	l.event(fx, now, inst, wire.EventWarning, "Moved", why)
	l.bind(inst, "")
	inst.Obs = wire.Observation{ID: inst.A.ID, Gen: inst.A.Gen, Fence: inst.A.Fence, State: skerry.ClusterScheduled, Reason: why,
		Restarts: old.Restarts, Exit: old.Exit, CrashLoop: old.CrashLoop}
	l.wait(inst.A.ID, true)
	l.linked[inst.A.Service.App] = true
	l.uplink.Touch()
	l.changed(now, inst, fx)
}

func (l *lifecycle) remove(now time.Time, p *placement, fx *wire.Effects) {
	if p.Removing {
		return
	}
	l.wait(p.A.ID, false)
	l.unstrand(p)
	l.abandon(p)
	l.endOriginal(p)
	w := l.workers[p.Worker]
	if p.Worker == "" || w == nil || w.sight.Lost() {
		l.letGo(p)
		if !p.ended() {
			l.leave(p, p.Worker) // it may run on out of touch
		}
		l.drop(now, p, fx)
		return
	}
	l.end(p)
	l.letGo(p)
	l.changed(now, p, fx)
}

func (l *lifecycle) removeGroup(now time.Time, g *group, fx *wire.Effects) {
	if g.Removing {
		// Its owner is told when something changes, and asks again whenever it is told. A copy may not know of it: a crash left a
		// part of the commit.
		l.endGroups(now, g, fx)
		return
	}
	g.Removing = true
	fx.Put(prefixGroup+string(g.A.ID), mustJSON(g))
	l.endGroups(now, g, fx) // another one may take its place worker by worker: see exchangeGroups
	l.tellGroup(now, g, fx)
}

// endGroups ends the copies of groups of a service whose place no other one takes.
func (l *lifecycle) endGroups(now time.Time, of *group, fx *wire.Effects) {
	for _, g := range l.rivals(of) {
		if !g.Removing || l.successor(g) != nil {
			continue
		}
		for _, p := range l.copies(g.A.ID) {
			l.remove(now, p, fx)
		}
	}
}

// removeID ends an instance or a group that its owner no longer wants.
func (l *lifecycle) removeID(now time.Time, id skerry.InstanceID, fx *wire.Effects) {
	if g := l.groups[id]; g != nil {
		l.removeGroup(now, g, fx)
		return
	}
	p := l.places[id]
	if p == nil {
		l.ownerGone(now, id, fx)
		return
	}
	l.remove(now, p, fx)
}

// gone handles a worker that no longer has an instance.
func (l *lifecycle) gone(now time.Time, worker string, id skerry.InstanceID, fx *wire.Effects) {
	l.left(worker, id)
	l.found(id, worker)
	p := l.places[id]
	if p != nil && p.Original != nil && p.Original.Worker == worker {
		l.endOriginal(p)
		l.changed(now, p, fx)
	}
	if p == nil || p.Worker != worker {
		return
	}
	if p.Removing {
		l.drop(now, p, fx)
		return
	}
	if l.awaitsRoot(p) {
		l.move(now, p, whyAwaitsRoot, false, fx)
		return
	}
	// It was wiped, or was not told yet. Its set is sent again, and it starts the instance anew.
	if p.Obs.State == skerry.Running {
		p.Obs.State, p.Obs.Phase, p.Obs.Ready, p.Obs.Reason = skerry.WorkerScheduled, skerry.PhaseNone, false, "its worker starts it again"
		l.linked[p.A.Service.App] = true
		l.changed(now, p, fx)
	}
}

const whyAwaitsRoot = "its site has not heard the root since it started, which may run it elsewhere by now"

// awaitsRoot reports whether an instance may not be started before the root is back: the root gives it to another site when this one is out
// of touch, and nobody here knows for how long it has been. What runs has wire.AutonomyGrace, see autonomy.Dependents.
func (l *lifecycle) awaitsRoot(p *placement) bool {
	away, heard := l.uplink.Away()
	_, stops := p.stopsAfter()
	return stops && !away.IsZero() && !heard
}

// drop forgets a placement and tells its owner.
func (l *lifecycle) drop(now time.Time, p *placement, fx *wire.Effects) {
	l.reserve(p, -1)
	l.forget(p)
	fx.Delete(prefixPlace + string(p.A.ID))
	l.linked[p.A.Service.App] = true
	l.freed()
	if p.Group != "" {
		if g := l.groups[p.Group]; g != nil {
			l.tellGroup(now, g, fx)
		}
		return
	}
	l.ownerGone(now, p.A.ID, fx)
	if p.Origin == "root" && l.rootWants(p.A.ID) {
		// A crash had left half of a commit: that it was here, and not that the root wants it. It was ended for that,
		// and the root has said it again.
		l.then.still(now, p.A.ID, fx)
	}
}

func (l *lifecycle) dropQuietly(p *placement, fx *wire.Effects) {
	l.forget(p)
	fx.Delete(prefixPlace + string(p.A.ID))
}

// refuse hands an instance back to its owner with the reasons.
func (l *lifecycle) refuse(now time.Time, p *placement, why []wire.Reason, d *wire.Decision, fx *wire.Effects) {
	l.wait(p.A.ID, false)
	p.Decision = d
	if i := l.Apps.Instance(p.A.ID); p.Origin == "local" || l.mine(p) {
		if l.mine(p) {
			i.Worker = ""
			if d == nil {
				d = &wire.Decision{At: now, Instance: p.A.ID, Tier: "cluster", Policy: "admission", Why: why}
			}
			l.dropQuietly(p, fx)
			o := p.Obs
			o.Rejected, o.Why, o.State = true, why, skerry.Requested
			l.Apps.Observe(now, Self, o, fx)
			l.Apps.NoPlace(now, i, d, fx)
		}
		return
	}
	p.Refused = true
	p.Obs.State, p.Obs.Rejected, p.Obs.Why = skerry.Requested, true, why
	l.changed(now, p, fx)
}

// adopt takes over an instance that a worker runs already and this store has forgotten, as after a restored backup.
func (l *lifecycle) adopt(now time.Time, inst *placement, fx *wire.Effects) bool {
	key := wire.AssignmentKey(inst.A.ID)
	for _, name := range slices.Sorted(maps.Keys(l.orphan[inst.A.ID])) {
		if l.Children.Get(name) == nil {
			continue
		}
		value, orphaned, ok := l.Children.Get(name).Observed.Get(key)
		var o wire.Observation
		if !ok || orphaned || l.said(value, &o) != nil || o.Fence.RootEpoch != inst.A.Fence.RootEpoch || o.Fence.ClusterTerm > l.term {
			continue
		}
		if inst.Pinned != "" && inst.Pinned != name {
			continue // a copy for every worker, whose name tells any of them how that of another is called
		}
		l.bind(inst, name)
		l.claimAt(inst, name)
		l.above(o.Fence.Sequence)
		// It may be a copy that was given up, and whose replacement had a later token than it has.
		inst.A.Fence, inst.A.PriorFence = l.mint(inst, fx), &o.Fence
		inst.Placed, inst.A.Runtime, inst.A.Devices, inst.Obs = now, o.Runtime, o.Devices, o
		inst.Obs.Fence = inst.A.Fence
		l.admission.confine(&inst.A)
		l.found(inst.A.ID, name)
		l.reserve(inst, 1)
		l.send(inst)
		l.event(fx, now, inst, wire.EventNormal, "Adopted", "runs on worker "+name+" already")
		return true
	}
	return false
}

// audit says what is remembered of placements that are gone.
func (l *lifecycle) audit() []string {
	placed := func(id skerry.InstanceID) bool { return l.places[id] != nil }
	depends := func(id skerry.InstanceID) (has, depends bool) {
		if p := l.places[id]; p != nil {
			_, depends = p.stopsAfter()
			return true, depends
		}
		return false, false
	}
	return slices.Concat(l.questions.Audit(placed), l.starts.Audit(placed), l.dependents.Audit(depends))
}

// unstrand ends that an instance looks for another place.
func (l *lifecycle) unstrand(p *placement) {
	if l.stranded[p.A.ID] {
		l.beStranded(p.A.ID, false)
		l.questions.Drop(p.A.ID)
		p.again, p.room, p.Obs.Violated = time.Time{}, time.Time{}, ""
	}
}

// abandon ends a successor that is not to take over after all.
func (l *lifecycle) abandon(p *placement) {
	n := p.Next
	if n == nil {
		return
	}
	l.reserveOn(n.Worker, p, -1)
	if n.Obs.State != skerry.Terminated && n.Obs.State != skerry.Failed {
		l.leave(p, n.Worker)
	}
	l.succeed(p, nil)
	l.linked[p.A.Service.App] = true
	l.Children.Delete(n.Worker, wire.AssignmentKey(p.A.ID))
	if n.Recipient != "" && p.Worker != "" && !p.Removing {
		l.send(p) // it is not to leave any more
	}
}

// ScaleOf tells why a service has so many instances here, as far as the site decides about that.
func (l *lifecycle) ScaleOf(k skerry.ServiceKey) *view.ScaleView {
	if v := l.scaling.View(k); v != nil {
		return v
	}
	return l.Apps.Scale(k)
}

const (
	// deviceGrace is for how long a copy is kept whose device has gone: one that is plugged in again soon gets it back. What comes and goes
	// all the time does not have the site make copies all the time.
	deviceGrace = 30 * time.Second
	// A copy that lost its device is started again after a time that doubles, up to the longest, unless it ran for long.
	firstAgain, longestAgain, ranLong = time.Second, time.Minute, 10 * time.Minute
)

// restart has a copy started again that its worker has given up for its device, as others are by their owner.
func (l *lifecycle) restart(now time.Time, p *placement, fx *wire.Effects) {
	if now.Sub(p.Placed) > ranLong {
		p.Moves = 0
	}
	p.Moves++
	l.move(now, p, p.Obs.Reason, false, fx)
	p.again = now.Add(min(firstAgain<<min(p.Moves-1, 10), longestAgain))
}
