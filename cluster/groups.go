package cluster

import (
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/fleet"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// group is a perWorker assignment with one placement on each worker that fits.
type group struct {
	A        spec.Assignment `json:"assignment"`
	Origin   string          `json:"origin"`
	Removing bool            `json:"removing,omitempty"`
	Created  time.Time       `json:"created"`
}

// acceptGroup takes a perWorker assignment.
func (c *Core) acceptGroup(now time.Time, a spec.Assignment, origin string, fx *wire.Effects) {
	g := c.groups[a.ID]
	if g != nil && g.Removing {
		return
	}
	if g != nil && a.Fence.RootEpoch < g.A.Fence.RootEpoch {
		c.Up.Ignored.Count(fleet.IgnoredToken)
		return
	}
	if g != nil && g.A.Gen == a.Gen && g.A.Restart == a.Restart && g.A.Fence.RootEpoch == a.Fence.RootEpoch {
		return
	}
	if g == nil {
		g = &group{A: a, Origin: origin, Created: now}
		c.enterGroup(g)
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
	c.retry()
	c.tellGroup(now, g, fx)
}

// copies lists the placements of a group, by id.
func (l *ledger) copies(id skerry.InstanceID) []*placement {
	g := l.groups[id]
	if g == nil {
		return nil
	}
	var out []*placement
	for _, pid := range sortedIDs(l.byApp[g.A.Service.App]) {
		if p := l.places[pid]; p.Group == id {
			out = append(out, p)
		}
	}
	return out
}

// expandGroups gives every worker that fits its copy, and ends copies on workers that are no longer there.
func (c *Core) expandGroups(now time.Time, fx *wire.Effects) {
	for _, id := range sortedIDs(c.groups) {
		g := c.groups[id]
		if g.Removing {
			continue
		}
		no := c.opt.Admission.Check(&g.A)
		if no == nil && len(c.copies(id)) == 0 { // what runs goes on
			no = takenHere(c, &g.A, g.Origin)
		}
		if why := no; why != nil {
			o := wire.Observation{ID: id, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Reason: why.Text, Why: []wire.Reason{*why}}
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
		policy, _, why := c.find.policyOf(&g.A)
		if why != nil {
			o := wire.Observation{ID: id, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Reason: why.Text, Why: []wire.Reason{*why}}
			c.tellGroupAs(now, g, o, fx)
			continue
		}
		var over *wire.Reason
		for _, name := range slices.Sorted(maps.Keys(c.workers)) {
			if have[name] {
				continue
			}
			p := &placement{A: g.A, Origin: g.Origin, Group: id, seat: seat{Pinned: name}, Created: now}
			p.A.ID = id + "-" + skerry.InstanceID(name)
			if c.site.Place(now, policy, c.find.request(p), 0).Chosen == "" {
				continue
			}
			if over = c.opt.Admission.CheckQuota(c.usedBy(p.A.Org, p.A.ID), &p.A); over != nil {
				break
			}
			a := p.A
			p.Obs = wire.Observation{ID: a.ID, Gen: a.Gen, Fence: a.Fence, State: skerry.ClusterScheduled}
			c.addPlacement(p)
			c.wait(a.ID, true)
			c.changed(now, p, fx)
		}
		if over != nil && len(c.copies(id)) == 0 {
			o := wire.Observation{ID: id, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Reason: over.Text, Why: []wire.Reason{*over}}
			c.tellGroupAs(now, g, o, fx)
			continue
		}
		c.tellGroup(now, g, fx)
	}
}
