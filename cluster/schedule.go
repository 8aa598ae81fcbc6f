package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/sched"
)

func (c *Core) request(p *placement) *sched.Request {
	return &sched.Request{Instance: p.A.ID, Spec: &p.A.Spec, Need: p.A.Spec.Need(), Avoid: p.Avoid}
}

func (c *Core) policy(p *placement) sched.Policy {
	if q, ok := c.opt.Policies[p.A.Spec.Placement.Policy]; ok {
		return q
	}
	return sched.ROM()
}

// view is the scheduler's view of the site.
func (c *Core) view() []*sched.Worker {
	out := make([]*sched.Worker, 0, len(c.workers))
	for _, w := range c.workers {
		out = append(out, c.viewOf(w))
	}
	slices.SortFunc(out, func(a, b *sched.Worker) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (c *Core) viewOf(w *worker) *sched.Worker {
	k := c.Kids.Get(w.Name)
	v := &sched.Worker{Name: w.Name, Refusing: w.refusing(), Lost: w.lost || k == nil || !k.Connected, Available: w.available(), HostPorts: map[string]bool{}}
	if w.Facts != nil {
		v.Arch, v.Runtimes, v.Area, v.Location, v.Capacity = w.Facts.Arch, w.Facts.PassedRuntimes(), w.Facts.Area, w.Facts.Location, w.Facts.Capacity
	}
	for k := range w.ports {
		v.HostPorts[k] = true
	}
	return v
}

// placeWaiting looks for a worker for every instance that has none, oldest first.
func (c *Core) placeWaiting(now time.Time, fx *skerry.Effects) {
	if len(c.waiting) == 0 {
		return
	}
	view := c.view()
	byName := map[string]*sched.Worker{}
	for _, v := range view {
		byName[v.Name] = v
	}
	ids := sortedIDs(c.waiting)
	slices.SortStableFunc(ids, func(a, b skerry.InstanceID) int { return c.places[a].Created.Compare(c.places[b].Created) })
	for _, id := range ids {
		p := c.places[id]
		candidates := view
		if p.Pinned != "" {
			v := byName[p.Pinned]
			if v == nil {
				continue
			}
			candidates = []*sched.Worker{v}
		}
		c.rounds++
		d := sched.Place(now, c.policy(p), c.request(p), candidates, c.rounds)
		if d.Chosen == "" {
			switch {
			case p.Pinned != "":
				// a copy of a perWorker service waits for its worker
			default:
				c.refuse(now, p, d.Why, &d, fx)
			}
			continue
		}
		c.give(now, p, d, fx)
		v := byName[d.Chosen]
		*v = *c.viewOf(c.workers[d.Chosen])
	}
}

// give binds an instance to a worker under a new fencing token.
func (c *Core) give(now time.Time, p *placement, d skerry.Decision, fx *skerry.Effects) {
	delete(c.waiting, p.A.ID)
	c.seq++
	fx.Put(keySeq, []byte(fmt.Sprint(c.seq)))
	p.Worker, p.Placed, p.Decision, p.Refused = d.Chosen, now, &d, false
	p.A.Fence.ClusterTerm, p.A.Fence.Sequence = c.opt.Term, c.seq
	p.Obs.State, p.Obs.Fence, p.Obs.Reason, p.Obs.Rejected, p.Obs.Why = skerry.WorkerScheduled, p.A.Fence, "", false, nil
	p.Obs.Unreachable = false
	c.reserve(p, 1)
	c.send(p)
	c.linked[p.A.Service.App] = true
	c.reportDue = true
	c.changed(now, p, fx)
	c.event(fx, now, p, skerry.EventNormal, "WorkerScheduled", "placed on worker "+p.Worker+" by "+d.Policy)
}

// acceptGroup takes a perWorker assignment.
func (c *Core) acceptGroup(now time.Time, a skerry.Assignment, origin string, fx *skerry.Effects) {
	g := c.groups[a.ID]
	if g != nil && g.Removing {
		return
	}
	if g != nil && g.A.Gen == a.Gen && g.A.Restart == a.Restart && g.A.Fence.RootEpoch == a.Fence.RootEpoch {
		return
	}
	if g == nil {
		g = &group{Origin: origin, Created: now}
		c.groups[a.ID] = g
	}
	g.A = a
	fx.Put(prefixGroup+string(a.ID), mustJSON(g))
	for _, p := range c.copies(a.ID) {
		fence := p.A.Fence
		p.A.Gen, p.A.Restart = a.Gen, a.Restart
		p.A.Fence = fence
		p.A.Fence.RootEpoch = a.Fence.RootEpoch
		if p.Worker != "" {
			p.Obs.Fence = p.A.Fence
			c.send(p)
		}
	}
	c.grew = true
	c.tellGroup(now, g, fx)
}

// copies lists the placements of a group, by id.
func (c *Core) copies(id skerry.InstanceID) []*placement {
	g := c.groups[id]
	if g == nil {
		return nil
	}
	var out []*placement
	for _, pid := range sortedIDs(c.byApp[g.A.Service.App]) {
		if p := c.places[pid]; p.Group == id {
			out = append(out, p)
		}
	}
	return out
}

// expandGroups gives every worker that fits its copy, and ends copies on workers that are no longer there.
func (c *Core) expandGroups(now time.Time, fx *skerry.Effects) {
	for _, id := range sortedIDs(c.groups) {
		g := c.groups[id]
		if g.Removing {
			continue
		}
		if why := c.opt.Admission.Check(&g.A); why != nil {
			o := skerry.Observation{ID: id, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Reason: why.Text, Why: []skerry.Reason{*why}}
			c.tellGroupAs(now, g, o, fx)
			continue
		}
		have := map[string]bool{}
		for _, p := range c.copies(id) {
			have[p.Pinned] = true
			if c.workers[p.Pinned] == nil {
				c.remove(now, p, fx)
			}
		}
		for _, v := range c.view() {
			if have[v.Name] {
				continue
			}
			a := g.A
			a.ID = id + "-" + skerry.InstanceID(v.Name)
			req := &sched.Request{Instance: a.ID, Spec: &a.Spec, Need: a.Spec.Need()}
			if sched.Place(now, sched.Policy{Name: "perWorker", Filters: sched.BaseFilters(), Scorer: sched.BestFit{}}, req, []*sched.Worker{v}, 0).Chosen == "" {
				continue
			}
			p := &placement{A: a, Origin: g.Origin, Group: id, Pinned: v.Name, Created: now}
			p.Obs = skerry.Observation{ID: a.ID, Gen: a.Gen, Fence: a.Fence, State: skerry.ClusterScheduled}
			c.addPlacement(p)
			c.waiting[a.ID] = true
			c.changed(now, p, fx)
		}
		c.tellGroup(now, g, fx)
	}
}

func (c *Core) removeGroup(now time.Time, g *group, fx *skerry.Effects) {
	g.Removing = true
	fx.Put(prefixGroup+string(g.A.ID), mustJSON(g))
	for _, p := range c.copies(g.A.ID) {
		c.remove(now, p, fx)
	}
	c.tellGroup(now, g, fx)
}

// tellGroup folds the copies of a group into one observation for its owner.
func (c *Core) tellGroup(now time.Time, g *group, fx *skerry.Effects) {
	list := c.copies(g.A.ID)
	if g.Removing && len(list) == 0 {
		delete(c.groups, g.A.ID)
		fx.Delete(prefixGroup + string(g.A.ID))
		c.ownerGone(now, g.A.ID, fx)
		return
	}
	o := skerry.Observation{ID: g.A.ID, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Want: len(list), Restart: g.A.Restart}
	if len(list) == 0 {
		o.Reason = "no worker fits yet"
	}
	for _, p := range list {
		switch {
		case p.Obs.Ready:
			o.Have++
		case p.Obs.Reason != "" && o.Reason == "":
			o.Reason = anonymous(p.Obs.Reason, p.Worker)
		}
		if p.Obs.State == skerry.Running {
			o.State = skerry.Running
		} else if p.Worker != "" && o.State == skerry.ClusterScheduled {
			o.State = skerry.WorkerScheduled
		}
		o.Restarts += p.Obs.Restarts
		o.Restart = min(o.Restart, p.Obs.Restart)
	}
	o.Ready = len(list) > 0 && o.Have == len(list)
	if o.Ready {
		o.Reason = ""
	}
	c.tellGroupAs(now, g, o, fx)
}

func (c *Core) tellGroupAs(now time.Time, g *group, o skerry.Observation, fx *skerry.Effects) {
	if g.Origin == "local" {
		c.Apps.Observe(now, Self, o, fx)
		return
	}
	c.report(o)
}
