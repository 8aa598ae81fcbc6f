package cluster

import (
	"cmp"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// placeWaiting looks for a worker for every instance that has none: the most important first, then those with the least
// slack before their deadline, then the oldest; of those that came together the ones with the narrowest choice, which the
// others can follow, and the largest, which are hardest to fit.
func (c *Core) placeWaiting(now time.Time, fx *wire.Effects) {
	if len(c.waiting)+len(c.stranded) == 0 {
		return
	}
	if c.rebuild.Waits() {
		c.placeRebuilding(now, fx)
		return
	}
	c.replaceStopped(now, fx)
	ids := append(sortedIDs(c.waiting), sortedIDs(c.stranded)...)
	slices.SortStableFunc(ids, func(a, b skerry.InstanceID) int { return placeBefore(now, c.places[a], c.places[b]) })
	for _, id := range ids {
		if p := c.places[id]; p != nil && (c.waiting[id] || c.stranded[id] && p.Next == nil) {
			c.placeOne(now, p, fx)
		}
	}
}

func placeBefore(now time.Time, p, q *placement) int {
	size := func(p *placement) float64 {
		n := p.A.Spec.Need()
		return float64(n.CPU)/1000 + float64(n.Memory)/float64(skerry.GiB)
	}
	return cmp.Or(cmp.Compare(q.A.Spec.Placement.Priority, p.A.Spec.Placement.Priority), cmp.Compare(p.slack(now), q.slack(now)),
		p.Created.Compare(q.Created), cmp.Compare(q.narrowness(), p.narrowness()), cmp.Compare(size(q), size(p)))
}

// narrowness tells how few workers a service may run on by its own word: 3 is one worker, 0 any.
func (p *placement) narrowness() int {
	q := &p.A.Spec.Placement
	switch {
	case p.Pinned != "" || q.Worker != "":
		return 3
	case len(q.Users) > 0 || q.MaxDistance > 0 || len(q.Devices) > 0 || len(q.Labels) > 0:
		return 2
	case q.Area != "" || len(q.Arch) > 0:
		return 1
	}
	return 0
}

// slack is the time that is left before an instance must start to be done in time.
func (p *placement) slack(now time.Time) time.Duration {
	if p.A.Due.IsZero() {
		return 1 << 62
	}
	left := p.A.Due.Sub(now)
	if e := p.A.Spec.Job; e != nil && e.Estimate != nil {
		left -= time.Duration(*e.Estimate)
	}
	return left
}

// placeOne looks for a worker for one instance, or asks first what only the world outside can answer.
func (c *Core) placeOne(now time.Time, p *placement, fx *wire.Effects) {
	if now.Before(p.again) || p.A.Spec.KeepsData() && c.volumes.Busy(p.claims()) {
		return
	}
	p.again = time.Time{}
	if at := c.endsElsewhere(p); now.Before(at) && c.waiting[p.A.ID] {
		p.again = at
		return
	}
	if p.again = c.find.gathers(now, p); !p.again.IsZero() {
		return
	}
	policy, plugins, why := c.find.policyOf(&p.A)
	if why != nil {
		c.unplaceable(now, p, []wire.Reason{*why}, nil, fx)
		return
	}
	if !c.find.usersKnown(now, p, policy, fx) {
		return
	}
	c.questions.Next()
	req := c.find.request(p)
	var d wire.Decision
	if len(plugins) == 0 {
		d = c.find.placeFree(now, policy, req)
	} else {
		var wait bool
		if d, wait = c.find.consult(now, p, policy, plugins, req, fx); wait {
			return
		}
	}
	d.Users = p.Users
	switch {
	case d.Chosen != "" && p.Worker != "":
		c.migrate(now, p, d, "its worker is out of touch", fx)
	case d.Chosen != "":
		c.give(now, p, d, fx)
	case p.Pinned != "": // a copy of a perWorker service waits for its worker
		if len(d.Plugins) > 0 {
			p.again = now.Add(askAgain)
		}
	case len(d.Plugins) == 0 && c.makeRoom(now, p, policy, req, fx): // it waits until those who make room are gone
	default:
		c.unplaceable(now, p, d.Why, &d, fx)
	}
}

func (c *Core) heldChanged(now time.Time, w *worker, fx *wire.Effects) {
	if why := w.report.Held; why != "" {
		c.held[w.Name] = true
		c.siteEvent(fx, now, wire.EventNormal, "WorkerHeld", "worker "+w.Name+" is held on its device, and carries out nothing: "+why, w.Name)
		return
	}
	delete(c.held, w.Name)
	c.retry()
	c.siteEvent(fx, now, wire.EventNormal, "WorkerReleased", "worker "+w.Name+" carries out again what it is asked for", w.Name)
}

// unplaceable hands an instance that nobody can take back to its owner, but not while it may still run where it was.
func (c *Core) unplaceable(now time.Time, p *placement, why []wire.Reason, d *wire.Decision, fx *wire.Effects) {
	if p.Worker != "" {
		c.nowhere(now, p, why, fx)
		return
	}
	c.refuse(now, p, why, d, fx)
}
