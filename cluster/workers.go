package cluster

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/cluster/trust"
	"skerry.dev/skerry/decide/credit"
	"skerry.dev/skerry/decide/fleet"
	"skerry.dev/skerry/wire"
)

// Messages of operators.
type (
	// RemoveWorker forgets a worker that is not connected; its instances are placed elsewhere.
	RemoveWorker struct{ Name string }
	// HoldWorker keeps a worker from getting anything new; an empty reason ends that.
	HoldWorker struct{ Name, Reason string }
)

func (c *Core) childUp(now time.Time, hello *wire.Hello, fx *wire.Effects) {
	sets, events := c.Kids.Up(now, hello)
	fx.Result = &wire.Welcome{Sets: sets, Events: events, Incarnation: c.opt.Incarnation, Pace: c.opt.Pace}
	w := c.workers[hello.Name]
	if w == nil {
		w = &worker{Name: hello.Name, ports: map[string]int{}}
		c.addWorker(w, trust.Record{})
		c.saveWorker(w, fx)
	}
	if w.Carrier != hello.Carrier { // another kind of agent took over: it reads other items
		w.Carrier = hello.Carrier
		c.saveWorker(w, fx)
		c.resend(hello.Name)
	}
	if w.sight.Lost() {
		c.peers.Touch(now)
	}
	w.immodest, w.reportSeq, w.staleSeq = false, 0, 0
	w.urgency.Connected(now)
	c.detect.Up(w.Name)
	c.seeWorker(w)
	c.freed()
	c.siteEvent(fx, now, wire.EventNormal, "WorkerConnected", "worker "+hello.Name+" is connected", hello.Name)
	c.reach(now, hello.Name, fx)
}

// reach marks the instances of a worker that is back in touch. What it said last still holds until it says otherwise: a set
// that did not change is not sent again.
func (c *Core) reach(now time.Time, name string, fx *wire.Effects) {
	child := c.Kids.Get(name)
	for _, p := range c.on(name) {
		if !p.Obs.Unreachable {
			continue
		}
		p.Obs.Unreachable = false
		c.unstrand(p)
		c.changed(now, p, fx)
		var o wire.Observation
		if value, orphaned, has := child.Observed.Get(wire.AssignmentKey(p.A.ID)); has && !orphaned && c.said(value, &o) == nil {
			c.observe(now, name, o, fx)
		}
	}
}

func (c *Core) childFrame(now time.Time, m ChildFrame, fx *wire.Effects) {
	if k := c.Kids.Get(m.Name); k == nil || !k.Connected {
		return // it was given up meanwhile
	}
	d := c.Kids.Frame(now, m.Name, m.Msg, fx)
	child := c.Kids.Get(m.Name)
	if child == nil {
		return
	}
	for _, key := range d.Changed {
		value, orphaned, have := child.Observed.Get(key)
		if have && !orphaned && strings.HasPrefix(key, "want/") {
			if why := c.wantItem(m.Name, key, value); why != "" {
				c.refuseWant(now, m.Name, why, fx)
			}
			continue
		}
		if have && !orphaned && key == wire.IngressKey {
			c.ingressState(now, m.Name, value)
			continue
		}
		id, ok := strings.CutPrefix(key, "inst/")
		if !ok || !have || orphaned {
			continue
		}
		var o wire.Observation
		if err := c.said(value, &o); err != nil || string(o.ID) != id {
			c.Kids.Ignored.Count(fleet.IgnoredUnreadable)
			continue // a hostile or broken worker harms only itself
		}
		c.observe(now, m.Name, o, fx)
	}
	for _, key := range d.Deleted {
		if id, ok := strings.CutPrefix(key, "inst/"); ok {
			c.gone(now, m.Name, skerry.InstanceID(id), fx)
		} else if rest, ok := strings.CutPrefix(key, "want/"); ok {
			if s, ok := skerry.ParseServiceKey(rest); ok {
				c.unwant(m.Name, s)
			}
		} else if key == wire.IngressKey {
			c.ingressState(now, m.Name, nil)
		}
	}
	for _, e := range d.Events {
		c.workerEvent(now, m.Name, e, fx)
	}
	if d.Report != nil {
		c.Kids.Ignored.Count(c.workerReport(now, m.Name, d.Report, fx))
	}
	// A report brings nothing new about instances, but what was given and taken back at once is never acknowledged.
	if (d.Settled || d.Report != nil) && child.Settled() {
		c.returned(now, child, fx)
		if c.salvager.rebuild.Over() {
			c.salvager.salvageFrom(now, child, fx)
		}
		c.sweep(now, child, fx)
	}
}

