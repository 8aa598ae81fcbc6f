package apps

import (
	"reflect"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// Place records that a child was given an instance. The caller has checked that it may.
func (l *lifecycle) Place(now time.Time, i *Instance, holder string, fence skerry.Fence, d *wire.Decision, fx *wire.Effects) {
	i.Holder, i.Fence, i.PriorFence, i.Bound, i.Decision = holder, fence, nil, false, d
	i.State, i.Phase, i.Why, i.Reason = skerry.ClusterScheduled, skerry.PhaseNone, nil, ""
	i.Exit = nil
	i.step(now, "given to "+holder)
	l.saveInstance(i, fx)
	fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "Scheduled", "given to "+holder))
}

// NoPlace records why nobody could be given an instance, and when to try again. Rejections of this round are forgotten,
// so that the next round asks everybody again.
func (l *lifecycle) NoPlace(now time.Time, i *Instance, d *wire.Decision, fx *wire.Effects) {
	changed := len(i.Why) != len(d.Why) || len(i.Why) > 0 && i.Why[0].Text != d.Why[0].Text
	i.Misses++
	i.RetryAt = now.Add(backoff(int(i.Misses)))
	i.Rejected, i.Refusals, i.Why, i.Decision = nil, nil, d.Why, d
	if changed {
		i.Reason = firstWhy(i, "nobody is connected who could take it")
		i.step(now, "no place: "+i.Reason)
		l.saveInstance(i, fx)
		fx.Events = append(fx.Events, i.event(now, wire.EventWarning, "Unplaced", i.Reason))
	}
}

func backoff(failures int) time.Duration {
	d := firstRetry << min(max(failures-1, 0), 10)
	return min(d, longestWait)
}

// Observe takes what a holder reports of an instance. It reports whether the holder must be told to let go of it.
func (l *lifecycle) Observe(now time.Time, holder string, o wire.Observation, fx *wire.Effects) (release bool) {
	i := l.inst[o.ID]
	if i == nil || i.Holder != holder || o.Fence.RootEpoch < i.Fence.RootEpoch {
		return i == nil || i.Holder != holder // a stranger or an old copy
	}
	if o.Rejected {
		i.Why = o.Why
		i.Rejected = append(i.Rejected, holder)
		i.Refusals = append(i.Refusals, o.Why...)
		l.unplace(now, i, "no place at "+holder+": "+firstWhy(i, "it gives no reason"), fx)
		return true
	}
	if !i.State.CanReach(o.State) {
		return false
	}
	before := *i
	i.State, i.Phase, i.Reason = o.State, o.Phase, o.Reason
	i.fence, i.Restarts, i.Exit, i.StartedAt, i.Runtime, i.Monitor = o.Fence, o.Restarts, o.Exit, o.StartedAt, o.Runtime, o.Monitor
	i.Ports, i.Address, i.Digest, i.Want, i.Have = o.Ports, o.Address, o.Digest, o.Want, o.Have
	counted := i.Target != "" && i.count(now, &before, o.Copies)
	why := o.Reason
	if why == "" && !o.Ready {
		why = "not ready"
	}
	ready := o.Ready && o.Restart >= i.Restart
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Ready, ready, pick(ready, "", why))
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Reachable, !o.Unreachable,
		pick(o.Unreachable, "its worker is not in touch", ""))
	if o.Frozen != "" || slices.ContainsFunc(i.Conditions, func(k skerry.Condition) bool { return k.Type == skerry.Frozen }) {
		i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Frozen, o.Frozen != "", o.Frozen)
	}
	if o.Crowded != "" || slices.ContainsFunc(i.Conditions, func(k skerry.Condition) bool { return k.Type == skerry.HeadRoom }) {
		i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.HeadRoom, o.Crowded == "", o.Crowded)
	}
	l.crashLoop(now, i, &o)
	l.hearAnswer(now, i, &o, fx)
	if before.State != i.State || before.Phase != i.Phase {
		i.step(now, o.Reason)
	}
	l.limited(now, i, &o, fx)
	l.violated(now, i, o.Violated)
	i.tellTransition(now, &before, fx)
	l.noteFailure(now, &before, i, max(o.Restart, i.Restart)+o.Asked, fx)
	i.Restarted = max(i.Restarted, o.Restart+o.Asked)
	if ready {
		i.Misses = 0
	}
	if i.State == skerry.Failed && i.Run == "" && !i.Stopping {
		i.Rejected, i.Refusals = nil, nil
		l.unplace(now, i, "failed: "+orNothing(o.Reason), fx)
		return true
	}
	first := i.fence != before.fence // from this copy in this life: the core above looks at what it was told, whatever is new
	before.fence = i.fence           // which is in no record
	switch same := reflect.DeepEqual(i, &before); {
	case same && !first:
	case i.apart && i.onlyBack(&before):
		i.apart = false // as its record says
		l.showInstance(i, fx)
	case same || i.onlyFurther(&before):
		l.showInstance(i, fx) // what is new goes into the store with the next change
	default:
		l.saveInstance(i, fx)
	}
	if before.State != i.State || before.IsReady() != i.IsReady() || outOfTouch(&before) != outOfTouch(i) || i.Restart > 0 || counted {
		l.Look(i.Service.App)
	}
	return false
}

