// Package worker owns what runs on one machine: the containers of each instance, their order, restarts and probes, and
// what is told of them. Core is pure: it takes messages and gives effects, among them actions such as StartContainer;
// Server, beside it, carries them out with drivers, images and network, and reports back. Nothing imports this package
// but main and tests.
package worker

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/fleet"
	"skerry.dev/skerry/internal/wire"
	"skerry.dev/skerry/reconcile"
)

// Options set up a core.
type Options struct {
	Name        string
	Seed        [16]byte      // must differ at each start of a process
	ReportEvery time.Duration // while something changes; default 5 s
	ReportIdle  time.Duration // while nothing does; default 30 s
	Sets        reconcile.Options
}

// Core is a worker as a state machine.
type Core struct {
	opt      Options
	Up       *fleet.Parent
	codec    *wire.Codec
	insts    map[skerry.InstanceID]*inst
	facts    *skerry.WorkerFacts
	factsNew bool
	refusing string
	usage    Usage // now
	told     Usage // in the last report
	usageNew bool  // what is used now differs from that by enough
	seq      uint64
	reportAt time.Time
	ready    bool                         // tasks of an earlier life were looked for
	pace     skerry.Pace                  // that the cluster asks for
	keeps    bool                         // KeepContact was asked for
	hold     *hold                        // on the device; nil: none
	waits    map[skerry.InstanceID]string // what waits for its end
	approved skerry.InstanceID            // within a step: what is carried out all the same
	contact  time.Time                    // with the cluster, the last one before it was lost; zero: not known
}

// New makes a core without state; Load adds the records of the store, Start ends that, and Reattach must follow.
func New(opt Options) *Core {
	if opt.ReportEvery == 0 {
		opt.ReportEvery = 5 * time.Second
	}
	if opt.ReportIdle == 0 {
		opt.ReportIdle = 30 * time.Second
	}
	life := skerry.Incarnation(fmt.Sprintf("%s.%x", opt.Name, opt.Seed[:8]))
	return &Core{opt: opt, Up: fleet.NewParent(life, opt.Sets), codec: wire.New(), insts: map[skerry.InstanceID]*inst{}, waits: map[skerry.InstanceID]string{}}
}

const prefixInst = "inst/"

// Load takes one record of the store.
func (c *Core) Load(key string, value []byte) error {
	if c.Up.Load(key, value) {
		return nil
	}
	if key == keyHold {
		return c.loadHold(value)
	}
	if !strings.HasPrefix(key, prefixInst) {
		return nil
	}
	i := new(inst)
	if err := json.Unmarshal(value, i); err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	c.insts[i.A.ID] = i
	return nil
}

// Start ends loading.
func (c *Core) Start(now time.Time) skerry.Effects {
	var fx skerry.Effects
	if err := c.Up.Finish(); err != nil {
		fx.Events = append(fx.Events, skerry.Event{At: now, Type: skerry.EventWarning, Reason: "DamagedRecords", Text: "what the cluster wants here is fetched again: " + err.Error()})
	}
	for _, id := range c.ids() {
		c.tell(c.insts[id])
	}
	return fx
}

// Messages from the link. ParentUp comes after the Welcome.
type (
	ParentUp struct{ Welcome *skerry.Welcome }
	// ParentDown tells when the cluster was heard last; zero: now.
	ParentDown  struct{ Heard time.Time }
	ParentFrame struct{ Msg skerry.Message }
)

// Messages of the server.
type (
	// Reattach tells, once after the start, which tasks are on the machine.
	Reattach struct{ Tasks []Task }
	// Facts tells what the machine is; it is sent on when it changes.
	Facts struct{ Facts skerry.WorkerFacts }
	// Usage tells what is used; it goes into the next report.
	Usage struct {
		Used       skerry.Resources
		Instances  map[skerry.InstanceID]skerry.QoS
		Coordinate *skerry.Coordinate // nil: not known
		Pressure   *skerry.Pressure   // nil: not known
	}
	// Refuse keeps new work away; an empty text ends that.
	Refuse struct{ Text string }
	// Prepared answers Prepare.
	Prepared struct {
		ID        skerry.InstanceID
		Fence     skerry.Fence
		Err       string // empty: done
		Permanent bool   // trying again here cannot help
		Ports     []skerry.PortBinding
		Address   string
		Runtime   string
		Digest    string
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
		Exit    skerry.Exit
	}
	// Probed tells the result of one try of a probe.
	Probed struct {
		ID      skerry.InstanceID
		Attempt int
		Kind    ProbeKind
		OK      bool
		Text    string
	}
	// Cleaned answers Cleanup.
	Cleaned struct {
		ID  skerry.InstanceID
		Err string
	}
	// Interest tells which services' routes this worker wants, in place of those before.
	Interest struct{ Services []skerry.ServiceKey }
	// Entrances tells what the worker's ingress offers.
	Entrances struct{ State skerry.IngressState }
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
	Exit    skerry.Exit
}

