package core

import (
	"encoding/json"
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
	Repaired    bool
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
	strays    strays
	volumes   *volumeBook
	snapshots *snapshotBook
	contact   *contacts
	overlay   *overlayItems
}

// New makes a core without state; Load adds the records of the store, Start ends that, and Reattach must follow.
func New(opt Options) *Core {
	life := skerry.Incarnation(fmt.Sprintf("%s.%x", opt.Name, opt.Seed[:8]))
	core := &Core{opt: opt, Up: members.NewParent(life, opt.Sets), codec: wire.New(), reports: &reporter{fixed: opt.ReportFixed},
		freeze: &freezer{waits: map[skerry.InstanceID]string{}}, strays: strays{tasks: map[skerry.InstanceID][]Task{}},
		snapshots: newSnapshotBook()}
	core.ledger = &ledger{up: core.Up, codec: core.codec, freeze: core.freeze, insts: map[skerry.InstanceID]*inst{}}
	core.overlay = &overlayItems{core.Up, core.codec}
	core.volumes, core.contact = newVolumeBook(core.ledger), &contacts{ledger: core.ledger}
	return core
}

// Load takes one record of the store.
func (c *Core) Load(key string, value []byte) error {
	if c.Up.Load(key, value) {
		return nil
	}
	if key == KeyRepaired {
		c.strays.lost = true
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
		c.strays.lost = true
		fx.Put(KeyRepaired, []byte("{}"))
	}
	for _, id := range c.ledger.ids() {
		c.ledger.tell(c.ledger.insts[id])
	}
	return fx
}

// Messages from the link. ParentUp comes after the Welcome.
type (
	ParentUp struct{ Welcome *wire.Welcome }
	// ParentDown tells when the cluster was heard last; zero: now.
	ParentDown  struct{ Heard time.Time }
	ParentFrame struct{ Msg wire.Message }
)

// Sender implements loop.Sent.
func (ParentUp) Sender() string { return "" }

// Sender implements loop.Sent.
func (ParentFrame) Sender() string { return "" }

// Messages of the server.
type (
	// Reattach tells, once after the start, which tasks are on the machine.
	Reattach struct{ Tasks []Task }
	// Facts tells what the machine is; it is sent on when it changes.
	Facts struct{ Facts wire.WorkerFacts }
	// Usage tells what is used; it goes into the next report.
	Usage struct {
		Used       spec.Resources
		Instances  map[skerry.InstanceID]wire.QoS
		Coordinate *spec.Coordinate // nil: not known
		Pressure   *wire.Pressure   // nil: not known
		Ingress    []wire.IngressUse
		Heard      []wire.PeerRTT // a few round trips to other workers
		RTT        time.Duration  // to the cluster; 0: not known
		Loss       float64        // the share of datagrams on the way there or back that are lost, 0 to 1
	}
	// Refuse keeps new work away; an empty text ends that.
	Refuse struct{ Text string }
	// Prepared answers Prepare.
	Prepared struct {
		ID        skerry.InstanceID
		Fence     skerry.Fence
		Err       string // empty: done
		Permanent bool   // trying again here cannot help
		Ports     []wire.PortBinding
		Address   string
		Runtime   string
		Digest    string
		Recipient string // as in Observation
	}
	// Started answers StartContainer.
	Started struct {
		ID        skerry.InstanceID
		Name      string
		Attempt   int
		At        time.Time
		Handle    json.RawMessage
		Err       string
		Permanent bool
	}
	// Exited tells the end of a container, whether asked for or not.
	Exited struct {
		ID      skerry.InstanceID
		Name    string
		Attempt int
		Exit    wire.Exit
	}
	// Probed tells the result of one try of a probe.
	Probed struct {
		ID      skerry.InstanceID
		Attempt int
		Kind    ProbeKind
		OK      bool
		Text    string
	}
	// Resized answers SetLimits, for the containers in it.
	Resized struct {
		SetLimits
		Err    string // empty: they have the limits; else those from before,
		Unsure bool   // or nobody knows
		InUse  bool   // more memory is in use than was to be
	}
	// Quiet answers AwaitQuiet.
	Quiet struct{ ID skerry.InstanceID }
	// Cleaned answers Cleanup.
	Cleaned struct {
		ID  skerry.InstanceID
		Err string
	}
	// Interest tells which services' routes this worker wants, in place of those before.
	Interest struct{ Services []skerry.ServiceKey }
	// IngressOffered tells what the worker's ingress offers.
	IngressOffered struct{ State wire.IngressState }
	// RestartLocal restarts an instance by hand on the device.
	RestartLocal struct{ ID skerry.InstanceID }
)

