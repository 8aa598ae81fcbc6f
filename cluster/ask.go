package cluster

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/placing"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
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

// usersKnown reports whether the places of a service's users in the network are known, and else has them measured from a
// few random workers that could take the instance (Algorithm 2, lines 10 to 13).
func (c *Core) usersKnown(now time.Time, p *placement, policy sched.Policy, fx *wire.Effects) bool {
	if c.questions.Measures(p.A.ID) {
		return false
	}
	if !slices.ContainsFunc(policy.Rules, func(r sched.Rule) bool { _, users := r.(sched.Users); return users }) {
		return true
	}
	var targets []string
	q := &p.A.Spec.Placement
	for _, u := range q.Users {
		if q.UserLatency(u) > 0 {
			targets = append(targets, u.Address)
		}
	}
	if len(targets) == 0 || p.Located.Known(now) {
		return true
	}
	if c.opt.Admission.NoMeasuring {
		p.Located.Set(now, q, nil, "the site's operator lets no worker measure round trips to users", c.workers.where)
		return true
	}
	if why := c.opt.Admission.checkUsers(p.A.Org, q); why != "" {
		p.Located.Set(now, q, nil, why, c.workers.where)
		return true
	}
	workers := c.site.Sample(policy, c.request(p), c.questions.Next(), measuringWork)
	if len(workers) == 0 {
		p.Located.Set(now, q, nil, "no worker that could take the instance knows its place in the network", c.workers.where)
		return true
	}
	fx.Actions = append(fx.Actions, c.questions.Measure(now, p.A.ID, workers, targets))
	return false
}

// refreshUsers has the places of the users of an instance that runs measured again from time to time: users move.
func (c *Core) refreshUsers(now time.Time, p *placement, fx *wire.Effects) {
	c.questions.Unmeasured(now, p.A.ID) // else it would stay open for as long as it runs
	if p.Worker == "" || c.questions.Open(p.A.ID) || !p.Located.Old(now) {
		return
	}
	policy, _, why := policyOf(c, &p.A)
	if why == nil {
		c.usersKnown(now, p, policy, fx)
	}
}

// policyOf finds the policy of an instance and the plugins to ask.
func policyOf(c *Core, a *spec.Assignment) (sched.Policy, []placing.Plugin, *wire.Reason) {
	return c.questions.Policy(&a.Spec, c.limitedFrom(a.Service))
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

// consult has plugins score the best candidates, and combines what they say. wait is true while they think.
func (c *Core) consult(now time.Time, p *placement, policy sched.Policy, plugins []Plugin, req *sched.Request, fx *wire.Effects) (
	wire.Decision, bool) {
	d, wait, score := c.questions.Consult(now, placing.Case{ID: p.A.ID, Plugins: plugins,
		Best:  func(round uint64) wire.Decision { return c.site.Best(now, policy, req, round, sched.PluginCandidates) },
		Query: func(d *wire.Decision) sched.PluginQuery { return c.pluginQuery(now, req, d) }})
	if score != nil {
		fx.Actions = append(fx.Actions, *score)
	}
	return d, wait
}

func (c *Core) pluginQuery(now time.Time, r *sched.Request, d *wire.Decision) sched.PluginQuery {
	q := sched.PluginQuery{Version: sched.PluginVersion, Instance: r.Instance, Service: r.Service, Labels: r.Spec.Labels, Need: r.Need, Placement: r.Spec.Placement, Seed: d.Seed}
	peers := map[string]int{}
	for _, x := range r.Peers {
		peers[x.Worker]++
	}
	for _, k := range d.Top {
		w := c.workers[k.Name]
		if w == nil || w.Facts == nil {
			continue
		}
		x := sched.PluginCandidate{Name: k.Name, Score: k.Score, Arch: w.Facts.Arch, Area: w.Facts.Area, Labels: w.Facts.Labels, Location: w.Facts.Location,
			Coordinate: w.coordinate(), Capacity: w.Facts.Capacity, Available: w.available(), Power: w.Facts.Power, Pressure: w.report.Pressure, Peers: peers[k.Name]}
		if !w.reportAt.IsZero() {
			x.Age = max(0, now.Sub(w.reportAt).Seconds())
		}
		q.Candidates = append(q.Candidates, x)
	}
	return q
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
