package cluster

import (
	"time"

	"skerry.dev/skerry"
)

// successor is a second copy of an instance that is to take over from the first: make before break. Both have the same
// id and hold their resources; the successor's fencing token is the higher one.
//
//	move asked for -> successor placed -> ready -> it is the instance; the old copy is told to end
//	                        |
//	                        +-- failed, gone, or not ready in time -> the old copy stays
type successor struct {
	Worker string             `json:"worker"`
	Fence  skerry.Fence       `json:"fence"`
	Obs    skerry.Observation `json:"observation"`
	Since  time.Time          `json:"since"`
	Why    string             `json:"why"`
	Rescue bool               `json:"rescue,omitempty"` // the instance's worker got out of touch
}

// migrate starts a successor of an instance that runs.
func (c *Core) migrate(now time.Time, p *placement, d skerry.Decision, why string, fx *skerry.Effects) {
	fence := c.mint(p, fx)
	p.Next = &successor{Worker: d.Chosen, Fence: fence, Since: now, Why: why, Rescue: c.stranded[p.A.ID],
		Obs: skerry.Observation{ID: p.A.ID, Gen: p.A.Gen, Fence: fence, State: skerry.WorkerScheduled}}
	d.Users = p.Users
	p.Decision = &d
	c.moving[p.A.ID] = true
	c.left(d.Chosen, p.A.ID)
	c.reclaim(p, d.Chosen)
	c.found(p.A.ID, d.Chosen)
	c.reserveOn(d.Chosen, p, 1)
	c.sendNext(p)
	c.linked[p.A.Service.App] = true
	c.reportDue = true
	c.changed(now, p, fx)
	reason := "Migrating"
	if p.Next.Rescue {
		reason = "Replacing"
	}
	c.event(fx, now, p, skerry.EventNormal, reason, "a copy starts on worker "+d.Chosen+": "+why)
}

// sendNext puts the successor into its worker's desired set.
func (c *Core) sendNext(p *placement) {
	if p.Next == nil {
		return
	}
	a := p.A
	a.Fence, a.Held = p.Next.Fence, nil
	if err := c.Kids.Put(p.Next.Worker, skerry.AssignmentKey(a.ID), c.codec.Marshal(&a)); err != nil {
		p.Next.Obs.Reason = err.Error()
	}
}

// observeNext takes what the successor's worker reports.
func (c *Core) observeNext(now time.Time, p *placement, o skerry.Observation, fx *skerry.Effects) {
	if o.Fence != p.Next.Fence {
		return // the worker has not got the newest word yet
	}
	p.Next.Obs = o
	switch {
	case o.State == skerry.Failed || o.State == skerry.Terminated:
		c.event(fx, now, p, skerry.EventWarning, "MigrationFailed", "the copy on worker "+p.Next.Worker+" ended: "+o.Reason)
		c.abandon(p)
		c.changed(now, p, fx)
	case o.Ready:
		c.takeOver(now, p, p.Next.Why, fx)
	}
}

// takeOver makes the successor the instance and ends the old copy.
func (c *Core) takeOver(now time.Time, p *placement, why string, fx *skerry.Effects) {
	old, n := p.Worker, p.Next
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
	delete(c.moving, p.A.ID)
	c.bind(p, n.Worker)
	p.Next, p.Placed, p.A.Fence, p.A.Held, p.Obs = nil, now, n.Fence, nil, n.Obs
	p.qos = nil
	p.sla.ready, p.sla.restarts = n.Obs.Ready, n.Obs.Restarts
	c.addressPorts(p)
	c.linked[p.A.Service.App] = true
	c.reportDue = true
	c.changed(now, p, fx)
	reason := "Migrated"
	if n.Rescue {
		reason = "Replaced"
	}
	c.event(fx, now, p, skerry.EventNormal, reason, "runs on worker "+n.Worker+" now, before on "+old+": "+why)
}

// abandon ends a successor that is not to take over after all.
func (c *Core) abandon(p *placement) {
	n := p.Next
	if n == nil {
		return
	}
	p.Next = nil
	delete(c.moving, p.A.ID)
	c.reserveOn(n.Worker, p, -1)
	if n.Obs.State != skerry.Terminated && n.Obs.State != skerry.Failed {
		c.leave(p, n.Worker)
	}
	c.linked[p.A.Service.App] = true
	c.Kids.Delete(n.Worker, skerry.AssignmentKey(p.A.ID))
}

// migrationTime is how long a successor has to get ready.
func migrationTime(s *skerry.ServiceSpec) time.Duration {
	t := 2 * time.Minute
	if q := s.Probes.Startup; q != nil {
		t += time.Duration(q.InitialDelay) + time.Duration(q.Failures)*time.Duration(q.Interval)
	}
	return t
}
