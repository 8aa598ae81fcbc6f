package cluster

import (
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/wire"
)

// keptFrom lists the workers on which others make room for an instance that is more important than p: those that have gone leave before
// the rest, and p would else take the place of the first, for nothing.
func (l *ledger) keptFrom(p *placement) (out []string) {
	for id, worker := range l.making {
		if l.keeps(id) && l.places[id].A.Spec.Placement.Priority > p.A.Spec.Placement.Priority {
			out = append(out, worker)
		}
	}
	slices.Sort(out)
	return out
}

// makeRoom moves instances of lower priority out of the way of one that fits nowhere. It reports whether the instance
// waits for that; the resources are its own only once the others are gone.
func (c *Core) makeRoom(now time.Time, p *placement, policy sched.Policy, req *sched.Request, fx *wire.Effects) bool {
	if now.Before(p.room) {
		return true
	}
	c.endKeeping(p.A.ID)
	if !p.room.IsZero() {
		return false // room was made once and did not do: the reasons go up
	}
	d, victims, ok := c.site.Preempt(now, policy, req, c.questions.Round(), c.residents)
	if !ok {
		return false
	}
	longest := time.Duration(0)
	for _, id := range victims {
		v := c.places[id]
		if g := v.A.Spec.TerminationGrace; g != nil {
			longest = max(longest, time.Duration(*g))
		}
		who := p.A.Service.String()
		if p.A.Org != v.A.Org {
			who = "a service of another organisation"
		}
		c.event(fx, now, v, wire.EventWarning, "Preempted", fmt.Sprintf("%s, of priority %d, needs the room", who, p.A.Spec.Placement.Priority))
		c.move(now, v, "made room for "+who, false, fx)
	}
	p.room = now.Add(longest + roomSpare)
	c.keep(p.A.ID, d.Chosen)
	what := "1 instance"
	if n := len(victims); n > 1 {
		what = fmt.Sprintf("%d instances", n)
	}
	p.Obs.Reason = "waits for " + what + " of lower priority to leave a worker"
	c.changed(now, p, fx)
	c.event(fx, now, p, wire.EventNormal, "MakingRoom", fmt.Sprintf("%s of lower priority must leave worker %s", what, d.Chosen))
	return true
}

// roomSpare is what leaving may take beyond the termination grace.
const roomSpare = 30 * time.Second

// residents lists what may be moved off a worker: neither copies that belong to it, nor what is on its way already.
func (l *ledger) residents(worker string) []sched.Resident {
	var out []sched.Resident
	for _, p := range l.on(worker) {
		if p.Pinned == "" && !p.Removing && !p.ended() && p.Next == nil {
			out = append(out, sched.Resident{Instance: p.A.ID, Priority: p.A.Spec.Placement.Priority, Need: p.charge(worker)})
		}
	}
	return out
}