// onlyFurther is wire.Observation.OnlyFurther for the record that was made of two of them.
func (i *Instance) onlyFurther(before *Instance) bool {
	is := *i
	is.Phase, is.Ports, is.Address = before.Phase, before.Ports, before.Address
	is.Runtime, is.Digest, is.Timeline = before.Runtime, before.Digest, before.Timeline
	return i.State == skerry.WorkerScheduled && before.Phase.LeadsTo(i.Phase) && i.Resize == nil && reflect.DeepEqual(&is, before)
}

// OutOfTouch notes that an instance's holder is not connected, so that nobody can say how the instance is. Neither that nor the end of it
// is stored if nothing else changes: right after a start no holder is connected, and each comes back in a moment.
func (l *lifecycle) OutOfTouch(now time.Time, i *Instance, why string, fx *wire.Effects) {
	i.apart = i.apart || !outOfTouch(i)
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Reachable, false, why)
	l.showInstance(i, fx)
	if i.Target != "" {
		l.Look(i.Service.App) // its update does not wait for it for ever
	}
}

// onlyBack reports whether an instance is in touch again, and nothing else is new.
func (i *Instance) onlyBack(before *Instance) bool {
	if outOfTouch(i) {
		return false
	}
	is, was := *i, *before
	for _, x := range []*Instance{&is, &was} {
		x.Conditions = slices.DeleteFunc(slices.Clone(x.Conditions), func(k skerry.Condition) bool { return k.Type == skerry.Reachable })
	}
	return reflect.DeepEqual(&is, &was)
}

// count takes how many copies of a perWorker service a site has. It reports whether that is another number than before.
func (i *Instance) count(now time.Time, before *Instance, k *wire.Copies) bool {
	i.Copies = k
	same := i.Want == before.Want && i.Have == before.Have && (k == nil) == (before.Copies == nil) && (k == nil || *k == *before.Copies)
	if same {
		return false
	}
	nearer := i.nearerAt()
	if k == nil || before.Copies == nil || before.Copies.Short == 0 || k.Former < before.Copies.Former ||
		i.Have+k.Done > before.Have+before.Copies.Done { // beside a copy that does not come, others may come and go
		nearer = now
	}
	i.counts = &counts{now, nearer}
	return true
}

// crashLoop takes what a holder says of an instance that ends again and again.
func (l *lifecycle) crashLoop(now time.Time, i *Instance, o *wire.Observation) {
	if i.Looping = o.CrashLoop != ""; i.Looping {
		if !skerry.HasCondition(i.Conditions, skerry.CrashLoop) {
			l.Look(i.Service.App)
		}
		i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.CrashLoop, true, o.CrashLoop)
		return
	}
	l.settleCrashLoop(now, i)
}

// settleCrashLoop ends the condition of a crash loop once an instance has been ready for long enough; it may have been
// placed anew meanwhile. It reports whether it did.
func (l *lifecycle) settleCrashLoop(now time.Time, i *Instance) bool {
	if i.Looping || !i.IsReady() || !skerry.HasCondition(i.Conditions, skerry.CrashLoop) {
		return false
	}
	if at := sinceOf(i, skerry.Ready).Add(skerry.SteadyTime); now.Before(at) {
		l.wakeAt(i.Service.App, at)
		return false
	}
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.CrashLoop, false, "")
	return true
}

func pick(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}

