package cluster

import (
	"fmt"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// migrate starts a successor of an instance that runs, in the runtime that it would have there if it were new.
func (c *Core) migrate(now time.Time, p *placement, d wire.Decision, why string, fx *wire.Effects) {
	c.migrateIn(now, p, d, c.workers.runtimeAt(&p.A.Spec, d.Chosen), why, fx)
}

func (c *Core) migrateIn(now time.Time, p *placement, d wire.Decision, runtime, why string, fx *wire.Effects) {
	fence := c.mint(p, fx)
	c.succeed(p, &successor{Worker: d.Chosen, Runtime: runtime, Devices: c.site.PickDevices(d.Chosen, &p.A.Spec), Fence: fence, Since: now, Why: why, Rescue: c.stranded[p.A.ID], Carry: c.carriedTo(p, d.Chosen),
		Obs: wire.Observation{ID: p.A.ID, Gen: p.A.Gen, Fence: fence, State: skerry.WorkerScheduled}})
	d.Users, d.Because = p.Users, why
	p.Decision = &d
	c.left(d.Chosen, p.A.ID)
	c.reclaim(p, d.Chosen)
	c.found(p.A.ID, d.Chosen)
	c.reserveOn(d.Chosen, p, 1)
	c.sendNext(p)
	c.linked[p.A.Service.App] = true
	c.uplink.Touch()
	c.changed(now, p, fx)
	reason := "Migrating"
	if p.Next.Rescue {
		reason = "Replacing"
	}
	c.event(fx, now, p, wire.EventNormal, reason, "a copy starts on worker "+d.Chosen+": "+why)
}

// observeNext takes what the successor's worker reports.
func (c *Core) observeNext(now time.Time, p *placement, o wire.Observation, fx *wire.Effects) {
	if o.Fence != p.Next.Fence {
		return // the worker has not got the newest word yet
	}
	p.Next.Obs = o
	if p.Next.Carry && o.Recipient != "" && o.Recipient != p.Next.Recipient {
		p.Next.Recipient = o.Recipient
		c.send(p)
		c.changed(now, p, fx)
	}
	switch {
	case o.State == skerry.Failed || o.State == skerry.Terminated:
		c.event(fx, now, p, wire.EventWarning, "MigrationFailed", "the copy on worker "+p.Next.Worker+" ended: "+o.Reason)
		c.abandon(p)
		c.changed(now, p, fx)
	case o.Ready:
		c.takeOver(now, p, p.Next.Why, fx)
	}
}

// takeOver makes the successor the instance and ends the old copy.
func (c *Core) takeOver(now time.Time, p *placement, why string, fx *wire.Effects) {
	old, n, was := p.Worker, p.Next, p.A.Runtime
	if c.stranded[p.A.ID] {
		c.leaveBehind(p)
		c.unstrand(p)
	} else {
		c.letGo(p)
	}
	if !p.ended() {
		c.leave(p, old)
	}
	c.reserve(p, -1)
	c.succeed(p, nil)
	c.bind(p, n.Worker)
	c.claimAt(p, p.Worker)
	c.ranWithData(p)
	p.Placed, p.A.Fence, p.A.Held, p.A.Runtime, p.A.Devices, p.Obs = now, n.Fence, nil, n.Runtime, n.Devices, n.Obs
	p.A.Signers = c.opt.Admission.signersOf(p.A.Org)
	c.revalue(p, func() { p.settleLimits() })
	p.qos, p.Ran = nil, false
	p.SLA.Given(n.Obs.Ready, n.Obs.Restarts)
	c.workers.addressPorts(p)
	c.linked[p.A.Service.App] = true
	c.uplink.Touch()
	if n.Carry {
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
	c.changed(now, p, fx)
	c.crowd(now, p, fx)
	reason := "Migrated"
	if n.Rescue {
		reason = "Replaced"
	}
	c.event(fx, now, p, wire.EventNormal, reason, "runs on worker "+n.Worker+" now, before on "+old+": "+why)
}

// abandon ends a successor that is not to take over after all.
func (c *Core) abandon(p *placement) {
	n := p.Next
	if n == nil {
		return
	}
	c.reserveOn(n.Worker, p, -1)
	if n.Obs.State != skerry.Terminated && n.Obs.State != skerry.Failed {
		c.leave(p, n.Worker)
	}
	c.succeed(p, nil)
	c.linked[p.A.Service.App] = true
	c.Kids.Delete(n.Worker, wire.AssignmentKey(p.A.ID))
	if n.Recipient != "" && p.Worker != "" && !p.Removing {
		c.send(p) // it is not to leave any more
	}
}

// migrationTime is how long a successor has to get ready.
func migrationTime(s *spec.ServiceSpec) time.Duration {
	t := 2 * time.Minute
	if q := s.Probes.Startup; q != nil {
		t += time.Duration(q.InitialDelay) + time.Duration(q.Failures)*time.Duration(q.Interval)
	}
	if s.Carried() {
		t += carryTime
	}
	return t
}
