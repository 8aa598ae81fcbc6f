package cluster

import (
	"cmp"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/wire"
)

// queue are the instances that need a worker: those that wait, and those whose worker is out of touch. It takes them in order, and has the
// first place found be theirs, asks what only the world outside can answer, makes room, or says that there is no place.
//
//	placeWaiting ─► placeOne ─┬─ a place ─► give, or migrate
//	                          ├─ asked ─► Measured, Scored, or too late (expire) ─► again
//	                          ├─ less important ones in the way ─► makeRoom ─► they have left ─► again
//	                          └─ none ─► unplaceable
type queue struct {
	*lifecycle
	find    *finder
	rebuild *autonomy.Rebuild
}

// placeWaiting looks for a worker for every instance that has none: the most important first, then those with the least
// slack before their deadline, then the oldest; of those that came together the ones with the narrowest choice, which the
// others can follow, and the largest, which are hardest to fit.
func (q *queue) placeWaiting(now time.Time, fx *wire.Effects) {
	if len(q.waiting)+len(q.stranded) == 0 {
		return
	}
	if q.rebuild.Waits() {
		q.placeRebuilding(now, fx)
		return
	}
	q.replaceStopped(now, fx)
	ids := append(sortedIDs(q.waiting), sortedIDs(q.stranded)...)
	slices.SortStableFunc(ids, func(a, b skerry.InstanceID) int { return placeBefore(now, q.places[a], q.places[b]) })
	for _, id := range ids {
		if p := q.places[id]; p != nil && (q.waiting[id] || q.stranded[id] && p.Next == nil) {
			q.placeOne(now, p, fx)
		}
	}
}

// placeOne looks for a worker for one instance, or asks first what only the world outside can answer.
func (q *queue) placeOne(now time.Time, p *placement, fx *wire.Effects) {
	if now.Before(p.again) || p.A.Spec.KeepsData() && q.volumes.Busy(p.claims()) {
		return
	}
	p.again = time.Time{}
	if at := q.endsElsewhere(p); now.Before(at) && q.waiting[p.A.ID] {
		p.again = at
		return
	}
	if p.again = q.find.gathers(now, p); !p.again.IsZero() {
		return
	}
	policy, plugins, why := q.find.policyOf(&p.A)
	if why != nil {
		q.unplaceable(now, p, []wire.Reason{*why}, nil, fx)
		return
	}
	if !q.find.usersKnown(now, p, policy, fx) {
		return
	}
	q.questions.Next()
	req := q.find.request(p)
	var d wire.Decision
	if len(plugins) == 0 {
		d = q.find.placeFree(now, policy, req)
	} else {
		var wait bool
		if d, wait = q.find.consult(now, p, policy, plugins, req, fx); wait {
			return
		}
	}
	d.Users = p.Users
	switch {
	case d.Chosen != "" && p.Worker != "":
		q.migrate(now, p, d, "its worker is out of touch", fx)
	case d.Chosen != "":
		q.give(now, p, d, fx)
	case p.Pinned != "": // a copy of a perWorker service waits for its worker
		if len(d.Plugins) > 0 {
			p.again = now.Add(askAgain)
		}
	case len(d.Plugins) == 0 && q.makeRoom(now, p, policy, req, fx): // it waits until those who make room are gone
	default:
		q.unplaceable(now, p, d.Why, &d, fx)
	}
}

// unplaceable hands an instance that nobody can take back to its owner, but not while it may still run where it was.
func (q *queue) unplaceable(now time.Time, p *placement, why []wire.Reason, d *wire.Decision, fx *wire.Effects) {
	if p.Worker != "" {
		q.nowhere(now, p, why, fx)
		return
	}
	q.refuse(now, p, why, d, fx)
}

// replaceStopped places anew what its worker must have stopped by now, and keeps the rest of what must not run twice waiting.
func (q *queue) replaceStopped(now time.Time, fx *wire.Effects) {
	for _, id := range sortedIDs(q.stranded) {
		p := q.places[id]
		switch at := q.surelyStopped(p); {
		case at.IsZero() || p.Next != nil:
		case now.Before(at):
			p.again = at
		default:
			q.unstrand(p)
			q.move(now, p, "its worker is out of touch, and has stopped it", false, fx)
		}
	}
}

// placeRebuilding looks for copies that run of what waits for a place; nothing is placed anew yet.
func (q *queue) placeRebuilding(now time.Time, fx *wire.Effects) {
	for _, id := range sortedIDs(q.waiting) {
		if p := q.places[id]; p != nil && q.adopt(now, p, fx) {
			q.wait(id, false)
			q.changed(now, p, fx)
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
