package core

import (
	"cmp"
	"slices"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A version of a perWorker service takes the place of another one worker by worker: its owner ends the group of the one and wants another
// group, and the site keeps the copies of the first until the second serves where it has come.
//
//	before: Removing ─► update.maxUnavailable of its copies end at a time, what is not ready first, what is away last ─► gone
//	next:               a copy on each worker that keeps none of those ─► ready for update.healthyTime ─► the next ones end
//
// One that restarts, does not get ready or finds no place holds up the rest, which serves as before.

// handover is what a group knows of taking another one's place. It lasts as long as the process: after a start copies are watched anew.
type handover struct {
	begun map[string]bool      // workers whose old copy was told to end
	ready map[string]readiness // of its own copies, by worker
}

// readiness says since when a copy has been ready, after how many restarts.
type readiness struct {
	since    time.Time
	restarts int
}

// successor gives the group that takes the place of one that is to end, or nil.
func (l *ledger) successor(g *group) (next *group) {
	for _, id := range sortedIDs(l.groups) {
		if n := l.groups[id]; !n.Removing && n.A.Service == g.A.Service && n.Origin == g.Origin && (next == nil || next.A.Gen < n.A.Gen) {
			next = n
		}
	}
	return next
}

// before lists the copies, by id, of groups whose place another one takes, and whether they are to stay for now.
func (l *ledger) before(next *group) (stay, end []*placement) {
	for _, id := range sortedIDs(l.groups) {
		g := l.groups[id]
		if !g.Removing || g.A.Service != next.A.Service || g.Origin != next.Origin {
			continue
		}
		for _, p := range l.copies(id) {
			if p.Removing {
				end = append(end, p)
			} else {
				stay = append(stay, p)
			}
		}
	}
	return stay, end
}

// endGroups ends the copies of groups of a service whose place no other one takes.
func (l *lifecycle) endGroups(now time.Time, of *group, fx *wire.Effects) {
	for _, id := range sortedIDs(l.groups) {
		g := l.groups[id]
		if g == nil || !g.Removing || g.A.Service != of.A.Service || l.successor(g) != nil {
			continue
		}
		for _, p := range l.copies(id) {
			l.remove(now, p, fx)
		}
	}
}

// exchangeGroups ends the copies of groups whose place others take, as many as may be missing.
func (in *intake) exchangeGroups(now time.Time, fx *wire.Effects) {
	in.steadyAt = time.Time{}
	for _, id := range sortedIDs(in.groups) {
		next := in.groups[id]
		if next == nil || next.Removing || in.successor(next) != next { // nil: its last copy went with another one's turn
			continue
		}
		stay, end := in.before(next)
		if len(stay) == 0 {
			next.handover = handover{}
			continue
		}
		missing, most := in.missing(now, next, end), 1
		if n := next.A.Spec.Update.MaxUnavailable; n != nil {
			most = max(most, *n)
		}
		slices.SortStableFunc(stay, func(a, b *placement) int { return cmp.Compare(turn(a), turn(b)) })
		for _, p := range stay {
			away := turn(p) == turnAway
			switch {
			case away && (turn(stay[0]) != turnAway || len(missing) > 0 || !in.proven(next)):
				continue // it may only be out of touch for a moment, like all of them
			case away:
			case len(missing) >= most:
				continue
			default:
				missing[p.Pinned] = true
				next.handover.begun[p.Pinned] = true
			}
			in.remove(now, p, fx)
			in.retry()
		}
	}
}

// turnAway is the turn of a copy that nobody can reach.
const turnAway = 2

// turn orders the copies of a version that is exchanged: what serves nobody ends first.
func turn(p *placement) int {
	switch {
	case p.Worker == "" || p.Obs.Unreachable:
		return turnAway
	case p.Obs.Ready:
		return 1
	}
	return 0
}

// proven reports whether a copy of a group is ready, none being missing.
func (in *intake) proven(g *group) bool {
	return slices.ContainsFunc(in.copies(g.A.ID), func(p *placement) bool { return p.Obs.Ready })
}

// missing gives the workers on which neither version of a service can be counted on, as far as that is known of them.
func (in *intake) missing(now time.Time, next *group, end []*placement) map[string]bool {
	x := &next.handover
	if x.begun == nil {
		x.begun, x.ready = map[string]bool{}, map[string]readiness{}
	}
	watch := next.A.Spec.Update.Healthy()
	if watch <= 0 {
		watch = spec.HealthyTime
	}
	out := map[string]bool{}
	for _, p := range end {
		out[p.Pinned] = true
	}
	for name := range x.begun {
		out[name] = true // until its copy has been ready for long enough
	}
	for _, p := range in.copies(next.A.ID) {
		out[p.Pinned] = true
		r, ready := x.ready[p.Pinned]
		switch {
		case !p.Obs.Ready || p.Obs.CrashLoop != "":
			delete(x.ready, p.Pinned)
			continue
		case !ready || r.restarts != p.Obs.Restarts:
			r = readiness{now, p.Obs.Restarts}
			x.ready[p.Pinned] = r
		}
		at := r.since.Add(watch << min(r.restarts, 8))
		if !now.Before(at) {
			delete(out, p.Pinned)
		} else if in.steadyAt.IsZero() || at.Before(in.steadyAt) {
			in.steadyAt = at
		}
	}
	for name := range out {
		if w := in.workers[name]; w == nil || w.sight.Lost() {
			delete(out, name)
		}
	}
	return out
}
