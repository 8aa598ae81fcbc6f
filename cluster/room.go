package cluster

import (
	"fmt"
	"time"

	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/wire"
)

// makeRoom moves instances of lower priority out of the way of one that fits nowhere. It reports whether the instance
// waits for that; the resources are its own only once the others are gone.
func (q *queue) makeRoom(now time.Time, p *placement, policy sched.Policy, req *sched.Request, fx *wire.Effects) bool {
	if now.Before(p.room) {
		return true
	}
	q.endKeeping(p.A.ID)
	if !p.room.IsZero() {
		return false // room was made once and did not do: the reasons go up
	}
	d, victims, ok := q.site.Preempt(now, policy, req, q.questions.Round(), q.residents)
	if !ok {
		return false
	}
	longest := time.Duration(0)
	for _, id := range victims {
		v := q.places[id]
		if g := v.A.Spec.TerminationGrace; g != nil {
			longest = max(longest, time.Duration(*g))
		}
		who := p.A.Service.String()
		if p.A.Org != v.A.Org {
			who = "a service of another organisation"
		}
		q.event(fx, now, v, wire.EventWarning, "Preempted", fmt.Sprintf("%s, of priority %d, needs the room", who, p.A.Spec.Placement.Priority))
		q.move(now, v, "made room for "+who, false, fx)
	}
	p.room = now.Add(longest + roomSpare)
	q.keep(p.A.ID, d.Chosen)
	what := "1 instance"
	if n := len(victims); n > 1 {
		what = fmt.Sprintf("%d instances", n)
	}
	p.Obs.Reason = "waits for " + what + " of lower priority to leave a worker"
	q.changed(now, p, fx)
	q.event(fx, now, p, wire.EventNormal, "MakingRoom", fmt.Sprintf("%s of lower priority must leave worker %s", what, d.Chosen))
	return true
}

// roomSpare is what leaving may take beyond the termination grace.
const roomSpare = 30 * time.Second
