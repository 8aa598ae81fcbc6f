package core

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A worker that is held on its device, such as a vehicle that drives, carries out nothing that the cluster asks for: no start, no
// stop, no restart. What runs runs on, and is started again by its restart policy, also after a reboot.
//
//	held: word of the cluster ──► waits, told upward ──release, or approve of that instance──► carried out
//
// What waits is no list of its own: it is the difference between the desired set and what runs here. What a service itself
// asked its worker for (onDisconnect: stopAfter) is done all the same, for a replacement may run elsewhere.
type freeze struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// Messages of people at the device.
type (
	// FreezeLocal has the worker defer what the cluster asks for; again, it changes the reason, of at most 200 bytes.
	FreezeLocal struct{ Reason string }
	// ReleaseLocal ends that, and carries out what waits.
	ReleaseLocal struct{}
	// ApproveLocal carries out what waits for one instance, or if it names none for all.
	ApproveLocal struct{ ID skerry.InstanceID }
)

// What may wait.
const (
	waitsStart   = "its start"
	waitsUpdate  = "its replacement"
	waitsStop    = "its end"
	waitsRestart = "its restart"
	waitsLimits  = "the change of its limits"
)

const (
	keyFreeze       = "hold"
	maxFreezeReason = 200
)

func (c *Core) loadFreeze(value []byte) error {
	h := new(freeze)
	if err := json.Unmarshal(value, h); err != nil {
		return err
	}
	c.freeze = h
	return nil
}

func (c *Core) freezeLocal(now time.Time, msg FreezeLocal, fx *wire.Effects) {
	if len(msg.Reason) > maxFreezeReason {
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "the reason has %d bytes; at most %d are kept", len(msg.Reason), maxFreezeReason)
		return
	}
	h := &freeze{Since: now, Reason: msg.Reason}
	if h.Reason == "" {
		h.Reason = "held on the device"
	}
	if c.freeze != nil {
		h.Since = c.freeze.Since
	}
	c.freeze = h
	data, err := json.Marshal(h)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	fx.Put(keyFreeze, data)
	c.tellWaiting()
	c.reports.hasten()
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventNormal, Reason: "Held", Text: h.Reason})
}

func (c *Core) releaseLocal(now time.Time, fx *wire.Effects) {
	if c.freeze == nil {
		return
	}
	c.freeze = nil
	fx.Delete(keyFreeze)
	was := c.waits
	c.waits = map[skerry.InstanceID]string{}
	if c.ready { // else it is done once what runs is known
		c.review(now, fx)
		for _, id := range c.ids() {
			c.setLimits(now, c.insts[id], fx)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(was)) {
		if i := c.insts[id]; i != nil {
			c.tell(i)
		}
	}
	c.agentOrder(fx)
	c.reports.hasten()
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventNormal, Reason: "Released", Text: "what waited is carried out"})
}

func (c *Core) approveLocal(now time.Time, m ApproveLocal, fx *wire.Effects) {
	switch {
	case c.freeze == nil:
		fx.Err = skerry.Errorf(skerry.CodeConflict, "the worker is not frozen").WithHint("nothing waits for approval")
		return
	case m.ID != "" && c.waits[m.ID] == "":
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "no change of instance %q is pending", m.ID).WithHint("`skerry worker status` lists pending changes")
		return
	}
	for _, id := range slices.Sorted(maps.Keys(c.waits)) {
		if m.ID == "" || m.ID == id {
			c.approve(now, id, fx)
		}
	}
}

// agentOrder has carried out what the cluster said last of the agent's program, unless the worker is held.
func (c *Core) agentOrder(fx *wire.Effects) {
	value, _, ok := c.Up.Desired.Get(wire.AgentKey)
	if !ok || c.freeze != nil {
		return
	}
	var o wire.AgentOrder
	if err := c.codec.Unmarshal(value, &o); err != nil || o.Seq == 0 || o.Image == "" {
		c.Up.Ignored.Count(members.IgnoredUnreadable)
		return
	}
	fx.Actions = append(fx.Actions, UpgradeAgent{Order: o})
}

