package cluster

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/placing"
	"skerry.dev/skerry/wire"
)

// Actions and messages about what the core cannot find out by itself. It goes on when the answer or the deadline comes.
type (
	Measure  = placing.Measure
	Measured = placing.Measured
	Score    = placing.Score
	Scored   = placing.Scored
	Plugin   = placing.Plugin
	// SetPlugins replaces the list of plugins.
	SetPlugins struct{ List []Plugin }
)

const (
	askAgain      = 20 * time.Second // where plugins ruled out the only worker
	measuringWork = 8                // workers that measure the round trip to a user
)

func (c *Core) setPlugins(m SetPlugins) {
	c.questions.SetPlugins(m.List)
	for id := range c.seeking {
		c.places[id].again = time.Time{}
	}
	c.retry()
}

func (c *Core) measured(now time.Time, m Measured) {
	p := c.places[m.ID]
	switch {
	case p == nil || !c.questions.Measured(m):
	case p.Worker != "":
		p.Located.Update(now, &p.A.Spec.Placement, m.RTT, c.workers.where)
	default:
		p.Located.Set(now, &p.A.Spec.Placement, m.RTT, "", c.workers.where)
	}
}

// seeking runs over the instances that look for a place.
func (l *ledger) seeking(yield func(skerry.InstanceID) bool) {
	for id := range l.waiting {
		if !yield(id) {
			return
		}
	}
	for id := range l.stranded {
		if l.places[id].Next == nil && !yield(id) {
			return
		}
	}
}

// expire ends questions that nobody answered in time and successors that did not get ready.
func (c *Core) expire(now time.Time, fx *wire.Effects) {
	for id := range c.seeking {
		p := c.places[id]
		switch {
		case c.questions.Unmeasured(now, id):
			p.Located.Set(now, &p.A.Spec.Placement, nil, "", c.workers.where)
		default:
			c.questions.Late(now, id)
		}
	}
	for _, id := range sortedIDs(c.moving) {
		p := c.places[id]
		if now.Sub(p.Next.Since) >= migrationTime(&p.A.Spec) {
			c.event(fx, now, p, wire.EventWarning, "MigrationFailed", "the copy on worker "+p.Next.Worker+" did not get ready: "+p.Next.Obs.Reason)
			c.abandon(p)
			c.changed(now, p, fx)
		}
	}
}

// nextExpiry is when expire has something to do next, or the zero time.
func (c *Core) nextExpiry() time.Time {
	var next time.Time
	consider := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for id := range c.seeking {
		p := c.places[id]
		if at := c.questions.Until(id); !at.IsZero() {
			consider(at)
		}
		if !p.again.IsZero() {
			consider(p.again)
		}
		if !p.room.IsZero() && !c.questions.Open(id) && p.again.IsZero() {
			consider(p.room) // while it asks, or waits for longer, it does not look
		}
	}
	for id := range c.watched {
		if p := c.places[id]; p != nil {
			consider(p.SLA.Again())
		}
	}
	for id := range c.moving {
		if p := c.places[id]; p != nil && p.Next != nil {
			consider(p.Next.Since.Add(migrationTime(&p.A.Spec)))
		}
	}
	return next
}
