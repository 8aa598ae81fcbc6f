package core

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A version of a perWorker service takes the place of another one worker by worker, one of a perDevice service device by device:
// its owner ends the group of the one and wants another group, and the site keeps the copies of the first until the second serves where it
// has come.
//
//	before: Removing ─► update.maxUnavailable of its copies end at a time, in turn ─► gone
//	next:               a copy at each spot that keeps none of those ─► ready for update.healthyTime ─► the next ones end
//
// One that restarts, does not get ready, finds no room or takes its worker down holds up the rest, which serves as before, and the owner
// takes it back: it wants the former group again, with the copies that it has yet. Workers that the next version is not for, or that are
// cordoned, hold up nothing.

// exchangeGroups ends the copies of groups whose place others take, as many as may be missing.
func (in *intake) exchangeGroups(now time.Time, fx *wire.Effects) {
	in.steadyAt = time.Time{}
	for _, next := range in.taking() {
		stay, end := in.before(next)
		if len(stay) == 0 {
			next.ready = nil
			in.watch(now, next, false, fx)
			continue
		}
		missing := in.missing(now, next, end, fx)
		most, trial := in.most(now, next, len(stay))
		in.watch(now, next, trial, fx)
		back := next.A.Exchange == spec.ExchangeBack
		if next.A.Exchange == spec.ExchangeHeld || in.admission.Check(&next.A) != nil {
			continue
		}
		in.findAiling(next, stay, fx)
		turns := map[*placement]int{}
		for _, p := range stay {
			turns[p] = in.turn(next, p)
		}
		slices.SortStableFunc(stay, func(a, b *placement) int { return cmp.Compare(turns[a], turns[b]) })
		for _, p := range stay {
			switch turn := turns[p]; {
			case turn == turnNowhere:
			case turn > turnReady && (len(missing) > 0 || most == 0 || turn != turnNotFor && !in.proven(next)):
				continue // it may only be out of touch or not ready for a moment, like all of them
			case turn > turnReady:
			case missing[p.spot()] && (most > 0 || turn == turnNotReady): // another update has begun there, and is not over
				in.begin(next, p.spot(), fx)
			case len(missing) >= most && !(back && turn == turnNotReady):
				continue
			default:
				missing[p.spot()] = true
				in.begin(next, p.spot(), fx)
			}
			in.remove(now, p, fx)
			in.retry()
		}
	}
}

// The turns of copies of a version that is exchanged. Those after turnReady wait until no other one does.
const (
	turnNowhere  = iota // it has no worker
	turnNotReady        // it serves nobody
	turnReady
	turnAiling // it serves nobody, and others of its version do: what is broken may be its worker
	turnNotFor // the next version is not for its worker
	turnAway   // nobody can reach it, or its worker takes nothing new or carries out nothing
)

func (in *intake) turn(next *group, p *placement) int {
	w := in.workers[p.Worker]
	switch {
	case w == nil:
		return turnNowhere
	case p.Obs.Unreachable || w.refusing() != "" || w.report.Frozen != "" || p.Spot != "" && w.untold:
		return turnAway
	case in.find.notFor(next, p.spot(), w.Name):
		return turnNotFor
	case slices.Contains(next.Ailing, p.spot()):
		return turnAiling
	case p.Obs.Ready:
		return turnReady
	}
	return turnNotReady
}

// findAiling notes the spots whose copy of the version before serves nobody although others of that version serve. The next version
// comes there last, and what becomes of it there says nothing about it. A copy that serves again before its turn has its worker judged.
func (in *intake) findAiling(next *group, stay []*placement, fx *wire.Effects) {
	if next.A.Exchange == spec.ExchangeBack {
		return // the copies that serve nobody are those of the version that failed
	}
	steady := func(p *placement) bool { return p.Obs.Ready && p.Obs.CrashLoop == "" } // not just between two ends
	serving := map[skerry.InstanceID]bool{}
	for _, p := range stay {
		serving[p.Group] = serving[p.Group] || steady(p)
	}
	was := slices.Clone(next.Ailing)
	for _, p := range stay {
		at := slices.Index(next.Ailing, p.spot())
		switch {
		case steady(p) && at >= 0:
			next.Ailing = slices.Delete(next.Ailing, at, at+1)
		case !steady(p) && at < 0 && serving[p.Group] && !p.Obs.Unreachable:
			next.Ailing = append(next.Ailing, p.spot())
		}
	}
	if !slices.Equal(was, next.Ailing) {
		fx.Put(prefixGroup+string(next.A.ID), mustJSON(next))
	}
}

