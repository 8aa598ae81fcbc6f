package cluster

import (
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const (
	// What counts as short, beside moves.WaitingLimit: shares of time in which something waited (the kernel's pressure stall information).
	pressureLimit = 0.25
	// pressureSlack is how much more pressure elsewhere counts as the same: it is told of different moments.
	pressureSlack = 0.2
)

// judge looks whether an instance gets what its SLA says. Rigidness r lets a share of violation of 1-r pass (Oakestra,
// section 3.2: the sensitivity for re-triggering scheduling); beyond it the instance gets a new place, in its site where
// there is one, else the owner is told.
func (c *Core) judge(now time.Time, p *placement, fx *wire.Effects) {
	s := &p.SLA
	if p.Obs.Ready {
		s.Given(true, p.Obs.Restarts)
	}
	if p.Obs.State != skerry.Running || p.Removing || p.Obs.Unreachable {
		s.Pause(now)
		return
	}
	p.Located.Shift(c.workers.where)
	what, violated := c.violation(p)
	s.See(now, violated)
	c.watch(p.A.ID, violated != "")
	if s.Raise(violated) {
		c.eventUp(fx, now, p, wire.EventWarning, "SLAViolated", violated, uplink.InGeneral(what, violated))
		c.changed(now, p, fx)
	} else if was, ends := s.Settle(violated, p.Obs.Violated != "", p.drained); ends {
		p.Obs.Violated = ""
		c.event(fx, now, p, wire.EventNormal, "SLAKept", "no longer: "+was)
		c.changed(now, p, fx)
	}
	c.refreshUsers(now, p, fx)
	if violated == "" || !s.Exceeds(p.A.Spec.Placement.Rigidness) || s.Rests(now) || p.Next != nil || p.Pinned != "" || p.A.Spec.Mode != spec.ModeService {
		if c.questions.Judged(p.A.ID) && !c.drains.Has(p.Worker) {
			c.questions.Drop(p.A.ID) // what plugins say of a move that is not wanted any more
		}
		return
	}
	if at := c.endsElsewhere(p); now.Before(at) {
		s.Rest(at) // with a copy that may still run out of touch there would be three
		return
	}
	d, wait := c.better(now, p, what, fx)
	if wait {
		return // it is watched, and judged again when the plugins have answered
	}
	s.Look(now)
	if d.Chosen != "" {
		s.Move(now)
		c.migrate(now, p, d, violated, fx)
		return
	}
	// Nobody at the site does better: the owner may know another site.
	const none = "the site has no worker that keeps the SLA: "
	if p.Obs.Violated = violated; p.Origin == "root" {
		p.Obs.Violated = c.workers.anonymous(p, uplink.InGeneral(what, violated))
	}
	c.changed(now, p, fx)
	c.eventUp(fx, now, p, wire.EventWarning, "NoBetterPlace", none+violated, none+uplink.InGeneral(what, violated))
}

// judgeWatched judges again the instances whose SLA is violated.
func (c *Core) judgeWatched(now time.Time, fx *wire.Effects) {
	for _, id := range sortedIDs(c.watched) {
		p := c.places[id]
		switch {
		case p == nil || p.Obs.State != skerry.Running:
			c.watch(id, false)
		case !now.Before(p.SLA.Again()):
			c.judge(now, p, fx)
		}
	}
}

// violation says what of an instance's SLA does not hold now, in a word and in detail, or "".
func (c *Core) violation(p *placement) (what, text string) {
	w := c.workers[p.Worker]
	if w == nil {
		return "", ""
	}
	// What crashes is restarted where it is, and moved when that does not help; that is not the place's fault.
	if p.SLA.Fell(p.Obs.Ready, p.Obs.Restarts) && p.Obs.Phase == skerry.PhaseRunning &&
		p.Obs.Restart >= p.A.Restart { // else somebody has it restarted
		return "availability", "it is not available: " + p.Obs.Reason
	}
	for i, v := range w.unpromised().Vector() {
		if v < 0 && p.A.Spec.Need().Vector()[i] > 0 {
			return "promised", "its worker has less " + spec.ResourceNames[i] + " than was promised"
		}
	}
	if q := p.qos; q != nil {
		// Short of CPU is who waits for it, has not what was promised, and is not held back by a limit of its own.
		if need := p.A.Spec.Need().CPU; q.Waiting > moves.WaitingLimit && q.CPU < need*95/100 && q.Throttled < 0.05 {
			return "waiting", fmt.Sprintf("it gets %s of the %s cores promised, and waits for a processor %.0f %% of the time", q.CPU, need, 100*q.Waiting)
		}
		for _, l := range p.A.Spec.Links {
			if ms, ok := q.Links[l.Service]; ok && l.MaxLatency != nil && ms > float64(*l.MaxLatency)/1e6 {
				return "link", fmt.Sprintf("the round trip to %s takes %.1f ms, at most %s are allowed", l.Service, ms, *l.MaxLatency)
			}
		}
	}
	if r := w.report.Pressure; r != nil && r.Memory > pressureLimit {
		return "pressure", fmt.Sprintf("its worker stalls for lack of memory %.0f %% of the time", 100*r.Memory)
	}
	policy, _, why := policyOf(c, &p.A)
	if why != nil {
		return "", ""
	}
	policy.Rules = slices.DeleteFunc(slices.Clone(policy.Rules), func(r sched.Rule) bool {
		_, users := r.(sched.Users)
		return !r.Lasting() || users && len(p.Users) == 0 // not measured in this life of the store
	})
	if len(policy.Rules) == 0 {
		return "", ""
	}
	if out := c.site.Fails(policy, c.lasting(p), p.Worker); out != nil {
		return out.What, out.Text
	}
	return "", ""
}

// better looks for a worker that would keep the SLA. Workers under pressure are no improvement, unless it is about something
// else (what, as violation has it; empty: nothing is violated) and the instance's own is no better off. wait is true while plugins
// think: a rule that they stand for also holds for where an instance moves to.
func (c *Core) better(now time.Time, p *placement, what string, fx *wire.Effects) (d wire.Decision, wait bool) {
	var own *wire.Pressure
	if w := c.workers[p.Worker]; w != nil && what != "" && what != "waiting" && what != "pressure" {
		own = w.report.Pressure
	}
	return c.besides(now, p, c.workers.shortOf(own), fx)
}

// besides looks for a worker for an instance, other than its own and those named.
func (c *Core) besides(now time.Time, p *placement, others []string, fx *wire.Effects) (d wire.Decision, wait bool) {
	policy, plugins, why := policyOf(c, &p.A)
	if why != nil {
		return wire.Decision{Why: []wire.Reason{*why}}, false
	}
	if why := c.workers.uncarried(p); why != "" {
		return wire.Decision{Why: []wire.Reason{{What: "checkpoint", Count: 1, Text: why}}}, false
	}
	req := c.request(p)
	req.Avoid = slices.Concat(req.Avoid, []string{p.Worker}, others, c.heldWorkers(), c.incapable(p))
	round := c.questions.Next()
	if len(plugins) == 0 {
		return c.site.Place(now, policy, req, round), false
	}
	c.questions.Late(now, p.A.ID)
	return c.consult(now, p, policy, plugins, req, fx)
}