// Task is a container found on the machine at the start.
type Task struct {
	ID      skerry.InstanceID
	Name    string
	Attempt int
	Handle  json.RawMessage
	Running bool
	Exit    wire.Exit
	Digest  string // of its image; empty: not known, or none
	Restart uint64 // the last request that had been carried out when it was started
}

// Actions for the server. Each is carried out at its own pace and answered by the message named.
type (
	// Prepare fetches images, makes volumes and joins the network -> Prepared. It is idempotent.
	Prepare struct {
		A    spec.Assignment
		Keep []wire.PortBinding // ports that it had before
	}
	// Cancel ends a Prepare that goes on; it is then answered with an error.
	Cancel struct{ ID skerry.InstanceID }
	// StartContainer -> Started, and later Exited.
	StartContainer struct {
		A       spec.Assignment
		Name    string
		Attempt int
		Resume  bool // from the checkpoint that was written here
	}
	// StopContainer asks a container to end, and kills it after the grace -> Exited.
	StopContainer struct {
		ID      skerry.InstanceID
		Name    string
		Attempt int
		Handle  json.RawMessage
		Grace   time.Duration
	}
	// Watch waits for the end of a container that was found running -> Exited.
	Watch struct {
		ID      skerry.InstanceID
		Name    string
		Attempt int
		Handle  json.RawMessage
	}
	// SetLimits gives containers that run the limits of another version of the service -> Resized.
	SetLimits struct {
		ID         skerry.InstanceID
		Revision   string
		Spec, Was  spec.ServiceSpec
		Level      spec.SecurityLevel
		Containers []Limited
	}
	// SetEgress holds an instance that runs to another policy of egress.
	SetEgress struct {
		ID     skerry.InstanceID
		Egress *spec.Egress
	}
	// Discard removes a task that nobody knows.
	Discard struct{ Handle json.RawMessage }
	// Release gives network and host ports of an ended instance back; its logs stay.
	Release struct{ ID skerry.InstanceID }
	// Cleanup removes all there is of an instance -> Cleaned.
	Cleanup struct {
		ID      skerry.InstanceID
		Handles []json.RawMessage
	}
	// ProbeOn starts the probes of an instance -> Probed; ProbeOff ends them.
	ProbeOn struct {
		A       spec.Assignment
		Attempt int
		Kinds   []ProbeKind
		Address string
		Handle  json.RawMessage
	}
	ProbeOff struct{ ID skerry.InstanceID }
	// AwaitQuiet waits until nobody has connected to an instance for a while, but not less than Least nor longer than Most -> Quiet.
	AwaitQuiet struct {
		ID               skerry.InstanceID
		Least, For, Most time.Duration
	}
	// MeasurePeers says to whom round trips are measured, in place of those before.
	MeasurePeers struct{ Peers wire.Peers }
	// OverlayItem tells of an item that concerns the overlay: a pointer to one of OverlayNode, AppNetwork, Route and OverlayPeer
	// of the root package, or nil when it is gone.
	OverlayItem struct {
		Key  string
		Item any
	}
	// UpgradeAgent has the agent go over to another program. The server knows which orders it has dealt with.
	UpgradeAgent struct{ Order wire.AgentOrder }
	// KeepContact says which instances need the moment of the last contact with the cluster to outlive the agent (see Contact),
	// and are ended should it hang.
	KeepContact struct{ Leases []Lease }
	// Endpoints gives the endpoints of a service to the instances of its application; nil removes them.
	Endpoints struct {
		Service skerry.ServiceKey
		List    []wire.Endpoint
		Gone    bool
	}
)

