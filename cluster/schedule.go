package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/sched"
)

// request is what the scheduler is asked for a placement.
func (c *Core) request(p *placement) *sched.Request {
	s := &p.A.Spec
	r := &sched.Request{Instance: p.A.ID, Service: p.A.Service.Service, Spec: s, Need: s.Need(), Only: p.Pinned, Avoid: p.Avoid}
	if !c.peersMatter(p) {
		return r
	}
	for _, id := range sortedIDs(c.byApp[p.A.Service.App]) {
		if o := c.places[id]; o != p && o.Worker != "" && !o.Removing && !o.ended() {
			r.Peers = append(r.Peers, sched.Peer{Worker: o.Worker, Service: o.A.Service.Service, Labels: o.A.Spec.Labels, Links: o.A.Spec.Links})
		}
	}
	return r
}

// peersMatter reports whether where other instances of the application are has a part in placing one; for most it has
// not, and listing them for each of thousands of replicas costs.
func (c *Core) peersMatter(p *placement) bool {
	q := &p.A.Spec.Placement
	return len(q.Affinity)+len(q.AntiAffinity) > 0 || q.Policy == skerry.PolicySpread || strings.HasPrefix(q.Policy, skerry.PluginPrefix) || c.limits[p.A.Service.App] > 0 || p.limited()
}

// limited reports whether a link of the service limits where instances may run.
func (p *placement) limited() bool { return slices.ContainsFunc(p.A.Spec.Links, skerry.Link.Limited) }

// ended reports whether nothing of the placement runs any more.
func (p *placement) ended() bool {
	return p.Obs.State == skerry.Terminated || p.Obs.State == skerry.Failed
}

// policy finds the policy that a service names.
func (c *Core) policy(s *skerry.ServiceSpec) (sched.Policy, *skerry.Reason) {
	name := s.Placement.Policy
	if name == "" {
		name = skerry.PolicyROM
	}
	if p, ok := c.opt.Policies[name]; ok {
		return p, nil
	}
	return sched.Policy{}, &skerry.Reason{What: "policy", Count: 1, Text: fmt.Sprintf("the site has no scheduling policy %q", name),
		Hint: "choose another, or ask the site's operator for the plugin"}
}

// seeWorker tells the scheduler what changed of a worker.
func (c *Core) seeWorker(w *worker) {
	k := c.Kids.Get(w.Name)
	v := &sched.Worker{Name: w.Name, Refusing: w.refusing(), Lost: w.lost || k == nil || !k.Connected, Available: w.available(),
		Coordinate: w.report.Coordinate, Reported: w.reportAt, HostPorts: map[string]bool{}}
	if f := w.Facts; f != nil {
		v.Arch, v.Runtimes, v.Devices, v.Labels, v.Taints = f.Arch, f.PassedRuntimes(), f.Devices, f.Labels, f.Taints
		v.Area, v.Location, v.Capacity, v.Power = f.Area, f.Location, f.Capacity, f.Power
	}
	for k := range w.ports {
		v.HostPorts[k] = true
	}
	c.site.Set(v)
}

// placeWaiting looks for a worker for every instance that has none: the most important first, then the oldest.
func (c *Core) placeWaiting(now time.Time, fx *skerry.Effects) {
	if len(c.waiting) == 0 {
		return
	}
	ids := sortedIDs(c.waiting)
	slices.SortStableFunc(ids, func(a, b skerry.InstanceID) int {
		p, q := c.places[a], c.places[b]
		return cmp.Or(cmp.Compare(q.A.Spec.Placement.Priority, p.A.Spec.Placement.Priority), p.Created.Compare(q.Created))
	})
	for _, id := range ids {
		p := c.places[id]
		policy, why := c.policy(&p.A.Spec)
		if why != nil {
			c.refuse(now, p, []skerry.Reason{*why}, nil, fx)
			continue
		}
		c.rounds++
		d := c.site.Place(now, policy, c.request(p), c.rounds)
		switch {
		case d.Chosen != "":
			c.give(now, p, d, fx)
		case p.Pinned == "": // a copy of a perWorker service waits for its worker
			c.refuse(now, p, d.Why, &d, fx)
		}
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
		policy, why := c.policy(&g.A.Spec)
		if why != nil {
			o := skerry.Observation{ID: id, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Reason: why.Text, Why: []skerry.Reason{*why}}
			c.tellGroupAs(now, g, o, fx)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.workers)) {
			if have[name] {
				continue
			}
			p := &placement{A: g.A, Origin: g.Origin, Group: id, Pinned: name, Created: now}
			p.A.ID = id + "-" + skerry.InstanceID(name)
			if c.site.Place(now, policy, c.request(p), 0).Chosen == "" {
				continue
			}
			a := p.A
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
