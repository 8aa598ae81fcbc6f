package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Options set up a core.
type Options struct {
	Name string
	Seed [16]byte // must differ at each start of a process
	// Repaired: the store has lost records. Containers that it does not know run on until the cluster says what they are.
	Repaired bool
	// AsOne: each start of a main container starts the init and side containers of its instance as well, and its end ends them. The server
	// starts a side container that ends again by itself, tells of it by SideEnded, and of an init container that fails by Exited.Init.
	AsOne       bool
	ReportFixed time.Duration // an interval of reports that does not adapt; 0: it does, between 1 s and 60 s
	Sets        reconcile.Options
}

// Core is a worker as a state machine. Up is exported because its server looks into it
// (archtest TestServersReadParts), and because the simulator looks into it and damages it. Only messages change it in production.
type Core struct {
	opt       Options
	Up        *members.Parent
	codec     *wire.Codec
	ledger    *ledger
	freeze    *freezer
	reports   *reporter
	strays    *strays
	life      *lifecycle
	volumes   *volumeBook
	snapshots *snapshotBook
	contact   *contacts
	overlay   *overlayItems
}

// New makes a core without state; Load adds the records of the store, Start ends that, and Reattach must follow.
func New(opt Options) *Core {
	life := skerry.Incarnation(fmt.Sprintf("%s.%x", opt.Name, opt.Seed[:8]))
	core := &Core{opt: opt, Up: members.NewParent(life, opt.Sets), codec: wire.New(), reports: &reporter{fixed: opt.ReportFixed},
		freeze: &freezer{waits: map[skerry.InstanceID]string{}}, strays: &strays{tasks: map[skerry.InstanceID][]Task{}},
		snapshots: newSnapshotBook()}
	core.ledger = &ledger{up: core.Up, codec: core.codec, freeze: core.freeze, insts: map[skerry.InstanceID]*inst{}}
	core.overlay, core.contact = &overlayItems{core.Up, core.codec}, &contacts{ledger: core.ledger}
	core.volumes = newVolumeBook(core.ledger)
	core.life = &lifecycle{core.ledger, core.freeze, core.reports, core.volumes, core.strays, core.contact, opt.AsOne}
	return core
}

// Load takes one record of the store.
func (c *Core) Load(key string, value []byte) error {
	if c.Up.Load(key, value) {
		return nil
	}
	if key == KeyRepaired {
		c.strays.expect()
		return nil
	}
	if key == keyFreeze {
		return c.freeze.load(value)
	}
	if strings.HasPrefix(key, prefixVolumes) {
		return c.volumes.load(value)
	}
	if strings.HasPrefix(key, prefixSnapshotGone) {
		return c.snapshots.load(value)
	}
	if !strings.HasPrefix(key, prefixInst) {
		return nil
	}
	return c.ledger.load(key, value)
}

// Start ends loading.
func (c *Core) Start(now time.Time) wire.Effects {
	var fx wire.Effects
	if err := c.Up.Finish(); err != nil {
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "DamagedRecords",
			Text: "what the cluster wants here is fetched again: " + err.Error()})
	}
	if c.opt.Repaired {
		c.strays.expect()
		fx.Put(KeyRepaired, []byte("{}"))
	}
	for _, id := range c.ledger.ids() {
		c.ledger.tell(c.ledger.insts[id])
	}
	return fx
}

// Step takes a message and gives its effects.
func (c *Core) Step(now time.Time, msg any) wire.Effects {
	var fx wire.Effects
	var replies []wire.Message
	switch m := msg.(type) {
	case ParentUp:
		c.Up.Up(now, m.Welcome)
		c.reports.linked(now, m.Welcome, &fx)
	case ParentDown:
		c.contact.lost(now, m.Heard)
		c.Up.Down(now)
	case Contact:
		c.contact.earlier(m.At)
	case ParentFrame:
		if r, ok := m.Msg.(*wire.Report); ok && r.Kind == wire.ReportUrgency {
			var u wire.Urgency
			if c.codec.Unmarshal(r.Payload, &u) != nil {
				c.Up.Ignored.Count(members.IgnoredUnreadable)
				break
			}
			c.reports.setGain(now, u, &fx)
			break
		}
		changed, deleted, r := c.Up.Frame(now, m.Msg)
		replies = r
		c.desired(now, changed, deleted, &fx)
	case Reattach:
		c.life.reattach(now, m.Tasks, &fx)
		c.overlay.resend(now, &fx)
		c.review(now, &fx)
		c.volumes.review(&fx)
		c.snapshots.review(&fx)
		c.replay(now, &fx)
	case Facts:
		c.reports.setFacts(m.Facts)
		c.reports.devices = m.Devices
		c.endWithout(now, &fx) // also if nothing has changed: they may have come before it was known what runs
	case Usage:
		c.reports.used(now, m)
	case Refuse:
		c.reports.refuse(m.Text)
	case Interest:
		c.overlay.interest(m.Services)
	case IngressOffered:
		c.overlay.ingressOffered(m.State)
	case RestartLocal:
		if i := c.ledger.insts[m.ID]; i == nil {
			fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no instance %q on this worker", m.ID)
		} else if i.Phase == skerry.PhaseCutOff {
			fx.Err = skerry.Errorf(skerry.CodeConflict, "instance %q was stopped because the cluster is out of touch (onDisconnect), and may run elsewhere by now", m.ID).
				WithHint("it starts when the cluster says so")
		} else {
			c.life.restartNow(now, i, "restarted by hand on the device", &fx)
		}
	case VolumeDeleted:
		c.volumes.deleted(now, m, &fx)
	case VolumesRemoved:
		c.volumes.removed(now, m, &fx)
	case SnapshotRemoved:
		c.snapshots.removed(m, &fx)
	case LeaveLocal:
		c.life.leave(now, m, &fx)
	case FreezeLocal:
		c.freezeLocal(now, m, &fx)
	case ReleaseLocal:
		c.releaseLocal(now, &fx)
	case ApproveLocal:
		c.approveLocal(now, m, &fx)
	default:
		c.life.take(now, msg, &fx)
	}
	c.settle(now, &fx, replies)
	return fx
}

