package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

const (
	// maxPlanned bounds the moves that a plan tells.
	maxPlanned = 50
	// joined is how long a worker must have been in touch to count.
	joined = 5 * time.Minute
	// leastGain is by how much a ranking (0 to 1) must rate another worker higher: a little less than one of two preferences that is
	// met after all.
	leastGain = 0.08
	// A worker is busy from busyShare of its processors on. Another must be less busy by leastRelief with the instance, of which the busy one
	// must feel at least leastWeight.
	busyShare   = 0.8
	leastRelief = 0.25
	leastWeight = 0.05
)

// Rebalance has the site look for better places now, and move what gains from it, one after the other. The result is a
// view.RebalancePlan; with DryRun nothing is moved.
type Rebalance struct{ DryRun bool }

// move is an instance that would be better off elsewhere.
type move struct {
	p    *placement
	d    wire.Decision
	gain float64
	why  string
}

func (c *Core) askBalance(now time.Time, m Rebalance, fx *wire.Effects) {
	fx.Result = c.planBalance(now)
	if !m.DryRun && c.balance.Ask(now) {
		c.rebalance(now, fx)
	}
}

// rebalance looks for one move, if it is time.
func (c *Core) rebalance(now time.Time, fx *wire.Effects) {
	look, asked := c.balance.Begin(now)
	if !look {
		return
	}
	if !asked {
		c.lookBusy()
	}
	if len(c.moving)+len(c.waiting)+len(c.stranded) > 0 || !c.drainer.drains.None() || !asked && c.detect.Busy() {
		if c.balance.Late(now) {
			c.balance.EndPass(now)
		}
		return // something more urgent goes on
	}
	best := c.bestMove(now, asked)
	if best == nil || c.balance.Late(now) {
		if asked {
			c.balance.EndPass(now)
		}
		return
	}
	c.balance.Moved(best.p.A.ID)
	best.p.Rebalanced.Improved(now)
	c.migrate(now, best.p, best.d, "for a better place: "+best.why, fx)
}

// lookBusy counts in how many looks in a row workers were busy.
func (c *Core) lookBusy() {
	var busy []string
	for name, w := range c.workers {
		if w.usedShare(0) >= busyShare {
			busy = append(busy, name)
		}
	}
	c.balance.Count(busy)
}

// bestMove finds the instance that gains most. asked: somebody did, so that what is new counts as well.
func (c *Core) bestMove(now time.Time, asked bool) *move {
	var best *move
	c.balance.Best(sortedIDs(c.places), func(id skerry.InstanceID, look func() bool) {
		p := c.places[id]
		if c.find.stays(now, p) != "" || !asked && !p.ripe(now) || asked && c.balance.Passed(id) || !look() {
			return
		}
		if m := c.gains(now, p, asked); m != nil && (best == nil || m.gain > best.gain) {
			best = m
		}
	})
	return best
}

// gains tells where an instance would be better off by enough, or gives nil.
func (c *Core) gains(now time.Time, p *placement, asked bool) *move {
	policy, plugins, why := c.find.policyOf(&p.A)
	if why != nil || len(plugins) > 0 {
		return nil // plugins are not asked about what runs
	}
	avoid := append(append(c.heldWorkers(), c.find.incapable(p)...), p.Worker)
	for name, w := range c.workers {
		k := c.Kids.Get(name)
		if r := w.report.Pressure; k == nil || !asked && now.Sub(k.Since) < joined || r != nil && (r.Memory > pressureLimit/2 || r.CPU > pressureLimit) {
			avoid = append(avoid, name)
		}
	}
	m := c.ratedHigher(p, policy, avoid)
	if r := c.lessBusy(p, policy, avoid); r != nil && (m == nil || r.gain > m.gain) {
		m = r
	}
	return m
}

