package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
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

// balancer moves instances, one at a time, to places that are clearly better than their own.
type balancer struct {
	*lifecycle
	find    *finder
	balance *moves.Balance
	drains  *moves.Drains // which come first
}

// improvement is an instance that would be better off elsewhere.
type improvement struct {
	p    *placement
	d    wire.Decision
	gain float64
	why  string
}

func (br *balancer) askBalance(now time.Time, m Rebalance, fx *wire.Effects) {
	plan := br.planBalance(now)
	fx.Result = plan
	if !m.DryRun && br.balance.Ask(now, len(plan.Moves)) {
		br.rebalance(now, fx)
	}
}

// rebalance looks for one move, if it is time.
func (br *balancer) rebalance(now time.Time, fx *wire.Effects) {
	look, asked := br.balance.Begin(now)
	if !look {
		return
	}
	if !asked {
		br.lookBusy()
	}
	if len(br.moving)+len(br.waiting)+len(br.stranded) > 0 || !br.drains.None() || !asked && br.detect.Busy() {
		if br.balance.Late(now) {
			br.endPass(now, "something more urgent went on", fx)
		}
		return // something more urgent goes on
	}
	best := br.bestMove(now, asked)
	switch {
	case best == nil && asked:
		br.endPass(now, "no other instance has a clearly better place any more", fx)
		return
	case best != nil && br.balance.Late(now):
		br.endPass(now, "it took too long", fx)
		return
	case best == nil:
		return
	}
	br.balance.Moved(best.p.A.ID)
	best.p.Rebalanced.Improved(now)
	br.migrate(now, best.p, best.d, "for a better place: "+best.why, fx)
}

// endPass ends what somebody asked for, and says what was announced of it and is not done.
func (br *balancer) endPass(now time.Time, why string, fx *wire.Effects) {
	if told, left := br.balance.EndPass(now); left > 0 {
		text := fmt.Sprintf("%d of %d moves to better places were not begun: %s", left, told, why)
		br.siteEvent(fx, now, wire.EventNormal, "RebalanceEnded", text, "")
	}
}

// lookBusy counts in how many looks in a row workers were busy.
func (br *balancer) lookBusy() {
	var busy []string
	for name, w := range br.workers {
		if w.usedShare(0) >= busyShare {
			busy = append(busy, name)
		}
	}
	br.balance.Count(busy)
}

// bestMove finds the instance that gains most. asked: somebody did, so that what is new counts as well.
func (br *balancer) bestMove(now time.Time, asked bool) *improvement {
	var best *improvement
	br.balance.Best(sortedIDs(br.places), func(id skerry.InstanceID, look func() bool) {
		p := br.places[id]
		if br.find.stays(now, p) != "" || !asked && !p.ripe(now) || asked && br.balance.Passed(id) || !look() {
			return
		}
		if m := br.gains(now, p, asked); m != nil && (best == nil || m.gain > best.gain) {
			best = m
		}
	})
	return best
}

// gains tells where an instance would be better off by enough, or gives nil.
func (br *balancer) gains(now time.Time, p *placement, asked bool) *improvement {
	policy, plugins, why := br.find.policyOf(&p.A)
	if why != nil || len(plugins) > 0 {
		return nil // plugins are not asked about what runs
	}
	avoid := append(append(br.frozenWorkers(), br.find.incapable(p)...), p.Worker)
	for name, w := range br.workers {
		k := br.Children.Get(name)
		if r := w.report.Pressure; k == nil || !asked && now.Sub(k.Since) < joined ||
			r != nil && (r.Memory > pressureLimit/2 || r.CPU > pressureLimit) {
			avoid = append(avoid, name)
		}
	}
	m := br.ratedHigher(p, policy, avoid)
	if r := br.lessBusy(p, policy, avoid); r != nil && (m == nil || r.gain > m.gain) {
		m = r
	}
	return m
}