// Tick does what is due.
func (c *Core) Tick(now time.Time) wire.Effects {
	var fx wire.Effects
	c.settle(now, &fx, nil)
	return fx
}

// NextWake gives the time at which Tick has something to do, or the zero time.
func (c *Core) NextWake() time.Time {
	next := c.Up.Due()
	consider := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if c.Up.Connected && c.reports.facts != nil {
		consider(c.reports.due())
	}
	for _, i := range c.ledger.insts {
		consider(i.wake())
		if c.ledger.ready {
			consider(c.contact.stopsAt(c.contact.last, i))
		}
	}
	consider(c.volumes.due())
	if c.ledger.ready {
		consider(c.strays.due(c.Up, c.ledger.insts))
	}
	return next
}

func (c *Core) settle(now time.Time, fx *wire.Effects, replies []wire.Message) {
	c.stopCutOff(now, fx)
	for i := range c.volumes.freed() {
		i.Reason = ""
		c.life.prepare(i, fx)
		c.ledger.save(i, fx)
	}
	c.volumes.retry(now, fx)
	if c.ledger.ready {
		c.strays.end(now, c.Up, c.ledger.insts, fx)
		for _, id := range c.ledger.ids() {
			if i := c.ledger.insts[id]; i != nil && !i.wake().IsZero() && !i.wake().After(now) {
				c.life.due(now, i, fx)
			}
		}
	}
	c.contact.keep(c.ledger.ready && !c.strays.lost, fx)
	if c.Up.Connected && c.reports.facts != nil && !now.Before(c.reports.due()) {
		report := c.reports.report(now, c.Frozen())
		fx.Sends = append(fx.Sends, wire.Outgoing{Msg: &wire.Report{Kind: wire.ReportWorker, Payload: c.codec.Marshal(&report)}})
	}
	c.Up.Flush(now, fx, replies)
}

// desired takes changes of what the cluster wants here.
func (c *Core) desired(now time.Time, changed, deleted []string, fx *wire.Effects) {
	// What an instance needs of the overlay is told before it.
	later := func(key string) int {
		if strings.HasPrefix(key, "inst/") {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(changed, func(a, b string) int { return later(a) - later(b) })
	for _, key := range changed {
		value, _, ok := c.Up.Desired.Get(key)
		if !ok {
			continue
		}
		if id, isInst := strings.CutPrefix(key, "inst/"); isInst {
			var a spec.Assignment
			if err := c.codec.Unmarshal(value, &a); err != nil || string(a.ID) != id {
				c.Up.Ignored.Count(members.IgnoredUnreadable)
				fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "BadAssignment",
					Text: "the cluster sent something for " + id + " that cannot be read"})
				continue
			}
			if err := a.CheckNames(); err != nil {
				c.Up.Ignored.Count(members.IgnoredUnreadable)
				fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "BadAssignment",
					Text: fmt.Sprintf("the cluster sent something for %.64q that is refused: %v", id, err)})
				continue
			}
			if !c.defers(now, &a, fx) {
				c.life.assign(now, a, fx)
			}
		} else if key == wire.AgentKey {
			c.agentOrder(fx)
		} else if claim, ok := spec.ParseVolumeKey(key); ok {
			c.volumes.item(claim, false, fx)
		} else {
			c.overlay.take(now, key, value, fx)
		}
	}
	for _, key := range deleted {
		if id, ok := strings.CutPrefix(key, "inst/"); ok {
			switch i := c.ledger.insts[skerry.InstanceID(id)]; {
			case i == nil:
				c.freeze.drop(skerry.InstanceID(id))
				c.Up.Observed.Delete(key)
			case c.freeze.defersEnd(i):
				c.ledger.tell(i)
			default:
				i.Next = nil
				c.life.end(now, i, fx)
			}
		} else if claim, ok := spec.ParseVolumeKey(key); ok {
			c.volumes.item(claim, true, fx)
		} else if id, ok := spec.ParseSnapshotKey(key); ok {
			c.snapshots.drop(id, fx)
		} else {
			c.overlay.gone(key, fx)
		}
	}
}

// Audit lists what contradicts itself between two steps, in any part.
func (c *Core) Audit() []string {
	faults := slices.Concat(c.ledger.audit(), c.freeze.audit(), c.volumes.audit(), c.contact.audit(), c.strays.audit(c.ledger.insts))
	slices.Sort(faults)
	return faults
}