func (c *Core) approve(now time.Time, id skerry.InstanceID, fx *wire.Effects) {
	key := wire.AssignmentKey(id)
	what := c.waits[id]
	delete(c.waits, id)
	c.approved = id
	if _, _, ok := c.Up.Desired.Get(key); ok {
		c.desired(now, []string{key}, nil, fx)
	} else {
		c.desired(now, nil, []string{key}, fx)
	}
	c.approved = ""
	if i := c.insts[id]; i != nil {
		c.tell(i)
		c.event(now, i, wire.EventNormal, "Approved", what+" was approved on the device", fx)
	}
}

// defers reports whether an assignment has to wait. What of it changes nothing that runs is taken over.
func (c *Core) defers(now time.Time, assigned *spec.Assignment, fx *wire.Effects) bool {
	instance := c.insts[assigned.ID]
	if c.freeze == nil || c.approved == assigned.ID || instance != nil && assigned.Fence.Compare(instance.A.Fence) < 0 {
		return false
	}
	switch {
	case instance == nil, instance.Ending:
		c.waits[assigned.ID] = waitsStart
	case assigned.Fence != instance.A.Fence && (assigned.PriorFence == nil || *assigned.PriorFence != instance.A.Fence ||
		assigned.Revision != instance.A.Revision):
		c.waits[assigned.ID] = waitsUpdate
	case assigned.Fence == instance.A.Fence && assigned.Revision != instance.wanted():
		c.waits[assigned.ID] = waitsLimits
	case assigned.Restart > instance.A.Restart:
		c.waits[assigned.ID] = waitsRestart
		still := *assigned
		still.Restart = instance.A.Restart
		c.assign(now, still, fx)
	default:
		delete(c.waits, assigned.ID) // whatever waited is no longer wanted
		return false
	}
	if instance != nil {
		c.tell(instance)
	} else {
		c.tellWaitingStart(assigned)
	}
	return true
}

// defersEnd reports whether the end of an instance has to wait: of one that has run, and may still.
func (c *Core) defersEnd(i *inst) bool {
	if c.freeze == nil || c.approved == i.A.ID || i.Ending || i.halted() || i.StartedAt.IsZero() {
		delete(c.waits, i.A.ID)
		return false
	}
	c.waits[i.A.ID] = waitsStop
	c.tell(i)
	return true
}

// frozenText says what waits for an instance, or "".
func (c *Core) frozenText(id skerry.InstanceID) string {
	what := c.waits[id]
	if c.freeze == nil || what == "" {
		return ""
	}
	return what + " waits until its worker is released: " + c.freeze.Reason
}

func (c *Core) tellWaitingStart(a *spec.Assignment) {
	o := wire.Observation{ID: a.ID, Gen: a.Gen, Fence: a.Fence, State: skerry.WorkerScheduled, Frozen: c.frozenText(a.ID)}
	o.Reason = o.Frozen
	_, _ = c.Up.Observed.Put(wire.AssignmentKey(a.ID), c.codec.Marshal(&o))
}

// tellWaiting tells of all that waits.
func (c *Core) tellWaiting() {
	for _, id := range slices.Sorted(maps.Keys(c.waits)) {
		if i := c.insts[id]; i != nil {
			c.tell(i)
		} else if a := c.wanted(id); a != nil {
			c.tellWaitingStart(a)
		}
	}
}

// wanted gives what the cluster wants for an instance, or nil.
func (c *Core) wanted(id skerry.InstanceID) *spec.Assignment {
	value, _, ok := c.Up.Desired.Get(wire.AssignmentKey(id))
	a := new(spec.Assignment)
	if !ok || c.codec.Unmarshal(value, a) != nil {
		return nil
	}
	return a
}

// Frozen says why the worker is held on its device, or "".
func (c *Core) Frozen() string {
	if c.freeze == nil {
		return ""
	}
	return c.freeze.Reason
}