// Actions for the server. Each is carried out at its own pace and answered by the message named.
type (
	// Prepare fetches images, makes volumes and joins the network -> Prepared. It is idempotent.
	Prepare struct {
		A    skerry.Assignment
		Keep []skerry.PortBinding // ports that it had before
	}
	// Cancel ends a Prepare that goes on; it is then answered with an error.
	Cancel struct{ ID skerry.InstanceID }
	// StartContainer -> Started, and later Exited.
	StartContainer struct {
		A       skerry.Assignment
		Name    string
		Attempt int
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
		A       skerry.Assignment
		Attempt int
		Kinds   []ProbeKind
		Address string
		Handle  json.RawMessage
	}
	ProbeOff struct{ ID skerry.InstanceID }
	// MeasurePeers says to whom round trips are measured, in place of those before.
	MeasurePeers struct{ Peers skerry.Peers }
	// Fabric tells of an item that concerns the overlay: a pointer to one of OverlayNode, AppNetwork, Route and OverlayPeer
	// of the root package, or nil when it is gone.
	Fabric struct {
		Key  string
		Item any
	}
	// KeepContact says whether the moment of the last contact with the cluster must outlive the agent (see Contact).
	KeepContact struct{ On bool }
	// Endpoints gives the endpoints of a service to the instances of its application; nil removes them.
	Endpoints struct {
		Service skerry.ServiceKey
		List    []skerry.Endpoint
		Gone    bool
	}
)

