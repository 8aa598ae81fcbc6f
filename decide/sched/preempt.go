package sched

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Resident is an instance that holds resources on a worker.
type Resident struct {
	Instance skerry.InstanceID
	Priority int
	Need     spec.Resources
}

// Preempt looks for the worker on which the fewest and least important instances of lower priority would have to go to
// make room, when nothing but room is missing. It gives the decision with those instances, or false.
func (s *Site) Preempt(now time.Time, policy Policy, req *Request, seed uint64, residents func(worker string) []Resident) (wire.Decision,
	[]skerry.InstanceID, bool) {
	s.refresh()
	query := s.query(now, policy, req)
	decision := wire.Decision{At: now, Instance: req.Instance, Tier: "cluster", Policy: policy.Name, Seed: seed, Considered: s.Len()}
	if query.only >= len(s.kindOf) {
		return decision, nil, false
	}
	type offer struct {
		slot    int
		victims []Resident
		highest int // priority
	}
	var best *offer
	s.each(query.only, func(n int) {
		if fails(query.reach, n) {
			return
		}
		for _, c := range query.checks {
			if _, room := c.(*capacity); !room && fails(c, n) {
				return
			}
		}
		victims := makeRoom(spec.FromVector(s.avail.of(n)), s.needOn(n, req), req.Spec.Placement.Priority, residents(s.names[n]))
		if len(victims) == 0 {
			return
		}
		o := &offer{slot: n, victims: victims, highest: slices.MaxFunc(victims,
			func(a, b Resident) int { return cmp.Compare(a.Priority, b.Priority) }).Priority}
		if best == nil || cmp.Or(cmp.Compare(o.highest, best.highest), cmp.Compare(len(o.victims), len(best.victims)),
			cmp.Compare(mix(seed, s.hash[n]), mix(seed, s.hash[best.slot])), strings.Compare(s.names[n], s.names[best.slot])) < 0 {
			best = o
		}
	})
	if best == nil {
		return decision, nil, false
	}
	decision.Chosen = s.names[best.slot]
	decision.Top = []wire.Candidate{{Name: decision.Chosen, Score: query.rank.Score(best.slot), Chosen: true}}
	var ids []skerry.InstanceID
	for _, v := range best.victims {
		ids = append(ids, v.Instance)
	}
	slices.Sort(ids)
	return decision, ids, true
}

// makeRoom chooses which residents of lower priority go, or none when that does not help: the least important first, the
// largest of those first, and whoever turns out not to be in the way stays.
func makeRoom(free, need spec.Resources, priority int, residents []Resident) []Resident {
	var lower []Resident
	for _, r := range residents {
		if r.Priority < priority {
			lower = append(lower, r)
		}
	}
	slices.SortFunc(lower, func(a, b Resident) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Need.Memory, a.Need.Memory), cmp.Compare(b.Need.CPU, a.Need.CPU),
			cmp.Compare(a.Instance, b.Instance))
	})
	var out []Resident
	for _, r := range lower {
		if free.Fits(need) {
			break
		}
		free = free.Add(r.Need)
		out = append(out, r)
	}
	if !free.Fits(need) {
		return nil
	}
	for i := len(out) - 1; i >= 0; i-- {
		if less := free.Sub(out[i].Need); less.Fits(need) {
			free = less
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}
