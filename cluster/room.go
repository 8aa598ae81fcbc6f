package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// held is what an instance that was told to end still holds on a worker.
type held struct {
	need    spec.Resources
	ports   []string
	service skerry.ServiceKey
	ordinal int
	addr    string // in the overlay: flows to it go on until it has ended
}

// heldRecord is how that is kept: after a restart of the orchestrator it is as true as before.
type heldRecord struct {
	Need    spec.Resources    `json:"need"`
	Ports   []string          `json:"ports,omitempty"`
	Service skerry.ServiceKey `json:"service"`
	Ordinal int               `json:"ordinal,omitempty"`
	Address string            `json:"address,omitempty"`
}

func leavingKey(worker string, id skerry.InstanceID) string {
	return prefixLeaving + worker + "/" + string(id)
}

func (c *Core) readLeaving(key string, value []byte) error {
	worker, id, _ := strings.Cut(strings.TrimPrefix(key, prefixLeaving), "/")
	var r heldRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return err
	}
	if c.leavers == nil {
		c.leavers = map[drainAt]held{}
	}
	c.leavers[drainAt{worker, skerry.InstanceID(id)}] = held{r.Need, r.Ports, r.Service, r.Ordinal, r.Address}
	return nil
}

// loadLeaving counts again what was leaving when the orchestrator ended.
func (c *Core) loadLeaving(fx *wire.Effects) {
	at := slices.SortedFunc(maps.Keys(c.leavers), func(a, b drainAt) int {
		return cmp.Or(strings.Compare(a.worker, b.worker), strings.Compare(string(a.id), string(b.id)))
	})
	for _, d := range at {
		w, p := c.workers[d.worker], c.places[d.id]
		if w == nil || p != nil && p.Worker == d.worker {
			fx.Delete(leavingKey(d.worker, d.id))
			continue
		}
		c.depart(w, d.id, c.leavers[d])
	}
	c.leavers = nil
}

// depart keeps what an instance holds on a worker until it has left.
func (c *Core) depart(w *worker, id skerry.InstanceID, h held) {
	if w.leaving == nil {
		w.leaving = map[skerry.InstanceID]held{}
	}
	w.leaving[id] = h
	if c.draining[h.service] == nil {
		c.draining[h.service] = map[drainAt]bool{}
	}
	c.draining[h.service][drainAt{w.Name, id}] = true
	c.takePorts(w, h.ports, 1)
}

// drainAt is an instance on a worker that was told to end it.
type drainAt struct {
	worker string
	id     skerry.InstanceID
}

// held finds what an instance that was told to end still holds; the worker may be nil.
func (w *worker) held(id skerry.InstanceID) (held, bool) {
	if w == nil {
		return held{}, false
	}
	h, ok := w.leaving[id]
	return h, ok
}

// leave counts what an instance still holds on a worker that was told to end it, so that nothing is placed on top of what
// still runs. A worker that is out of touch runs it too, for all that is known, and says so when it comes back.
func (c *Core) leave(p *placement, worker string) {
	w := c.workers[worker]
	if w == nil {
		return
	}
	if _, ok := w.leaving[p.A.ID]; ok {
		return
	}
	h := held{p.charge(worker), p.takes(worker), p.A.Service, p.A.Ordinal, ""}
	if p.Worker == worker {
		h.addr = p.Obs.Address
	}
	c.depart(w, p.A.ID, h)
	c.notes = append(c.notes, wire.Write{Key: leavingKey(worker, p.A.ID), Value: mustJSON(heldRecord{h.need, h.ports, h.service, h.ordinal, h.addr})})
}

// left says that nothing of an instance is left on a worker.
func (c *Core) left(worker string, id skerry.InstanceID) {
	w := c.workers[worker]
	if w == nil {
		return
	}
	if h, ok := w.leaving[id]; ok {
		delete(w.leaving, id)
		c.volumes.Touch()
		c.notes = append(c.notes, wire.Write{Key: leavingKey(worker, id)})
		if delete(c.draining[h.service], drainAt{worker, id}); len(c.draining[h.service]) == 0 {
			delete(c.draining, h.service)
		}
		c.linked[h.service.App] = true // its worker may be without the application's network now
		if c.interests.Wanted(h.service) {
			c.interests.Touch(h.service)
		}
		c.takePorts(w, h.ports, -1)
		c.freed()
	}
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
func (c *Core) keptFrom(p *placement) (out []string) {
	for id, worker := range c.making {
		if c.keeps(id) && c.places[id].A.Spec.Placement.Priority > p.A.Spec.Placement.Priority {
			out = append(out, worker)
		}
	}
	slices.Sort(out)
	return out
}

// keeps reports whether an instance for which room is made still waits for it.
func (c *Core) keeps(id skerry.InstanceID) bool {
	p := c.places[id]
	return p != nil && !p.Removing && (c.waiting[id] || c.stranded[id])
}

// endKeeping has a worker on which room was made for an instance be there for others again. What was refused for that is tried anew: that
// a worker is kept is no lack of room, so that nothing else would tell.
func (c *Core) endKeeping(id skerry.InstanceID) {
	if _, ok := c.making[id]; ok {
		delete(c.making, id)
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
		c.event(fx, now, v, wire.EventWarning, "Preempted", fmt.Sprintf("%s, of priority %d, needs the room", who, p.A.Spec.Placement.Priority))
		c.move(now, v, "made room for "+who, false, fx)
	}
	p.room = now.Add(longest + roomSpare)
	c.making[p.A.ID] = d.Chosen
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
func (c *Core) residents(worker string) []sched.Resident {
	var out []sched.Resident
	for _, p := range c.on(worker) {
		if p.Pinned == "" && !p.Removing && !p.ended() && p.Next == nil {
			out = append(out, sched.Resident{Instance: p.A.ID, Priority: p.A.Spec.Placement.Priority, Need: p.charge(worker)})
		}
	}
	return out
}