// Step takes a message and gives its effects.
func (c *Core) Step(now time.Time, msg any) skerry.Effects {
	var fx skerry.Effects
	var replies []skerry.Message
	switch m := msg.(type) {
	case ParentUp:
		c.Up.Up(now, m.Welcome)
		c.pace = skerry.Pace{}
		if p := m.Welcome.Pace; p != nil {
			c.pace = *p
		}
		c.factsNew = true
		c.reportAt = time.Time{}
	case ParentDown:
		if c.Up.Connected {
			if c.contact = m.Heard; c.contact.IsZero() || c.contact.After(now) {
				c.contact = now
			}
		}
		c.Up.Down(now)
	case Contact:
		if !c.Up.Connected && m.At.After(c.contact) {
			c.contact = m.At
		}
	case ParentFrame:
		changed, deleted, r := c.Up.Frame(now, m.Msg)
		replies = r
		c.desired(now, changed, deleted, &fx)
	case Reattach:
		c.reattach(now, m.Tasks, &fx)
		c.review(now, &fx)
		c.replay(now, &fx)
	case Facts:
		if c.facts == nil || !reflect.DeepEqual(*c.facts, m.Facts) {
			c.facts, c.factsNew = &m.Facts, true
			c.reportAt = time.Time{}
		}
	case Usage:
		c.usage = m
		c.usageNew = c.usageNew || notable(c.told, m)
	case Refuse:
		if c.refusing != m.Text {
			c.refusing = m.Text
			c.reportAt = time.Time{}
		}
	case Interest:
		c.interest(m.Services)
	case Entrances:
		c.entrances(m.State)
	case RestartLocal:
		if i := c.insts[m.ID]; i == nil {
			fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no instance %q on this worker", m.ID)
		} else if i.Phase == skerry.PhaseCutOff {
			fx.Err = skerry.Errorf(skerry.CodeConflict, "instance %q was stopped because the cluster is out of touch (onDisconnect), and may run elsewhere by now", m.ID).
				WithHint("it starts when the cluster says so")
		} else {
			c.restartNow(now, i, "restarted by hand on the device", &fx)
		}
	case HoldLocal:
		c.holdLocal(now, m, &fx)
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
func (c *Core) instance(now time.Time, msg any, fx *skerry.Effects) {
	switch m := msg.(type) {
	case Prepared:
		if i := c.insts[m.ID]; i != nil {
			c.prepared(now, i, m, fx)
		}
	case Started:
		if i := c.insts[m.ID]; i != nil {
			c.started(now, i, m, fx)
		}
	case Exited:
		if i := c.insts[m.ID]; i != nil {
			c.exited(now, i, m, fx)
		}
	case Probed:
		if i := c.insts[m.ID]; i != nil {
			c.probed(now, i, m, fx)
		}
	case Cleaned:
		if i := c.insts[m.ID]; i != nil {
			c.cleaned(now, i, m, fx)
		}
	default:
		panic(fmt.Sprintf("worker core does not know message %T", msg))
	}
}

// Tick does what is due.
func (c *Core) Tick(now time.Time) skerry.Effects {
	var fx skerry.Effects
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
	if c.Up.Connected && c.facts != nil {
		consider(c.reportAt.Add(c.interval()))
	}
	for _, i := range c.insts {
		consider(i.wake())
		if c.ready {
			consider(c.stopsAt(c.contact, i))
		}
	}
	return next
}

func (c *Core) settle(now time.Time, fx *skerry.Effects, replies []skerry.Message) {
	c.stopCutOff(now, fx)
	c.keepContact(fx)
	if c.ready {
		for _, id := range c.ids() {
			if i := c.insts[id]; i != nil && !i.wake().IsZero() && !i.wake().After(now) {
				c.due(now, i, fx)
			}
		}
	}
	if c.Up.Connected && c.facts != nil && now.Sub(c.reportAt) >= c.interval() {
		c.report(now, fx)
	}
	c.Up.Flush(now, fx, replies)
}

// interval is the time from one report to the next: an idle worker on a metered link should say little.
func (c *Core) interval() time.Duration {
	ms := func(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
	if c.usageNew {
		return max(c.opt.ReportEvery, ms(c.pace.Report))
	}
	return max(c.opt.ReportIdle, ms(c.pace.ReportIdle))
}

func (c *Core) report(now time.Time, fx *skerry.Effects) {
	c.seq++
	c.told, c.usageNew = c.usage, false
	r := skerry.WorkerReport{Seq: c.seq, Used: c.usage.Used, Instances: c.usage.Instances, Refusing: c.refusing, Held: c.Held(), Coordinate: c.usage.Coordinate, Pressure: c.usage.Pressure}
	if c.factsNew {
		r.Facts, c.factsNew = c.facts, false
	}
	c.reportAt = now
	fx.Sends = append(fx.Sends, skerry.Outgoing{Msg: &skerry.Report{Kind: skerry.ReportWorker, Payload: c.codec.Marshal(&r)}})
}

// desired takes changes of what the cluster wants here.
func (c *Core) desired(now time.Time, changed, deleted []string, fx *skerry.Effects) {
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
			var a skerry.Assignment
			if err := c.codec.Unmarshal(value, &a); err != nil || string(a.ID) != id {
				c.Up.Ignored.Count(fleet.IgnoredUnreadable)
				fx.Events = append(fx.Events, skerry.Event{At: now, Type: skerry.EventWarning, Reason: "BadAssignment", Text: "the cluster sent something for " + id + " that cannot be read"})
				continue
			}
			if !c.defers(now, &a, fx) {
				c.assign(now, a, fx)
			}
		} else if strings.HasPrefix(key, "ep/") {
			c.endpoints(value, fx)
		} else if key == skerry.PeersKey {
			c.peers(value, fx)
		} else {
			c.fabric(now, key, value, fx)
		}
	}
	for _, key := range deleted {
		if id, ok := strings.CutPrefix(key, "inst/"); ok {
			switch i := c.insts[skerry.InstanceID(id)]; {
			case i == nil:
				delete(c.waits, skerry.InstanceID(id))
				c.Up.Observed.Delete(key)
			case !c.defersEnd(i):
				i.Next = nil
				c.end(now, i, fx)
			}
		} else if rest, ok := strings.CutPrefix(key, "ep/"); ok {
			if p := strings.Split(rest, "/"); len(p) == 3 {
				fx.Actions = append(fx.Actions, Endpoints{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: p[0], Name: p[1]}, Service: p[2]}, Gone: true})
			}
		} else if newFabricItem(key) != nil {
			fx.Actions = append(fx.Actions, Fabric{Key: key})
		}
	}
}

