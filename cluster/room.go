package cluster

import (
	"fmt"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/sched"
)

// leave counts what an instance still holds on a worker that was told to end it, so that nothing is placed on top of what
// still runs.
func (c *Core) leave(p *placement, worker string) {
	w := c.workers[worker]
	if w == nil || w.lost || p.ended() {
		return
	}
	if w.leaving == nil {
		w.leaving = map[skerry.InstanceID]skerry.Resources{}
	}
	w.leaving[p.A.ID] = p.A.Spec.Need()
	c.site.SetAvailable(w.Name, w.available())
}

// left says that nothing of an instance is left on a worker.
func (c *Core) left(worker string, id skerry.InstanceID) {
	w := c.workers[worker]
	if w == nil {
		return
	}
	if _, ok := w.leaving[id]; ok {
		delete(w.leaving, id)
		c.site.SetAvailable(w.Name, w.available())
		c.grew, c.reportDue = true, true
	}
}

// makeRoom moves instances of lower priority out of the way of one that fits nowhere. It reports whether the instance
// waits for that; the resources are its own only once the others are gone.
func (c *Core) makeRoom(now time.Time, p *placement, policy sched.Policy, req *sched.Request, fx *skerry.Effects) bool {
	if now.Before(p.room) {
		return true
	}
	if !p.room.IsZero() {
		return false // room was made once and did not do: the reasons go up
	}
	d, victims, ok := c.site.Preempt(now, policy, req, c.rounds, c.residents)
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
		c.event(fx, now, v, skerry.EventWarning, "Preempted", fmt.Sprintf("%s, of priority %d, needs the room", who, p.A.Spec.Placement.Priority))
		c.move(now, v, "made room for "+who, false, fx)
	}
	p.room = now.Add(longest + roomSpare)
	what := "1 instance"
	if n := len(victims); n > 1 {
		what = fmt.Sprintf("%d instances", n)
	}
	p.Obs.Reason = "waits for " + what + " of lower priority to leave a worker"
	c.changed(now, p, fx)
	c.event(fx, now, p, skerry.EventNormal, "MakingRoom", fmt.Sprintf("%s of lower priority must leave worker %s", what, d.Chosen))
	return true
}

// roomSpare is what leaving may take beyond the termination grace.
const roomSpare = 30 * time.Second

// residents lists what may be moved off a worker: neither copies that belong to it, nor what is on its way already.
func (c *Core) residents(worker string) []sched.Resident {
	var out []sched.Resident
	for _, p := range c.on(worker) {
		if p.Pinned == "" && !p.Removing && !p.ended() && p.Next == nil {
			out = append(out, sched.Resident{Instance: p.A.ID, Priority: p.A.Spec.Placement.Priority, Need: p.A.Spec.Need()})
		}
	}
	return out
}
