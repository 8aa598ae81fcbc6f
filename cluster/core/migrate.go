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
	l.succeed(p, &successor{Worker: d.Chosen, Runtime: runtime, Devices: l.site.PickDevices(d.Chosen, &p.A.Spec), Fence: fence, Since: now, Why: why, Rescue: l.stranded[p.A.ID], Checkpoint: l.checkpointTo(p, d.Chosen),
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
func (l *lifecycle) takeOver(now time.Time, p *placement, why string, fx *wire.Effects) {
	old, n, was := p.Worker, p.Next, p.A.Runtime
	if l.stranded[p.A.ID] {
		l.leaveBehind(p)
		l.unstrand(p)
	} else {
		l.letGo(p)
	}
	if !p.ended() {
		l.leave(p, old)
	}
	l.reserve(p, -1)
	l.succeed(p, nil)
	l.bind(p, n.Worker)
	l.claimAt(p, p.Worker)
	l.ranWithData(p)
	p.Placed, p.A.Fence, p.A.PriorFence, p.A.Runtime, p.A.Devices, p.Obs = now, n.Fence, nil, n.Runtime, n.Devices, n.Obs
	p.A.Signers = l.admission.signersOf(p.A.Org)
	l.revalue(p, func() { p.settleLimits() })
	p.qos, p.Ran = nil, false
	p.SLA.Given(n.Obs.Ready, n.Obs.Restarts)
	l.workers.addressPorts(p)
	l.linked[p.A.Service.App] = true
	l.uplink.Touch()
	if n.Checkpoint {
		down := "with its memory"
		if !n.Down.IsZero() {
			down += fmt.Sprintf("; it served nobody for %s", now.Sub(n.Down).Round(time.Millisecond))
		}
		p.Timeline = append(p.Timeline, wire.Step{At: now, State: p.Obs.State, Phase: p.Obs.Phase, Text: "moved from worker " + old + " " + down})
		why += " (" + down + ")"
	}
	if n.Runtime != was && was != "" {
		p.Timeline = append(p.Timeline, wire.Step{At: now, State: p.Obs.State, Phase: p.Obs.Phase, Text: "runs in runtime " + n.Runtime + " on worker " + n.Worker + ", before in " + was + " on " + old + ": " + why})
	}
	p.Strain.Settle()
	l.changed(now, p, fx)
	l.crowd(now, p, fx)
	reason := "Migrated"
	if n.Rescue {
		reason = "Replaced"
	}
	l.event(fx, now, p, wire.EventNormal, reason, "runs on worker "+n.Worker+" now, before on "+old+": "+why)
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
func (l *lifecycle) give(now time.Time, p *placement, d wire.Decision, fx *wire.Effects) {
	l.wait(p.A.ID, false)
	l.left(d.Chosen, p.A.ID)
	l.reclaim(p, d.Chosen)
	l.found(p.A.ID, d.Chosen)
	p.room = time.Time{}
	l.endKeeping(p.A.ID)
	p.Given(false, 0)
	l.bind(p, d.Chosen)
	l.claimAt(p, p.Worker)
	l.admission.confine(&p.A)
	p.A.Runtime, p.A.Devices = l.workers.runtimeAt(&p.A.Spec, d.Chosen), l.site.PickDevices(d.Chosen, &p.A.Spec)
	p.Placed, p.Decision, p.Refused, p.Ran = now, &d, false, false
	p.A.Fence, p.A.PriorFence = l.mint(p, fx), nil
	p.Obs.State, p.Obs.Fence, p.Obs.Reason, p.Obs.Rejected, p.Obs.Why = skerry.WorkerScheduled, p.A.Fence, "", false, nil
	p.Obs.Unreachable = false
	l.reserve(p, 1)
	l.send(p)
	l.linked[p.A.Service.App] = true
	l.uplink.Touch()
	l.changed(now, p, fx)
	l.crowd(now, p, fx)
	l.event(fx, now, p, wire.EventNormal, "WorkerScheduled", "placed on worker "+p.Worker+" by "+d.Policy)
}

// An instance that is moved with its memory (migration: checkpoint) is a successor that starts from the first copy's state:
//
//	successor placed ─► prepared, tells a key ─► the first copy may leave (Leave) ─► its state is asked for: written, sealed for that key,
//	sent by way of the cluster ─► restored, ready ─► it is the instance; the first copy, which ended with the writing, goes
//	      any failure ─► the successor ends, Leave is taken back ─► the first copy goes on from what was written
//
// checkpointTime is how much longer than another such a successor may take.
const checkpointTime = 10 * time.Minute