func (c *Core) endpoints(value []byte, fx *skerry.Effects) {
	var e skerry.Endpoints
	if c.codec.Unmarshal(value, &e) == nil {
		fx.Actions = append(fx.Actions, Endpoints{Service: e.Service, List: e.List})
	}
}

func (c *Core) peers(value []byte, fx *skerry.Effects) {
	var p skerry.Peers
	if c.codec.Unmarshal(value, &p) == nil {
		fx.Actions = append(fx.Actions, MeasurePeers{p})
	}
}

func (c *Core) ids() []skerry.InstanceID {
	out := make([]skerry.InstanceID, 0, len(c.insts))
	for id := range c.insts {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// event tells of something that happened to an instance, here and to the cluster.
func (c *Core) event(now time.Time, i *inst, t skerry.EventType, reason, text string, fx *skerry.Effects) {
	e := skerry.Event{At: now, Type: t, Reason: reason, Text: text, App: i.A.Service.App, Service: i.A.Service.Service, Instance: i.A.ID, Org: i.A.Org}
	fx.Events = append(fx.Events, e)
	if t == skerry.EventWarning {
		if _, err := c.Up.Events.Append(c.codec.Marshal(e)); err != nil {
			fx.Events = append(fx.Events, skerry.Event{At: now, Type: skerry.EventWarning, Reason: "EventDropped", Text: err.Error(), Instance: i.A.ID})
		}
	}
}

// Instances lists what the worker holds, for the device's own API.
func (c *Core) Instances() []skerry.Observation {
	var out []skerry.Observation
	for _, id := range c.ids() {
		o := c.insts[id].observation()
		o.Held = c.heldText(id)
		out = append(out, o)
	}
	for _, id := range slices.Sorted(maps.Keys(c.waits)) {
		if c.insts[id] == nil {
			out = append(out, skerry.Observation{ID: id, State: skerry.WorkerScheduled, Held: c.heldText(id)})
		}
	}
	return out
}

// Views lists what the worker holds as the API shows it.
func (c *Core) Views() []skerry.Instance {
	out := make([]skerry.Instance, 0, len(c.insts))
	for _, id := range c.ids() {
		i := c.insts[id]
		o := i.observation()
		v := skerry.Instance{ID: id, Service: i.A.Service, Org: i.A.Org, Ordinal: i.A.Ordinal, Gen: i.A.Gen, Revision: i.A.Revision, State: o.State, Phase: o.Phase, Reason: o.Reason,
			Worker: skerry.WorkerName(c.opt.Name), Runtime: o.Runtime, Restarts: o.Restarts, Exit: o.Exit, Address: o.Address, Ports: o.Ports, Fence: i.A.Fence,
			CreatedAt: o.StartedAt, StartedAt: o.StartedAt, Stopping: i.Ending, Digest: o.Digest}
		if q, ok := c.usage.Instances[id]; ok {
			v.QoS = &q
		}
		v.Conditions = []skerry.Condition{{Type: skerry.Ready, Status: o.Ready, Reason: o.Reason}}
		out = append(out, v)
	}
	return out
}

// Assignment finds what was asked for an instance, and the handle and attempt of one of its containers.
func (c *Core) Assignment(id skerry.InstanceID, name string) (a skerry.Assignment, handle json.RawMessage, attempt int, ok bool) {
	i := c.insts[id]
	if i == nil {
		return a, nil, 0, false
	}
	if k := i.Containers[name]; k != nil {
		return i.A, k.Handle, k.Attempt, true
	}
	return i.A, nil, 0, true
}

// Running calls fn for each container that runs.
func (c *Core) Running(fn func(a *skerry.Assignment, name string, handle json.RawMessage)) {
	for _, id := range c.ids() {
		i := c.insts[id]
		for _, name := range i.names() {
			if k := i.Containers[name]; k.Running {
				fn(&i.A, name, k.Handle)
			}
		}
	}
}

// Images lists the digests that instances here refer to; they must not be collected.
func (c *Core) Images() map[string]bool {
	out := map[string]bool{}
	for _, i := range c.insts {
		for _, d := range i.A.Digest {
			out[d] = true
		}
		if i.Digest != "" {
			out[i.Digest] = true
		}
	}
	return out
}
