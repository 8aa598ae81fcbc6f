package core

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func (c *Core) freezeLocal(now time.Time, msg FreezeLocal, fx *wire.Effects) {
	if len(msg.Reason) > maxFreezeReason {
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "the reason has %d bytes; at most %d are kept", len(msg.Reason), maxFreezeReason)
		return
	}
	c.freeze.start(now, msg.Reason, fx)
	for _, id := range c.freeze.pending() {
		if i := c.ledger.insts[id]; i != nil {
			c.ledger.tell(i)
		} else if a := c.wanted(id); a != nil {
			c.tellWaitingStart(a)
		}
	}
	c.reports.hasten()
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventNormal, Reason: "Held", Text: c.freeze.reason()})
}

func (c *Core) releaseLocal(now time.Time, fx *wire.Effects) {
	if !c.freeze.frozen() {
		return
	}
	was := c.freeze.release(fx)
	if c.ledger.ready { // else it is done once what runs is known
		c.review(now, fx)
		for _, id := range c.ledger.ids() {
			c.life.setLimits(now, c.ledger.insts[id], fx)
		}
	}
	for _, id := range was {
		if i := c.ledger.insts[id]; i != nil {
			c.ledger.tell(i)
		}
	}
	c.agentOrder(fx)
	c.reports.hasten()
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventNormal, Reason: "Released", Text: "what waited is carried out"})
}

func (c *Core) approveLocal(now time.Time, m ApproveLocal, fx *wire.Effects) {
	switch {
	case !c.freeze.frozen():
		fx.Err = skerry.Errorf(skerry.CodeConflict, "the worker is not frozen").WithHint("nothing waits for approval")
		return
	case m.ID != "" && c.freeze.waits[m.ID] == "":
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "no change of instance %q is pending", m.ID).WithHint("`skerry worker status` lists pending changes")
		return
	}
	for _, id := range c.freeze.pending() {
		if m.ID == "" || m.ID == id {
			c.approve(now, id, fx)
		}
	}
}

// agentOrder has carried out what the cluster said last of the agent's program, unless the worker is held.
func (c *Core) agentOrder(fx *wire.Effects) {
	value, _, ok := c.Up.Desired.Get(wire.AgentKey)
	if !ok || c.freeze.frozen() {
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
	what := c.freeze.approve(id)
	if _, _, ok := c.Up.Desired.Get(key); ok {
		c.desired(now, []string{key}, nil, fx)
	} else {
		c.desired(now, nil, []string{key}, fx)
	}
	c.freeze.approve("")
	if i := c.ledger.insts[id]; i != nil {
		c.ledger.tell(i)
		c.ledger.event(now, i, wire.EventNormal, "Approved", what+" was approved on the device", fx)
	}
}

// defers reports whether an assignment has to wait. What of it changes nothing that runs is taken over.
func (c *Core) defers(now time.Time, assigned *spec.Assignment, fx *wire.Effects) bool {
	instance := c.ledger.insts[assigned.ID]
	what, waits := c.freeze.defers(assigned, instance)
	switch {
	case !waits:
		return false
	case instance == nil:
		c.tellWaitingStart(assigned)
		return true
	case what == waitsRestart:
		still := *assigned
		still.Restart = instance.A.Restart
		c.life.assign(now, still, fx)
	}
	c.ledger.tell(instance)
	return true
}

func (c *Core) tellWaitingStart(a *spec.Assignment) {
	text := c.freeze.text(a.ID)
	c.ledger.observe(wire.Observation{ID: a.ID, Gen: a.Gen, Fence: a.Fence, State: skerry.WorkerScheduled, Frozen: text, Reason: text})
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
func (c *Core) Frozen() string { return c.freeze.reason() }
