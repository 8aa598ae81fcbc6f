package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/decide/sched"
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
func (q *queue) placeOne(now time.Time, inst *placement, fx *wire.Effects) {
	if now.Before(inst.again) || inst.A.Spec.KeepsData() && q.volumes.Busy(inst.claims()) || q.awaitsRoot(inst) {
		return
	}
	inst.again = time.Time{}
	if at := q.endsElsewhere(inst); now.Before(at) && q.waiting[inst.A.ID] {
		inst.again = at
		return
	}
	if inst.again = q.find.gathers(now, inst); !inst.again.IsZero() {
		return
	}
	policy, plugins, why := q.find.policyOf(&inst.A)
	if why != nil {
		q.unplaceable(now, inst, []wire.Reason{*why}, nil, fx)
		return
	}
	if !q.find.usersKnown(now, inst, policy, fx) {
		return
	}
	q.questions.Next()
	req := q.find.request(inst)
	var decision wire.Decision
	if len(plugins) == 0 {
		decision = q.find.placeFree(now, policy, req)
	} else {
		var wait bool
		if decision, wait = q.find.consult(now, inst, policy, plugins, req, fx); wait {
			return
		}
	}
	decision.Users = inst.Users
	switch {
	case decision.Chosen != "" && inst.Worker != "":
		q.migrate(now, inst, decision, "its worker is out of touch", fx)
	case decision.Chosen != "":
		q.give(now, inst, decision, fx)
	case inst.Pinned != "": // a copy of a perWorker service waits for its worker
		if len(decision.Plugins) > 0 {
			inst.again = now.Add(askAgain)
		}
	case len(decision.Plugins) == 0 && q.makeRoom(now, inst, policy, req, fx): // it waits until those who make room are gone
	default:
		q.unplaceable(now, inst, decision.Why, &decision, fx)
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

// askAgain is when an instance is looked at again of which plugins ruled out the only worker.
const askAgain = 20 * time.Second

func (q *queue) setPlugins(m SetPlugins) {
	q.questions.SetPlugins(m.List)
	for id := range q.seeking {
		q.places[id].again = time.Time{}
	}
	q.retry()
}

func (q *queue) measured(now time.Time, m Measured) {
	p := q.places[m.ID]
	switch {
	case p == nil || !q.questions.Measured(m):
	case p.Worker != "":
		p.Located.Update(now, &p.A.Spec.Placement, m.RTT, q.workers.where)
	default:
		p.Located.Set(now, &p.A.Spec.Placement, m.RTT, "", q.workers.where)
	}
}

// expire ends questions that nobody answered in time and successors that did not get ready.
func (q *queue) expire(now time.Time, fx *wire.Effects) {
	for id := range q.seeking {
		p := q.places[id]
		switch {
		case q.questions.Unmeasured(now, id):
			p.Located.Set(now, &p.A.Spec.Placement, nil, "", q.workers.where)
		default:
			q.questions.Late(now, id)
		}
	}
	for _, id := range sortedIDs(q.moving) {
		p := q.places[id]
		if now.Sub(p.Next.Since) >= migrationTime(&p.A.Spec) {
			q.event(fx, now, p, wire.EventWarning, "MigrationFailed", "the copy on worker "+p.Next.Worker+" did not get ready: "+p.Next.Obs.Reason)
			q.abandon(p)
			q.changed(now, p, fx)
		}
	}
}

// nextExpiry is when expire has something to do next, or the zero time.
func (q *queue) nextExpiry() time.Time {
	var next time.Time
	consider := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for id := range q.seeking {
		p := q.places[id]
		if at := q.questions.Until(id); !at.IsZero() {
			consider(at)
		}
		if !p.again.IsZero() {
			consider(p.again)
		}
		if !p.room.IsZero() && !q.questions.Open(id) && p.again.IsZero() {
			consider(p.room) // while it asks, or waits for longer, it does not look
		}
	}
	for id := range q.watched {
		if p := q.places[id]; p != nil {
			consider(p.SLA.Again())
		}
	}
	for id := range q.moving {
		if p := q.places[id]; p != nil && p.Next != nil {
			consider(p.Next.Since.Add(migrationTime(&p.A.Spec)))
		}
	}
	return next
}

// makeRoom moves instances of lower priority out of the way of one that fits nowhere. It reports whether the instance
// waits for that; the resources are its own only once the others are gone.
func (q *queue) makeRoom(now time.Time, inst *placement, policy sched.Policy, req *sched.Request, fx *wire.Effects) bool {
	if now.Before(inst.room) {
		return true
	}
	q.endKeeping(inst.A.ID)
	if !inst.room.IsZero() {
		return false // room was made once and did not do: the reasons go up
	}
	decision, victims, ok := q.site.Preempt(now, policy, req, q.questions.Round(), q.residents)
	if !ok {
		return false
	}
	longest := time.Duration(0)
	for _, id := range victims {
		v := q.places[id]
		if g := v.A.Spec.TerminationGrace; g != nil {
			longest = max(longest, time.Duration(*g))
		}
		who := inst.A.Service.String()
		if inst.A.Org != v.A.Org {
			who = "a service of another organisation"
		}
		q.event(fx, now, v, wire.EventWarning, "Preempted",
			fmt.Sprintf("%s, of priority %d, needs the room", who, inst.A.Spec.Placement.Priority))
		q.move(now, v, "made room for "+who, false, fx)
	}
	inst.room = now.Add(longest + roomSpare)
	q.keep(inst.A.ID, decision.Chosen)
	what := "1 instance"
	if n := len(victims); n > 1 {
		what = fmt.Sprintf("%d instances", n)
	}
	inst.Obs.Reason = "waits for " + what + " of lower priority to leave a worker"
	q.changed(now, inst, fx)
	q.event(fx, now, inst, wire.EventNormal, "MakingRoom", fmt.Sprintf("%s of lower priority must leave worker %s", what, decision.Chosen))
	return true
}

// roomSpare is what leaving may take beyond the termination grace.
const roomSpare = 30 * time.Second