// ratedHigher looks for a worker that the service's policy rates higher than its own.
func (c *Core) ratedHigher(p *placement, policy sched.Policy, avoid []string) *move {
	by := "policy " + policy.Name
	switch policy.Rank.(type) {
	case sched.BestFit, sched.FirstFit:
		// How full workers are is for new ones; nothing that runs is moved for that. Its preferences count all the same.
		q := &p.A.Spec.Placement
		prefers := func(a spec.Affinity) bool { return a.Preferred }
		if !slices.ContainsFunc(q.Affinity, prefers) && !slices.ContainsFunc(q.AntiAffinity, prefers) {
			return nil
		}
		policy.Rank, by = sched.FirstFit{}, "what it prefers"
	}
	w, req := c.workers[p.Worker], c.find.request(p)
	// Its own place is rated as if it were not there yet.
	c.site.Give(p.Worker, req)
	c.site.SetLoad(p.Worker, w.loads.Minus(c.neighbours.Of(&p.A)))
	req.Only = p.Worker
	here := c.site.Place(time.Time{}, policy, req, 0)
	c.seeWorker(w)
	req.Only, req.Avoid = "", slices.Concat(req.Avoid, avoid)
	there := c.site.Place(time.Time{}, policy, req, 0)
	if here.Chosen == "" || there.Chosen == "" {
		return nil // a rule that its place breaks is for the SLA
	}
	a, b := here.Top[0].Score, there.Top[0].Score
	if b-a < leastGain {
		return nil
	}
	return &move{p, there, b - a, fmt.Sprintf("%s rates worker %s %.2f for it, and %s %.2f", by, there.Chosen, b, p.Worker, a)}
}

// lessBusy looks for a worker on which much less processor time is used, for an instance of one that is busy.
func (c *Core) lessBusy(p *placement, policy sched.Policy, avoid []string) *move {
	w := c.workers[p.Worker]
	switch policy.Rank.(type) {
	case sched.Pack, sched.LeastPower:
		return nil // they want it so
	}
	if !c.balance.Busy(p.Worker) || p.qos == nil || w.usedShare(0)-w.usedShare(-p.qos.CPU) < leastWeight {
		return nil
	}
	busy := w.usedShare(0)
	for name, o := range c.workers {
		if o.usedShare(p.qos.CPU) > busy-leastRelief {
			avoid = append(avoid, name)
		}
	}
	req := c.find.request(p)
	req.Avoid = slices.Concat(req.Avoid, avoid)
	d := c.site.Place(time.Time{}, policy, req, 0)
	if d.Chosen == "" {
		return nil
	}
	there := c.workers[d.Chosen].usedShare(p.qos.CPU)
	return &move{p, d, busy - there, fmt.Sprintf("%.0f %% of the processors of worker %s are in use, and %.0f %% of those of %s would be with it", 100*busy, p.Worker, 100*there, d.Chosen)}
}

// planBalance tells what would be moved, one after the other, if it were asked for now, and what gains from it and stays. The books are as
// before afterwards.
func (c *Core) planBalance(now time.Time) (plan view.RebalancePlan) {
	type was struct {
		p               *placement
		worker, runtime string
	}
	var undo []was
	loads := map[string]spec.Contention{}
	for name, w := range c.workers {
		loads[name] = w.loads
	}
	end := c.balance.Rehearse()
	shift := func(p *placement, to, runtime string) {
		c.reserve(p, -1)
		c.bind(p, to)
		p.A.Runtime = runtime
		c.reserve(p, 1)
	}
	for len(plan.Moves) < maxPlanned {
		m := c.bestMove(now, true)
		if m == nil {
			break
		}
		p := m.p
		plan.Moves = append(plan.Moves, view.RebalanceMove{Instance: p.A.ID, Service: p.A.Service, From: skerry.WorkerName(p.Worker), To: skerry.WorkerName(m.d.Chosen), Gain: m.gain, Why: m.why})
		undo = append(undo, was{p, p.Worker, p.A.Runtime})
		c.balance.Moved(p.A.ID)
		shift(p, m.d.Chosen, c.workers.runtimeAt(&p.A.Spec, m.d.Chosen))
	}
	for _, u := range slices.Backward(undo) {
		shift(u.p, u.worker, u.runtime)
	}
	end()
	for name, l := range loads {
		c.workers[name].loads = l
		c.site.SetLoad(name, l)
	}
	for _, id := range sortedIDs(c.places) {
		p := c.places[id]
		if why := c.find.stays(now, p); why != "" && p.Worker != "" && c.workers[p.Worker] != nil && p.Obs.State == skerry.Running && p.Pinned == "" && len(plan.Stays) < maxPlanned {
			if m := c.gains(now, p, true); m != nil {
				plan.Stays = append(plan.Stays, view.StayView{Instance: id, Reason: why})
			}
		}
	}
	slices.SortStableFunc(plan.Stays, func(a, b view.StayView) int {
		return cmp.Or(strings.Compare(a.Reason, b.Reason), strings.Compare(string(a.Instance), string(b.Instance)))
	})
	return plan
}
