package cluster

import (
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/wire"
)

// loadLeaving counts again what was leaving when the orchestrator ended.
func (c *Core) loadLeaving(fx *wire.Effects) {
	for _, at := range c.releases.Start(func(at moves.Place) bool {
		p := c.places[at.ID]
		return c.workers[at.Worker] != nil && (p == nil || p.Worker != at.Worker)
	}, fx) {
		w := c.workers[at.Worker]
		c.takePorts(w, w.leaving[at.ID].Ports, 1)
	}
}

// leave counts what an instance still holds on a worker that was told to end it, so that nothing is placed on top of what
// still runs. A worker that is out of touch runs it too, for all that is known, and says so when it comes back.
func (c *Core) leave(p *placement, worker string) {
	h := moves.Held{Need: p.charge(worker), Ports: p.takes(worker), Service: p.A.Service, Ordinal: p.A.Ordinal}
	if p.Worker == worker {
		h.Address = p.Obs.Address
	}
	if record := c.releases.Begin(moves.Place{Worker: worker, ID: p.A.ID}, h); record != nil {
		c.takePorts(c.workers[worker], h.Ports, 1)
		c.note(*record)
	}
}

// left says that nothing of an instance is left on a worker.
func (c *Core) left(worker string, id skerry.InstanceID) {
	h, record := c.releases.End(moves.Place{Worker: worker, ID: id})
	if record == nil {
		return
	}
	c.note(*record)
	c.volumes.Touch()
	c.linked[h.Service.App] = true // its worker may be without the application's network now
	if c.interests.Wanted(h.Service) {
		c.interests.Touch(h.Service)
	}
	c.takePorts(c.workers[worker], h.Ports, -1)
	c.freed()
}

// takePorts counts host ports of a worker as taken (sign 1) or free (-1), and tells the scheduler what it has left.
func (c *Core) takePorts(w *worker, ports []string, sign int) {
	for _, k := range ports {
		if w.ports[k] += sign; w.ports[k] <= 0 {
			delete(w.ports, k)
		}
	}
	if len(ports) > 0 {
		c.seeWorker(w)
	} else {
		c.site.SetAvailable(w.Name, w.available())
	}
}

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

// endKeeping has a worker on which room was made for an instance be there for others again. What was refused for that is tried anew: that
// a worker is kept is no lack of room, so that nothing else would tell.
func (c *Core) endKeeping(id skerry.InstanceID) {
	if c.keepNot(id) {
		c.freed()
	}
}

// reviewKept ends the keeping of workers for what no longer waits.
func (c *Core) reviewKept() {
	for id := range c.making {
		if !c.keeps(id) {
			c.endKeeping(id)
		}
	}
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