// proven reports whether a copy of a group serves or has done its work, none being missing.
func (in *intake) proven(g *group) bool {
	return slices.ContainsFunc(in.copies(g.A.ID), func(p *placement) bool { return p.Obs.Ready || p.Obs.State == skerry.Terminated })
}

// begin notes that a spot has its turn, and settled that the next version serves there.
func (in *intake) begin(next *group, at spot, fx *wire.Effects) {
	for _, g := range in.former(next) {
		if !slices.Contains(g.Begun, at) {
			g.Begun = append(g.Begun, at)
			fx.Put(prefixGroup+string(g.A.ID), mustJSON(g))
		}
	}
}

func (in *intake) settled(next *group, at spot, fx *wire.Effects) {
	for _, g := range in.former(next) {
		if i := slices.Index(g.Begun, at); i >= 0 {
			g.Begun = slices.Delete(g.Begun, i, i+1)
			fx.Put(prefixGroup+string(g.A.ID), mustJSON(g))
		}
	}
}

// most gives how many workers may have neither version now. The first copies of a version are a trial: until they have been ready for their
// time, there are no more of it.
func (in *intake) most(now time.Time, next *group, stay int) (most int, trial bool) {
	most = 1
	if n := next.A.Spec.Update.MaxUnavailable; n != nil {
		most = max(most, *n)
	}
	if next.A.Exchange == spec.ExchangeBack {
		return most, false
	}
	begun := in.begunFor(next)
	copies := slices.DeleteFunc(in.copies(next.A.ID), func(p *placement) bool { return in.workers.silent(p, begun) })
	canaries, watch, proven := 1, time.Duration(0), 0
	if k := next.A.Spec.Update.Canary; k != nil {
		canaries, watch = k.Of(len(copies)+stay), time.Duration(k.For)
	}
	for _, p := range copies {
		if p.Obs.State == skerry.Terminated || in.steady(now, next, p.spot(), watch) {
			proven++
		}
	}
	if proven >= canaries {
		return most, false
	}
	if len(copies) >= canaries {
		return 0, true
	}
	return min(most, canaries-len(copies)), true
}

// steady reports whether a copy has been ready for the time for which it is watched. If not, it is looked at again then.
func (in *intake) steady(now time.Time, next *group, at spot, atLeast time.Duration) bool {
	r, ready := next.ready[at]
	if !ready {
		return false
	}
	watch := next.A.Spec.Update.Healthy()
	if watch <= 0 {
		watch = spec.HealthyTime
	}
	then := r.since.Add(max(watch<<min(max(r.restarts, 0), 8), atLeast))
	if now.Before(then) && (in.steadyAt.IsZero() || then.Before(in.steadyAt)) {
		in.steadyAt = then
	}
	return !now.Before(then)
}

// missing gives the spots at which neither version of a service can be counted on, as far as that is known of them.
func (in *intake) missing(now time.Time, next *group, end []*placement, fx *wire.Effects) map[spot]bool {
	if next.ready == nil {
		next.ready = map[spot]readiness{}
	}
	begun, here := in.begunFor(next), map[spot]string{} // with their workers
	out := maps.Clone(begun)                            // until its copy has been ready for long enough
	for _, p := range end {
		out[p.spot()] = true
	}
	for _, p := range in.copies(next.A.ID) {
		out[p.spot()], here[p.spot()] = true, p.Worker
		r, ready := next.ready[p.spot()]
		switch {
		case p.Obs.State == skerry.Terminated: // it has done its work
			delete(out, p.spot())
			in.settled(next, p.spot(), fx)
			continue
		case !p.Obs.Ready || p.Obs.CrashLoop != "":
			delete(next.ready, p.spot())
			continue
		case !ready || r.restarts != p.Obs.Restarts || r.since.After(now): // the clock was set back
			r = readiness{now, p.Obs.Restarts}
			next.ready[p.spot()] = r
		}
		if in.steady(now, next, p.spot(), 0) {
			delete(out, p.spot())
			in.settled(next, p.spot(), fx)
		}
	}
	var spots map[spot][]string
	for at := range out {
		name := cmp.Or(here[at], at.worker())
		if name == "" { // its copy has yet to get a worker
			if spots == nil {
				spots = in.find.spots(&next.A.Spec)
			}
			name = strings.Join(spots[at][:min(len(spots[at]), 1)], "")
		}
		switch w := in.workers[name]; {
		case w == nil, w.report.Frozen != "", slices.Contains(next.Ailing, at):
			delete(out, at)
		case w.sight.Lost():
			if !begun[at] { // else the next version may have taken it down
				delete(out, at)
			}
		case here[at] == "" && (w.refusing() != "" || in.find.notFor(next, at, name)):
			delete(out, at)
		}
	}
	return out
}