// Step takes a message and gives its effects.
func (c *Core) Step(now time.Time, msg any) wire.Effects {
	var fx wire.Effects
	var replies []wire.Message
	switch m := msg.(type) {
	case ParentUp:
		c.Up.Up(now, m.Welcome)
		c.reports.linked(now, m.Welcome.Pace, &fx)
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
		c.reattach(now, m.Tasks, &fx)
		c.review(now, &fx)
		c.volumes.review(&fx)
		c.snapshots.review(&fx)
		c.replay(now, &fx)
	case Facts:
		if c.reports.setFacts(m.Facts) {
			c.endWithout(now, &fx)
		}
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
			c.restartNow(now, i, "restarted by hand on the device", &fx)
		}
	case VolumesRemoved:
		c.volumes.removed(now, m, &fx)
	case SnapshotRemoved:
		c.snapshots.removed(m, &fx)
	case LeaveLocal:
		c.leave(now, m, &fx)
	case FreezeLocal:
		c.freezeLocal(now, m, &fx)
	case ReleaseLocal:
		c.releaseLocal(now, &fx)
	case ApproveLocal:
		c.approveLocal(now, m, &fx)
	default:
		c.instance(now, msg, &fx)
	}
	c.settle(now, &fx, replies)
	return fx
}

// instance hands a message to the instance that it is for. Late answers for instances that are gone have no effect.
func (c *Core) instance(now time.Time, msg any, fx *wire.Effects) {
	switch m := msg.(type) {
	case Prepared:
		if i := c.ledger.insts[m.ID]; i != nil {
			c.prepared(now, i, m, fx)
		}
	case Started:
		if i := c.ledger.insts[m.ID]; i != nil {
			c.started(now, i, m, fx)
		}
	case Exited:
		if i := c.ledger.insts[m.ID]; i != nil {
			c.exited(now, i, m, fx)
		}
	case Probed:
		if i := c.ledger.insts[m.ID]; i != nil {
			c.probed(now, i, m, fx)
		}
	case Left:
		if i := c.ledger.insts[m.ID]; i != nil {
			c.left(now, i, m, fx)
		}
	case Sent:
		if i := c.ledger.insts[m.ID]; i != nil && i.Left != nil {
			i.Left.Sent = true
			c.ledger.save(i, fx)
		}
	case Resized:
		if i := c.ledger.insts[m.ID]; i != nil {
			c.resized(now, i, m, fx)
		}
	case LeaseOver:
		m.take(c, now, fx)
	case ImageMended:
		m.take(c, now, fx)
	case Quiet:
		if i := c.ledger.insts[m.ID]; i != nil && i.draining {
			i.draining = false
			c.stopNext(i, fx)
		}
	case Cleaned:
		if i := c.ledger.insts[m.ID]; i != nil && i.cleaning {
			c.cleaned(now, i, m, fx)
		}
	default:
		panic(fmt.Sprintf("worker core does not know message %T", msg))
	}
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
		c.prepare(i, fx)
		c.ledger.save(i, fx)
	}
	c.volumes.retry(now, fx)
	if c.ledger.ready {
		c.strays.end(now, c.Up, c.ledger.insts, fx)
		for _, id := range c.ledger.ids() {
			if i := c.ledger.insts[id]; i != nil && !i.wake().IsZero() && !i.wake().After(now) {
				c.due(now, i, fx)
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
				c.assign(now, a, fx)
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
				c.end(now, i, fx)
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
