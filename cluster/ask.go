package cluster

import (
	"time"

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

func (q *queue) setPlugins(m SetPlugins) {
	q.questions.SetPlugins(m.List)
	for id := range q.seeking {
		q.places[id].again = time.Time{}
	}
	q.retry()
}

func (q *queue) measured(now time.Time, m Measured) {
	p := q.places[m.ID]
	switch {
	case p == nil || !q.questions.Measured(m):
	case p.Worker != "":
		p.Located.Update(now, &p.A.Spec.Placement, m.RTT, q.workers.where)
	default:
		p.Located.Set(now, &p.A.Spec.Placement, m.RTT, "", q.workers.where)
	}
}

// expire ends questions that nobody answered in time and successors that did not get ready.
func (q *queue) expire(now time.Time, fx *wire.Effects) {
	for id := range q.seeking {
		p := q.places[id]
		switch {
		case q.questions.Unmeasured(now, id):
			p.Located.Set(now, &p.A.Spec.Placement, nil, "", q.workers.where)
		default:
			q.questions.Late(now, id)
		}
	}
	for _, id := range sortedIDs(q.moving) {
		p := q.places[id]
		if now.Sub(p.Next.Since) >= migrationTime(&p.A.Spec) {
			q.event(fx, now, p, wire.EventWarning, "MigrationFailed", "the copy on worker "+p.Next.Worker+" did not get ready: "+p.Next.Obs.Reason)
			q.abandon(p)
			q.changed(now, p, fx)
		}
	}
}

// nextExpiry is when expire has something to do next, or the zero time.
func (q *queue) nextExpiry() time.Time {
	var next time.Time
	consider := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for id := range q.seeking {
		p := q.places[id]
		if at := q.questions.Until(id); !at.IsZero() {
			consider(at)
		}
		if !p.again.IsZero() {
			consider(p.again)
		}
		if !p.room.IsZero() && !q.questions.Open(id) && p.again.IsZero() {
			consider(p.room) // while it asks, or waits for longer, it does not look
		}
	}
	for id := range q.watched {
		if p := q.places[id]; p != nil {
			consider(p.SLA.Again())
		}
	}
	for id := range q.moving {
		if p := q.places[id]; p != nil && p.Next != nil {
			consider(p.Next.Since.Add(migrationTime(&p.A.Spec)))
		}
	}
	return next
}