// sweep lets go of what a worker should end and does not have.
func (c *Core) sweep(now time.Time, child *fleet.Child, fx *wire.Effects) {
	has := func(id skerry.InstanceID) bool { return reports(child, wire.AssignmentKey(id)) }
	if w := c.workers[child.Name]; w != nil && len(w.leaving) > 0 {
		for _, id := range w.leaving.IDs() {
			if !has(id) {
				c.left(child.Name, id)
			}
		}
	}
	c.decideOrphans(child)
	if len(c.removing) == 0 {
		return
	}
	for _, p := range c.on(child.Name) {
		if p.Removing && !has(p.A.ID) {
			c.gone(now, child.Name, p.A.ID, fx)
		}
	}
}

// workerReport takes a report, or says in a word why it has no effect.
// maxHeld is how much of a worker's reason for being held is kept, in bytes.
const maxHeld = 200

func (c *Core) workerReport(now time.Time, name string, m *wire.Report, fx *wire.Effects) (ignored string) {
	var r wire.WorkerReport
	w := c.workers[name]
	switch {
	case m.Kind != wire.ReportWorker:
		return fleet.IgnoredReport
	case w == nil || c.codec.Unmarshal(m.Payload, &r) != nil:
		return fleet.IgnoredUnreadable
	case r.Seq != 0 && r.Seq <= w.reportSeq:
		// The newest twice is a carrier that delivers at least once; numbers that go on from below were preceded by a broken one.
		if r.Seq < w.reportSeq && r.Seq > w.staleSeq {
			w.staleSeq = r.Seq
		} else if r.Seq < w.reportSeq {
			const text = "it sends reports again that it sent before"
			c.guard.counted(now, c.trust.Odd(now, name, credit.Replays, text), fx)
		}
		return fleet.IgnoredOld
	}
	w.reportSeq = r.Seq
	facts := r.Facts
	r.Facts = nil
	if r.Coordinate != nil && !r.Coordinate.Valid() {
		r.Coordinate = nil // a broken or hostile worker is nowhere
	}
	refusing, held := w.report.Refusing, w.report.Held
	r.Ingress = countable(r.Ingress)
	if len(r.Held) > maxHeld {
		r.Held = strings.ToValidUTF8(r.Held[:maxHeld], "")
	}
	w.report, w.reportAt = r, now
	w.report.Heard = nil
	c.guard.counted(now, c.trust.Use(now, name, &r), fx)
	c.guard.counted(now, c.trust.Place(now, name, r.Coordinate, r.Heard[:min(len(r.Heard), network.PeersEach)]), fx)
	c.wandered(w)
	if held != r.Held {
		c.guard.heldChanged(now, w, fx)
	}
	if refusing != r.Refusing {
		c.freed()
		c.seeWorker(w)
	}
	c.site.SetReport(name, w.coordinate(), informedAt(w))
	for _, id := range sortedIDs(r.Instances) {
		q := r.Instances[id]
		if p := c.places[id]; p != nil && p.Worker == name {
			use := moves.Bounded(q)
			p.qos = &use
			if math.Abs(p.load()-p.told) >= loadStep && c.interests.Wanted(p.A.Service) {
				p.told = p.load()
				c.interests.Touch(p.A.Service)
			}
			if w.Facts != nil {
				c.neighbours.Learn(&p.A, &use, w.Facts.Capacity.CPU, w.loads)
			}
			c.judge.look(now, p, fx)
			c.judge.reconsider(now, p, fx)
			if i := c.Apps.Instance(id); i != nil {
				i.QoS = &use
			}
		}
	}
	c.cameBy(now, w)
	c.reload(w, r.Instances)
	c.urge(now, w, fx)
	c.trim(now, w)
	if facts == nil {
		return ""
	}
	facts, found := c.trust.Capacity(now, name, facts)
	c.guard.counted(now, found, fx)
	if facts = c.opt.Admission.offered(facts); reflect.DeepEqual(facts, w.Facts) {
		return ""
	}
	if facts.Location != nil && !facts.Location.Valid() {
		facts.Location = nil
	}
	if w.Facts == nil || w.Facts.Probe != facts.Probe {
		c.peers.Touch(now)
	}
	if was := w.Facts; was == nil || !reflect.DeepEqual(was.Overlay, facts.Overlay) {
		c.readmit[name] = true
		c.changedHere()
		c.gatesChanged()
		if !slices.Equal(networksOf(w.Facts), networksOf(facts)) {
			c.warnOverlap(now, w, facts, fx)
			defer c.reviewSites() // hosts may be where instances of another site were thought to be, or no longer
		}
		for _, o := range c.workers { // a block that was in the way of its networks may be free now
			if o.Peer != 0 && o.cramped(c.attached(o)) {
				c.readmit[o.Name] = true
			}
		}
		// Those that exchange packets with it must know its new endpoints at once.
		c.paths.Touch(name)
		c.paths.TouchPeers(name)
	}
	was := w.Facts
	w.Facts = facts
	c.upgraded(now, w, was, fx)
	c.saveWorker(w, fx)
	c.seeWorker(w)
	c.freed()
	for _, p := range c.on(name) {
		c.linked[p.A.Service.App] = true
		c.judge.look(now, p, fx) // the worker may have shrunk, or moved
		c.crowd(now, p, fx)      // or measured its runtimes
	}
	return ""
}

