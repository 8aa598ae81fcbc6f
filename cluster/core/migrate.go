package core

import (
	"fmt"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// migrate starts a successor of an instance that runs, in the runtime that it would have there if it were new.
func (l *lifecycle) migrate(now time.Time, p *placement, d wire.Decision, why string, fx *wire.Effects) {
	l.migrateIn(now, p, d, l.workers.runtimeAt(&p.A.Spec, d.Chosen), why, fx)
}

func (l *lifecycle) migrateIn(now time.Time, p *placement, d wire.Decision, runtime, why string, fx *wire.Effects) {
	fence := l.mint(p, fx)
	l.succeed(p, &successor{Worker: d.Chosen, Runtime: runtime, Devices: l.site.PickDevices(d.Chosen, &p.A.Spec), Fence: fence, Since: now,
		Why: why, Rescue: l.stranded[p.A.ID], Checkpoint: l.checkpointTo(p, d.Chosen),
		Obs: wire.Observation{ID: p.A.ID, Gen: p.A.Gen, Fence: fence, State: skerry.WorkerScheduled}})
	d.Users, d.Because = p.Users, why
	p.Decision = &d
	l.left(d.Chosen, p.A.ID)
	l.reclaim(p, d.Chosen)
	l.found(p.A.ID, d.Chosen)
	l.reserveOn(d.Chosen, p, 1)
	l.sendNext(p)
	l.linked[p.A.Service.App] = true
	l.uplink.Touch()
	l.changed(now, p, fx)
	reason := "Migrating"
	if p.Next.Rescue {
		reason = "Replacing"
	}
	l.event(fx, now, p, wire.EventNormal, reason, "a copy starts on worker "+d.Chosen+": "+why)
}

// observeNext takes what the successor's worker reports.
func (l *lifecycle) observeNext(now time.Time, p *placement, o wire.Observation, fx *wire.Effects) {
	if o.Fence != p.Next.Fence {
		return // the worker has not got the newest word yet
	}
	p.Next.Obs = o
	if p.Next.Checkpoint && o.Recipient != "" && o.Recipient != p.Next.Recipient {
		p.Next.Recipient = o.Recipient
		l.send(p)
		l.changed(now, p, fx)
	}
	switch {
	case o.State == skerry.Failed || o.State == skerry.Terminated:
		l.event(fx, now, p, wire.EventWarning, "MigrationFailed", "the copy on worker "+p.Next.Worker+" ended: "+o.Reason)
		l.abandon(p)
		l.changed(now, p, fx)
	case o.Ready:
		l.takeOver(now, p, p.Next.Why, fx)
	}
}

// takeOver makes the successor the instance and ends the old copy.
func (l *lifecycle) takeOver(now time.Time, inst *placement, why string, fx *wire.Effects) {
	old, next, was := inst.Worker, inst.Next, inst.A.Runtime
	if l.stranded[inst.A.ID] {
		l.leaveBehind(inst)
		l.unstrand(inst)
	} else {
		l.letGo(inst)
	}
	if !inst.ended() {
		l.leave(inst, old)
	}
	l.reserve(inst, -1)
	l.succeed(inst, nil)
	l.bind(inst, next.Worker)
	l.claimAt(inst, inst.Worker)
	l.ranWithData(inst)
	inst.Placed, inst.A.Fence, inst.A.PriorFence, inst.A.Runtime, inst.A.Devices, inst.Obs = now, next.Fence, nil, next.Runtime,
		next.Devices, next.Obs
	inst.A.Signers = l.admission.signersOf(inst.A.Org)
	l.revalue(inst, func() { inst.settleLimits() })
	inst.qos, inst.Ran = nil, false
	inst.SLA.Given(next.Obs.Ready, next.Obs.Restarts)
	l.workers.addressPorts(inst)
	l.linked[inst.A.Service.App] = true
	l.uplink.Touch()
	if next.Checkpoint {
		down := "with its memory"
		if !next.Down.IsZero() {
			down += fmt.Sprintf("; it served nobody for %s", now.Sub(next.Down).Round(time.Millisecond))
		}
		inst.Timeline = append(inst.Timeline, wire.Step{At: now, State: inst.Obs.State, Phase: inst.Obs.Phase,
			Text: "moved from worker " + old + " " + down})
		why += " (" + down + ")"
	}
	if next.Runtime != was && was != "" {
		inst.Timeline = append(inst.Timeline, wire.Step{At: now, State: inst.Obs.State, Phase: inst.Obs.Phase,
			Text: "runs in runtime " + next.Runtime + " on worker " + next.Worker + ", before in " + was + " on " + old + ": " + why})
	}
	inst.Strain.Settle()
	l.changed(now, inst, fx)
	l.crowd(now, inst, fx)
	reason := "Migrated"
	if next.Rescue {
		reason = "Replaced"
	}
	l.event(fx, now, inst, wire.EventNormal, reason, "runs on worker "+next.Worker+" now, before on "+old+": "+why)
}

// migrationTime is how long a successor has to get ready.
func migrationTime(s *spec.ServiceSpec) time.Duration {
	t := 2 * time.Minute
	if q := s.Probes.Startup; q != nil {
		t += time.Duration(q.InitialDelay) + time.Duration(q.Failures)*time.Duration(q.Interval)
	}
	if s.Checkpoints() {
		t += checkpointTime
	}
	return t
}

// give binds an instance to a worker under a new fencing token.
func (l *lifecycle) give(now time.Time, inst *placement, decision wire.Decision, fx *wire.Effects) {
	l.wait(inst.A.ID, false)
	l.left(decision.Chosen, inst.A.ID)
	l.reclaim(inst, decision.Chosen)
	l.found(inst.A.ID, decision.Chosen)
	inst.room = time.Time{}
	l.endKeeping(inst.A.ID)
	inst.Given(false, 0)
	l.bind(inst, decision.Chosen)
	l.claimAt(inst, inst.Worker)
	l.admission.confine(&inst.A)
	inst.A.Runtime, inst.A.Devices = l.workers.runtimeAt(&inst.A.Spec, decision.Chosen), l.site.PickDevices(decision.Chosen, &inst.A.Spec)
	inst.Placed, inst.Decision, inst.Refused, inst.Ran = now, &decision, false, false
	inst.A.Fence, inst.A.PriorFence = l.mint(inst, fx), nil
	inst.Obs.State, inst.Obs.Fence, inst.Obs.Reason, inst.Obs.Rejected, inst.Obs.Why = skerry.WorkerScheduled, inst.A.Fence, "", false, nil
	inst.Obs.Unreachable = false
	l.reserve(inst, 1)
	l.send(inst)
	l.linked[inst.A.Service.App] = true
	l.uplink.Touch()
	l.changed(now, inst, fx)
	l.crowd(now, inst, fx)
	l.event(fx, now, inst, wire.EventNormal, "WorkerScheduled", "placed on worker "+inst.Worker+" by "+decision.Policy)
}

// An instance that is moved with its memory (migration: checkpoint) is a successor that starts from the first copy's state:
//
//	successor placed ─► prepared, tells a key ─► the first copy may leave (Leave) ─► its state is asked for: written, sealed for that key,
//	sent by way of the cluster ─► restored, ready ─► it is the instance; the first copy, which ended with the writing, goes
//	      any failure ─► the successor ends, Leave is taken back ─► the first copy goes on from what was written
//
// checkpointTime is how much longer than another such a successor may take.
const checkpointTime = 10 * time.Minute