func (i *Instance) tellTransition(now time.Time, before *Instance, fx *wire.Effects) {
	switch {
	case i.State == skerry.Running && i.IsReady() && !before.IsReady():
		fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "Ready", "runs and is ready"))
	case i.State == skerry.Running && before.IsReady() && !i.IsReady() && !i.Stopping:
		fx.Events = append(fx.Events, i.event(now, wire.EventWarning, "NotReady", orNothing(i.Reason)))
	case before.State != i.State && i.State == skerry.Failed:
		fx.Events = append(fx.Events, i.event(now, wire.EventWarning, "Failed", orNothing(i.Reason)))
	case before.State != i.State && i.State == skerry.Running:
		fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "Started", "runs in "+orNothing(i.Runtime)))
	case before.State != i.State && i.State == skerry.Terminated:
		fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "Completed", orNothing(i.Reason)))
	}
	if skerry.HasCondition(i.Conditions, skerry.CrashLoop) && !skerry.HasCondition(before.Conditions, skerry.CrashLoop) {
		fx.Events = append(fx.Events, i.event(now, wire.EventWarning, "CrashLoop", conditionOf(i, skerry.CrashLoop)))
	}
	if i.restarts(before) > 0 {
		fx.Events = append(fx.Events, i.event(now, wire.EventWarning, "Restarted", "restart "+itoa(i.Restarts)+": "+orNothing(i.Reason)))
	}
}

// Lost says that an instance's holder is gone for good; it is placed anew.
func (l *lifecycle) Lost(now time.Time, id skerry.InstanceID, why string, fx *wire.Effects) {
	i := l.inst[id]
	if i == nil || i.State.Final() {
		return
	}
	if i.Stopping {
		l.end(now, i, fx)
		return
	}
	fx.Events = append(fx.Events, i.event(now, wire.EventWarning, "Lost", why))
	l.unplace(now, i, why, fx)
}

// unplace puts an instance back to Requested.
func (l *lifecycle) unplace(now time.Time, i *Instance, why string, fx *wire.Effects) {
	if i.Stopping {
		l.end(now, i, fx)
		return
	}
	if i.State == skerry.Failed || len(i.Rejected) == 0 {
		if i.lastRan(now) > steady {
			i.Failures = 0
		}
		i.Failures++
		i.RetryAt = now.Add(backoff(int(i.Failures)) - firstRetry)
		i.Deadline, i.Told = now.Add(i.Spec.ConvergenceTime()), false
	}
	if r := i.Resize; r != nil { // it is started with them
		i.Resize, i.Revision, i.Gen, i.Spec = nil, r.Revision, r.Gen, r.Spec
		i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, true, "")
	}
	i.Holder, i.Worker, i.Cluster, i.Address, i.Ports, i.Cut, i.Ask, i.Answers = "", "", "", "", nil, false, nil, false
	i.Restarted = min(i.Restarted, i.Restart) // those that its site was asked for stay there
	i.State, i.Phase, i.Reason = skerry.Requested, skerry.PhaseNone, why
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Ready, false, why)
	if outOfTouch(i) { // it is nowhere that could be
		i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Reachable, true, "")
	}
	i.step(now, why)
	l.saveInstance(i, fx)
	l.Look(i.Service.App)
}

// Gone says that a holder no longer has an instance.
func (l *lifecycle) Gone(now time.Time, holder string, id skerry.InstanceID, fx *wire.Effects) {
	i := l.inst[id]
	if i == nil || i.Holder != holder {
		return
	}
	if i.Stopping || i.State.Final() {
		l.end(now, i, fx)
		return
	}
	// The holder forgot it without being asked (a wiped device): place it anew.
	l.Lost(now, id, holder+" no longer has it", fx)
}

// noteFailure counts what goes wrong with instances of a revision that is being rolled out. asked is how many restarts somebody has asked
// for, at the owner or at the site while it was alone: those are no failures.
func (l *lifecycle) noteFailure(now time.Time, before, i *Instance, asked uint64, fx *wire.Effects) {
	failures := i.restarts(before)
	if asked > before.Restarted {
		failures -= int(min(uint64(failures), asked-before.Restarted))
		if i.Target != "" {
			failures = 0 // each of its copies is restarted, and until all are, nobody knows which were asked for
		}
	}
	if i.State == skerry.Failed && before.State != skerry.Failed {
		failures++
	}
	a := l.apps[i.Service.App]
	if failures == 0 || a == nil || i.Stopping {
		return
	}
	r := a.Rollouts[i.Service.Service]
	if r == nil || r.Revision != i.Revision || !r.EndedAt.IsZero() || r.ails(i) {
		return
	}
	r.Failures += failures
	r.FailedAt, r.HealthyAt = now, time.Time{}
	if i.Reason != "" {
		r.Reason = i.Reason
	}
	l.saveApp(a, fx)
	l.Look(a.Key())
}
