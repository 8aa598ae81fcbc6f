package core

import (
	"encoding/json"
	"fmt"
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

// freezer owns whether the worker is held on its device, why, and which changes wait for its release. It knows neither the instances nor
// the desired set: whoever takes a change asks it first.
//
// Nothing waits while the worker is not held, and nothing is approved between two steps.
type freezer struct {
	record   *freeze                      // on the device; nil: none
	waits    map[skerry.InstanceID]string // what waits, by its instance
	approved skerry.InstanceID            // within a step: what is carried out all the same
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

func (f *freezer) load(value []byte) error {
	h := new(freeze)
	if err := json.Unmarshal(value, h); err != nil {
		return err
	}
	f.record = h
	return nil
}

// frozen reports whether the worker is held on its device.
func (f *freezer) frozen() bool { return f.record != nil }

// holds reports whether an instance is to stay as it is.
func (f *freezer) holds(id skerry.InstanceID) bool { return f.record != nil && f.approved != id }

// reason says why the worker is held, or "".
func (f *freezer) reason() string {
	if f.record == nil {
		return ""
	}
	return f.record.Reason
}

// text says what waits for an instance, or "".
func (f *freezer) text(id skerry.InstanceID) string {
	what := f.waits[id]
	if f.record == nil || what == "" {
		return ""
	}
	return what + " waits until its worker is released: " + f.record.Reason
}

// pending lists the instances for which something waits, by name.
func (f *freezer) pending() []skerry.InstanceID { return slices.Sorted(maps.Keys(f.waits)) }

// drop notes that nothing waits for an instance any more, and gives what did.
func (f *freezer) drop(id skerry.InstanceID) (what string) {
	what = f.waits[id]
	delete(f.waits, id)
	return what
}

// hold begins to hold the worker, or gives another reason.
func (f *freezer) hold(now time.Time, reason string, fx *wire.Effects) {
	h := &freeze{Since: now, Reason: reason}
	if h.Reason == "" {
		h.Reason = "held on the device"
	}
	if f.record != nil {
		h.Since = f.record.Since
	}
	f.record = h
	data, err := json.Marshal(h)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	fx.Put(keyFreeze, data)
}

// release ends that, and gives the instances for which something waited.
func (f *freezer) release(fx *wire.Effects) []skerry.InstanceID {
	f.record = nil
	fx.Delete(keyFreeze)
	was := f.pending()
	clear(f.waits)
	return was
}

// defers reports whether an assignment has to wait, and notes what of it does. The instance is the one here under that name, or nil.
func (f *freezer) defers(assigned *spec.Assignment, instance *inst) (what string, waits bool) {
	if !f.holds(assigned.ID) || instance != nil && assigned.Fence.Compare(instance.A.Fence) < 0 {
		return "", false
	}
	switch {
	case instance == nil, instance.Ending:
		what = waitsStart
	case assigned.Fence != instance.A.Fence && (assigned.PriorFence == nil || *assigned.PriorFence != instance.A.Fence ||
		assigned.Revision != instance.A.Revision):
		what = waitsUpdate
	case assigned.Fence == instance.A.Fence && assigned.Revision != instance.wanted():
		what = waitsLimits
	case assigned.Restart > instance.A.Restart:
		what = waitsRestart
	default:
		f.drop(assigned.ID) // whatever waited is no longer wanted
		return "", false
	}
	f.waits[assigned.ID] = what
	return what, true
}

// defersEnd reports whether the end of an instance has to wait: of one that has run, and may still.
func (f *freezer) defersEnd(i *inst) bool {
	if !f.holds(i.A.ID) || i.Ending || i.halted() || i.StartedAt.IsZero() {
		f.drop(i.A.ID)
		return false
	}
	f.waits[i.A.ID] = waitsStop
	return true
}

// audit lists what contradicts itself between two steps.
func (f *freezer) audit() (faults []string) {
	if f.record == nil && len(f.waits) > 0 {
		faults = append(faults, fmt.Sprintf("%d changes wait for the release of a worker that is not held", len(f.waits)))
	}
	if f.approved != "" {
		faults = append(faults, fmt.Sprintf("the change of %s is approved beyond its step", f.approved))
	}
	return faults
}

func (c *Core) freezeLocal(now time.Time, msg FreezeLocal, fx *wire.Effects) {
	if len(msg.Reason) > maxFreezeReason {
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "the reason has %d bytes; at most %d are kept", len(msg.Reason), maxFreezeReason)
		return
	}
	c.freeze.hold(now, msg.Reason, fx)
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
			c.setLimits(now, c.ledger.insts[id], fx)
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
	what := c.freeze.drop(id)
	c.freeze.approved = id
	if _, _, ok := c.Up.Desired.Get(key); ok {
		c.desired(now, []string{key}, nil, fx)
	} else {
		c.desired(now, nil, []string{key}, fx)
	}
	c.freeze.approved = ""
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
		c.assign(now, still, fx)
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
