package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// request is what the scheduler is asked for a placement.
func (c *Core) request(p *placement) *sched.Request {
	s := &p.A.Spec
	r := &sched.Request{Instance: p.A.ID, Service: p.A.Service.Service, Spec: s, Need: p.need(), Only: p.Pinned, Avoid: p.Avoid, Users: p.Users,
		Contention: c.neighbours.Of(&p.A), Kept: c.keptFrom(p), Data: c.dataAt(p), Devices: p.A.Devices, Runtime: p.A.Runtime,
		Egress: c.opt.Admission.egressOf(p.A.Org, s) != nil, Level: c.opt.Admission.LevelOf(p.A.Org), Signed: c.opt.Admission.signersOf(p.A.Org) != nil}
	if r.Data != "" {
		r.Need.Storage -= c.volumes.Idle(p.claims()) // which is its own
	}
	if c.peersMatter(p) {
		r.Peers = c.peersOf(p, func(*placement) bool { return true })
	}
	return r
}

// peersOf lists where other instances of the application are, those that matter.
func (l *ledger) peersOf(p *placement, matters func(o *placement) bool) []sched.Peer {
	var list []*placement
	for _, o := range l.byApp[p.A.Service.App] {
		if o != p && o.Worker != "" && !o.Removing && !o.ended() && matters(o) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *placement) int { return strings.Compare(string(a.A.ID), string(b.A.ID)) })
	out := make([]sched.Peer, 0, len(list))
	for _, o := range list {
		out = append(out, sched.Peer{Worker: o.Worker, Service: o.A.Service.Service, Labels: o.A.Spec.Labels, Links: o.A.Spec.Links})
	}
	return out
}

// lasting is request for the rules that hold for as long as an instance runs. It is asked with every report of a worker, so
// that of the others it lists only the ends of links with limits.
func (l *ledger) lasting(p *placement) *sched.Request {
	s := &p.A.Spec
	r := &sched.Request{Instance: p.A.ID, Service: p.A.Service.Service, Spec: s, Need: s.Need(), Only: p.Pinned, Users: p.Users}
	if l.limits[p.A.Service.App] > 0 {
		r.Peers = l.peersOf(p, func(o *placement) bool { return p.limits(o) || o.limits(p) })
	}
	return r
}

// peersMatter reports whether where other instances of the application are has a part in placing one; for most it has
// not, and listing them for each of thousands of replicas costs.
func (l *ledger) peersMatter(p *placement) bool {
	q := &p.A.Spec.Placement
	return len(q.Affinity)+len(q.AntiAffinity) > 0 || q.Policy == spec.PolicySpread || strings.HasPrefix(q.Policy, spec.PluginPrefix) || l.limits[p.A.Service.App] > 0 || p.limited()
}

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
	if p.again = gathers(c, now, p); !p.again.IsZero() {
		return
	}
	policy, plugins, why := policyOf(c, &p.A)
	if why != nil {
		c.unplaceable(now, p, []wire.Reason{*why}, nil, fx)
		return
	}
	if !c.usersKnown(now, p, policy, fx) {
		return
	}
	c.questions.Next()
	req := c.request(p)
	var d wire.Decision
	if len(plugins) == 0 {
		d = c.placeFree(now, policy, req)
	} else {
		var wait bool
		if d, wait = c.consult(now, p, policy, plugins, req, fx); wait {
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

// placeFree looks for a worker, of those that are held on their device only where no other will do: there an instance waits for
// somebody's approval.
func (c *Core) placeFree(now time.Time, policy sched.Policy, req *sched.Request) wire.Decision {
	held := c.heldWorkers()
	if len(held) == 0 || req.Only != "" {
		return c.site.Place(now, policy, req, c.questions.Round())
	}
	avoid := req.Avoid
	req.Avoid = slices.Concat(avoid, held)
	d := c.site.Place(now, policy, req, c.questions.Round())
	if req.Avoid = avoid; d.Chosen == "" {
		d = c.site.Place(now, policy, req, c.questions.Round())
	}
	return d
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

// give binds an instance to a worker under a new fencing token.
func (c *Core) give(now time.Time, p *placement, d wire.Decision, fx *wire.Effects) {
	c.wait(p.A.ID, false)
	c.left(d.Chosen, p.A.ID)
	c.reclaim(p, d.Chosen)
	c.found(p.A.ID, d.Chosen)
	p.room = time.Time{}
	c.endKeeping(p.A.ID)
	p.Given(false, 0)
	c.bind(p, d.Chosen)
	c.claimAt(p, p.Worker)
	c.opt.Admission.confine(&p.A)
	p.A.Runtime, p.A.Devices = c.workers.runtimeAt(&p.A.Spec, d.Chosen), c.site.PickDevices(d.Chosen, &p.A.Spec)
	p.Placed, p.Decision, p.Refused, p.Ran = now, &d, false, false
	p.A.Fence, p.A.Held = c.mint(p, fx), nil
	p.Obs.State, p.Obs.Fence, p.Obs.Reason, p.Obs.Rejected, p.Obs.Why = skerry.WorkerScheduled, p.A.Fence, "", false, nil
	p.Obs.Unreachable = false
	c.reserve(p, 1)
	c.send(p)
	c.linked[p.A.Service.App] = true
	c.uplink.Touch()
	c.changed(now, p, fx)
	c.crowd(now, p, fx)
	c.event(fx, now, p, wire.EventNormal, "WorkerScheduled", "placed on worker "+p.Worker+" by "+d.Policy)
}