// workerEvent takes what a worker tells of an instance of its own, or that its store was damaged.
func (c *Core) workerEvent(now time.Time, name string, data []byte, fx *wire.Effects) {
	var e wire.Event
	if c.codec.Unmarshal(data, &e) != nil {
		c.Kids.Ignored.Count(fleet.IgnoredUnreadable)
		return
	}
	if e.Instance == "" && e.Reason == wire.EventStoreRepaired {
		c.siteEvent(fx, now, wire.EventWarning, e.Reason, strings.ToValidUTF8(e.Text[:min(len(e.Text), 500)], ""), name)
		return
	}
	e.Bound()
	p := c.places[e.Instance]
	if p == nil || p.Worker != name {
		c.Kids.Ignored.Count(fleet.IgnoredUnknown)
		return
	}
	c.event(fx, now, p, e.Type, e.Reason, e.Text)
}

func (c *Core) removeWorker(now time.Time, name string, fx *wire.Effects) {
	w := c.workers[name]
	if w == nil {
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", name).WithHint("`skerry get workers` lists them")
		return
	}
	if k := c.Kids.Get(name); k != nil && k.Connected {
		fx.Err = skerry.Errorf(skerry.CodeConflict, "worker %s is connected", name).WithHint("stop its agent first")
		return
	}
	if !w.sight.Lost() {
		c.guard.loseWorker(now, w, fx)
	}
	for _, id := range sortedIDs(c.originals) {
		if p := c.places[id]; p.Original.Worker == name {
			c.endOriginal(p)
			c.changed(now, p, fx)
		}
	}
	c.forgetClaims(now, name, fx)
	for _, p := range c.on(name) {
		switch {
		case c.stranded[p.A.ID] && p.Next != nil:
			c.takeOver(now, p, "its worker was removed", fx)
			c.endOriginal(p)
		case c.stranded[p.A.ID]:
			c.unstrand(p)
			c.move(now, p, "its worker was removed", false, fx)
		case p.ended() && !p.Removing && p.Group == "":
			// Its owner has yet to learn how it ended, and takes it back then.
		default:
			c.drop(now, p, fx)
		}
	}
	for _, id := range w.leaving.IDs() {
		c.left(name, id)
	}
	c.drainer.endDrain(now, w, fx)
	delete(c.held, name)
	delete(c.workers, name)
	c.detect.Remove(name)
	c.trust.Remove(name)
	c.releases.Remove(name)
	for id := range c.astray {
		c.found(id, name)
	}
	c.expel(now, w, fx)
	c.peers.Remove(now, name)
	c.ingress.Tell(name, nil)
	c.site.Remove(name)
	fx.Delete(prefixWorker + name)
	c.Kids.Remove(name, fx)
	c.uplink.Touch()
}

func (c *Core) holdWorker(now time.Time, m HoldWorker, fx *wire.Effects) {
	w := c.workers[m.Name]
	if w == nil {
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", m.Name).WithHint("`skerry get workers` lists them")
		return
	}
	if w.Hold = m.Reason; m.Reason == "" {
		c.drainer.endDrain(now, w, fx)
		c.guard.restoreTrust(now, w, fx)
	}
	c.saveWorker(w, fx)
	c.seeWorker(w)
	c.freed()
}