// ratedHigher looks for a worker that the service's policy rates higher than its own.
func (br *balancer) ratedHigher(inst *placement, policy sched.Policy, avoid []string) *improvement {
	by := "policy " + policy.Name
	switch policy.Rank.(type) {
	case sched.BestFit, sched.FirstFit:
		// How full workers are is for new ones; nothing that runs is moved for that. Its preferences count all the same.
		q := &inst.A.Spec.Placement
		prefers := func(a spec.Affinity) bool { return a.Preferred }
		if !slices.ContainsFunc(q.Affinity, prefers) && !slices.ContainsFunc(q.AntiAffinity, prefers) {
			return nil
		}
		policy.Rank, by = sched.FirstFit{}, "what it prefers"
	}
	w, req := br.workers[inst.Worker], br.find.request(inst)
	// Its own place is rated as if it were not there yet.
	br.site.Give(inst.Worker, req)
	br.site.SetLoad(inst.Worker, w.loads.Minus(br.neighbours.Of(&inst.A)))
	req.Only = inst.Worker
	here := br.site.Place(time.Time{}, policy, req, 0)
	br.seeWorker(w)
	req.Only, req.Avoid = "", slices.Concat(req.Avoid, avoid)
	there := br.site.Place(time.Time{}, policy, req, 0)
	if here.Chosen == "" || there.Chosen == "" {
		return nil // a rule that its place breaks is for the SLA
	}
	a, b := here.Top[0].Score, there.Top[0].Score
	if b-a < leastGain {
		return nil
	}
	return &improvement{inst, there, b - a, fmt.Sprintf("%s rates worker %s %.2f for it, and %s %.2f", by, there.Chosen, b, inst.Worker, a)}
}

// lessBusy looks for a worker on which much less processor time is used, for an instance of one that is busy.
func (br *balancer) lessBusy(inst *placement, policy sched.Policy, avoid []string) *improvement {
	w := br.workers[inst.Worker]
	switch policy.Rank.(type) {
	case sched.Pack, sched.LeastPower:
		return nil // they want it so
	}
	if !br.balance.Busy(inst.Worker) || inst.qos == nil || w.usedShare(0)-w.usedShare(-inst.qos.CPU) < leastWeight {
		return nil
	}
	busy := w.usedShare(0)
	for name, o := range br.workers {
		if o.usedShare(inst.qos.CPU) > busy-leastRelief {
			avoid = append(avoid, name)
		}
	}
	req := br.find.request(inst)
	req.Avoid = slices.Concat(req.Avoid, avoid)
	d := br.site.Place(time.Time{}, policy, req, 0)
	if d.Chosen == "" {
		return nil
	}
	there := br.workers[d.Chosen].usedShare(inst.qos.CPU)
	return &improvement{inst, d, busy - there, fmt.Sprintf("%.0f %% of the processors of worker %s are in use, and %.0f %% of those of %s would be with it", 100*busy, inst.Worker, 100*there, d.Chosen)}
}

// planBalance tells what would be moved, one after the other, if it were asked for now, and what gains from it and stays. The books are as
// before afterwards.
func (br *balancer) planBalance(now time.Time) (plan view.RebalancePlan) {
	type was struct {
		p               *placement
		worker, runtime string
	}
	var undo []was
	loads := map[string]spec.Contention{}
	for name, w := range br.workers {
		loads[name] = w.loads
	}
	end := br.balance.Rehearse()
	shift := func(p *placement, to, runtime string) {
		br.reserve(p, -1)
		br.bind(p, to)
		p.A.Runtime = runtime
		br.reserve(p, 1)
	}
	for len(plan.Moves) < maxPlanned {
		m := br.bestMove(now, true)
		if m == nil {
			break
		}
		p := m.p
		plan.Moves = append(plan.Moves, view.RebalanceMove{Instance: p.A.ID, Service: p.A.Service, From: skerry.WorkerName(p.Worker),
			To: skerry.WorkerName(m.d.Chosen), Gain: m.gain, Why: m.why})
		undo = append(undo, was{p, p.Worker, p.A.Runtime})
		br.balance.Moved(p.A.ID)
		shift(p, m.d.Chosen, br.workers.runtimeAt(&p.A.Spec, m.d.Chosen))
	}
	for _, u := range slices.Backward(undo) {
		shift(u.p, u.worker, u.runtime)
	}
	end()
	for name, l := range loads {
		br.workers[name].loads = l
		br.site.SetLoad(name, l)
	}
	for _, id := range sortedIDs(br.places) {
		p := br.places[id]
		if why := br.find.stays(now, p); why != "" && p.Worker != "" && br.workers[p.Worker] != nil && p.Obs.State == skerry.Running &&
			p.Pinned == "" && len(plan.Stays) < maxPlanned {
			if m := br.gains(now, p, true); m != nil {
				plan.Stays = append(plan.Stays, view.StayView{Instance: id, Reason: why})
			}
		}
	}
	slices.SortStableFunc(plan.Stays, func(a, b view.StayView) int {
		return cmp.Or(strings.Compare(a.Reason, b.Reason), strings.Compare(string(a.Instance), string(b.Instance)))
	})
	return plan
}
