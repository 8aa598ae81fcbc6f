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
func (in *intake) acceptGroup(now time.Time, a spec.Assignment, origin string, fx *wire.Effects) {
	g := in.groups[a.ID]
	if g != nil && g.Removing {
		return
	}
	if g != nil && a.Fence.RootEpoch < g.A.Fence.RootEpoch {
		in.Up.Ignored.Count(fleet.IgnoredToken)
		return
	}
	if g != nil && g.A.Gen == a.Gen && g.A.Restart == a.Restart && g.A.Fence.RootEpoch == a.Fence.RootEpoch {
		return
	}
	if g == nil {
		g = &group{A: a, Origin: origin, Created: now}
		in.enterGroup(g)
	}
	g.A = a
	fx.Put(prefixGroup+string(a.ID), mustJSON(g))
	for _, p := range in.copies(a.ID) {
		fence := p.A.Fence
		p.A.Gen, p.A.Restart = a.Gen, a.Restart
		p.A.Fence = fence
		p.A.Fence.RootEpoch = a.Fence.RootEpoch
		if p.Worker != "" {
			p.Obs.Fence = p.A.Fence
			in.send(p)
		}
	}
	in.retry()
	in.tellGroup(now, g, fx)
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
func (in *intake) expandGroups(now time.Time, fx *wire.Effects) {
	for _, id := range sortedIDs(in.groups) {
		g := in.groups[id]
		if g.Removing {
			continue
		}
		no := in.admission.Check(&g.A)
		if no == nil && len(in.copies(id)) == 0 { // what runs goes on
			no = in.takenHere(&g.A, g.Origin)
		}
		if why := no; why != nil {
			o := wire.Observation{ID: id, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Reason: why.Text, Why: []wire.Reason{*why}}
			in.tellGroupAs(now, g, o, fx)
			continue
		}
		have := map[string]bool{}
		for _, p := range in.copies(id) {
			have[p.Pinned] = true
			if in.workers[p.Pinned] == nil {
				in.remove(now, p, fx)
			}
		}
		policy, _, why := in.find.policyOf(&g.A)
		if why != nil {
			o := wire.Observation{ID: id, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Reason: why.Text, Why: []wire.Reason{*why}}
			in.tellGroupAs(now, g, o, fx)
			continue
		}
		var over *wire.Reason
		for _, name := range slices.Sorted(maps.Keys(in.workers)) {
			if have[name] {
				continue
			}
			p := &placement{A: g.A, Origin: g.Origin, Group: id, seat: seat{Pinned: name}, Created: now}
			p.A.ID = id + "-" + skerry.InstanceID(name)
			if in.site.Place(now, policy, in.find.request(p), 0).Chosen == "" {
				continue
			}
			if over = in.admission.CheckQuota(in.usedBy(p.A.Org, p.A.ID), &p.A); over != nil {
				break
			}
			a := p.A
			p.Obs = wire.Observation{ID: a.ID, Gen: a.Gen, Fence: a.Fence, State: skerry.ClusterScheduled}
			in.addPlacement(p)
			in.wait(a.ID, true)
			in.changed(now, p, fx)
		}
		if over != nil && len(in.copies(id)) == 0 {
			o := wire.Observation{ID: id, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Reason: over.Text, Why: []wire.Reason{*over}}
			in.tellGroupAs(now, g, o, fx)
			continue
		}
		in.tellGroup(now, g, fx)
	}
}
