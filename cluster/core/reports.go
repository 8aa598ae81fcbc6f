package core

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/decide/evidence"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Messages from links to workers. ChildUp's result is a Welcome with the sets and events filled in.
type (
	ChildUp    struct{ Hello *wire.Hello }
	ChildDown  struct{ Name string }
	ChildFrame struct {
		Name string
		Msg  wire.Message
	}
)

// reports takes what workers tell: of instances, of themselves, of what they want of the overlay. It believes them as far as guard does.
//
//	childFrame ─┬─ an observation ─► observe ─► the placement, its successor, its original, a stranger
//	            ├─ a report ─► workerReport ─► use, facts ─► judge, overlay, how near a limit something is (urge)
//	            ├─ an event ─► workerEvent
//	            └─ all is told ─► returned, rebuilt, sweep
type reports struct {
	*lifecycle
	overlay   *overlay
	find      *finder
	judge     *judge
	guard     *guard
	rebuilder *rebuilder
	opt       *Options
}

// reach marks the instances of a worker that is back in touch. What it said last still holds until it says otherwise: a set
// that did not change is not sent again.
func (rp *reports) reach(now time.Time, name string, fx *wire.Effects) {
	child := rp.Children.Get(name)
	for _, p := range rp.on(name) {
		if !p.Obs.Unreachable {
			continue
		}
		p.Obs.Unreachable = false
		rp.unstrand(p)
		rp.changed(now, p, fx)
		var o wire.Observation
		if value, orphaned, has := child.Observed.Get(wire.AssignmentKey(p.A.ID)); has && !orphaned && rp.said(value, &o) == nil {
			rp.observe(now, name, o, fx)
		}
	}
}

func (rp *reports) childFrame(now time.Time, m ChildFrame, fx *wire.Effects) {
	if k := rp.Children.Get(m.Name); k == nil || !k.Connected {
		return // it was given up meanwhile
	}
	d := rp.Children.Frame(now, m.Name, m.Msg, fx)
	child := rp.Children.Get(m.Name)
	if child == nil {
		return
	}
	for _, key := range d.Changed {
		value, orphaned, have := child.Observed.Get(key)
		if have && !orphaned && strings.HasPrefix(key, "want/") {
			if why := rp.overlay.wantItem(m.Name, key, value); why != "" {
				rp.overlay.refuseWant(now, m.Name, why, fx)
			}
			continue
		}
		if have && !orphaned && key == wire.IngressKey {
			rp.overlay.ingressState(now, m.Name, value)
			continue
		}
		id, ok := strings.CutPrefix(key, "inst/")
		if !ok || !have || orphaned {
			continue
		}
		var o wire.Observation
		if err := rp.said(value, &o); err != nil || string(o.ID) != id {
			rp.Children.Ignored.Count(members.IgnoredUnreadable)
			continue // a hostile or broken worker harms only itself
		}
		rp.observe(now, m.Name, o, fx)
	}
	for _, key := range d.Deleted {
		if id, ok := strings.CutPrefix(key, "inst/"); ok {
			rp.gone(now, m.Name, skerry.InstanceID(id), fx)
		} else if rest, ok := strings.CutPrefix(key, "want/"); ok {
			if s, ok := skerry.ParseServiceKey(rest); ok {
				rp.overlay.unwant(m.Name, s)
			}
		} else if key == wire.IngressKey {
			rp.overlay.ingressState(now, m.Name, nil)
		}
	}
	rp.overlay.endRecalled(child)
	for _, e := range d.Events {
		rp.workerEvent(now, m.Name, e, fx)
	}
	if d.Report != nil {
		rp.Children.Ignored.Count(rp.workerReport(now, m.Name, d.Report, fx))
	}
	// A report brings nothing new about instances, but what was given and taken back at once is never acknowledged.
	if d.Settled {
		rp.answered(m.Name)
	}
	if (d.Settled || d.Report != nil) && child.Settled() {
		rp.returned(now, child, fx)
		if rp.rebuilder.rebuild.Over() {
			rp.rebuilder.rebuildFrom(now, child, fx)
		}
		rp.sweep(now, child, fx)
	}
}

// sweep lets go of what a worker should end and does not have.
func (rp *reports) sweep(now time.Time, child *members.Child, fx *wire.Effects) {
	has := func(id skerry.InstanceID) bool { return tells(child, wire.AssignmentKey(id)) }
	if w := rp.workers[child.Name]; w != nil && len(w.leaving) > 0 {
		for _, id := range w.leaving.IDs() {
			if !has(id) {
				rp.left(child.Name, id)
			}
		}
	}
	rp.decideOrphans(child)
	rp.rebuilder.findKept(now, child, fx)
	if len(rp.removing) == 0 {
		return
	}
	for _, p := range rp.on(child.Name) {
		if p.Removing && !has(p.A.ID) {
			rp.gone(now, child.Name, p.A.ID, fx)
		}
	}
}

// workerReport takes a report, or says in a word why it has no effect.
func (rp *reports) workerReport(now time.Time, name string, m *wire.Report, fx *wire.Effects) (ignored string) {
	var r wire.WorkerReport
	w := rp.workers[name]
	switch {
	case m.Kind != wire.ReportWorker:
		return members.IgnoredReport
	case w == nil || rp.codec.Unmarshal(m.Payload, &r) != nil:
		return members.IgnoredUnreadable
	}
	switch w.numbers.Take(r.Seq) {
	case members.Late:
		return members.IgnoredOld
	case members.Repeated:
		rp.guard.counted(now, rp.trust.Odd(now, name, evidence.Replays, "it repeats reports that it sent before"), fx)
		return members.IgnoredOld
	}
	child := rp.Children.Get(name)
	r.Complete(w.report.Instances, func(id skerry.InstanceID) bool { // also what may come to be the worker's: nobody tells it again
		p := rp.places[id]
		return p != nil && p.at(name) || tells(child, wire.AssignmentKey(id))
	})
	facts := r.Facts
	r.Facts = nil
	if r.Coordinate != nil && !r.Coordinate.Valid() {
		r.Coordinate = nil // a broken or hostile worker is nowhere
	}
	refusing, held := w.report.Refusing, w.report.Frozen
	r.Ingress = rp.overlay.countable(r.Ingress)
	if len(r.Frozen) > maxFrozen {
		r.Frozen = strings.ToValidUTF8(r.Frozen[:maxFrozen], "")
	}
	r.Refusing = wire.Short(r.Refusing)
	if r.Pace != nil {
		r.Pace.Why = wire.Short(r.Pace.Why)
	}
	w.report, w.reportAt = r, now
	w.report.Heard = nil
	rp.guard.counted(now, rp.trust.Use(now, name, &r), fx)
	rp.guard.counted(now, rp.trust.Place(now, name, r.Coordinate, r.Heard[:min(len(r.Heard), network.PeersEach)]), fx)
	rp.overlay.wandered(w)
	if held != r.Frozen {
		rp.guard.freezeChanged(now, w, fx)
	}
	if refusing != r.Refusing {
		rp.freed()
		rp.seeWorker(w)
	}
	rp.site.SetReport(name, w.coordinate(), informedAt(w))
	for _, id := range sortedIDs(r.Instances) {
		q := r.Instances[id]
		if p := rp.places[id]; p != nil && p.Worker == name {
			use := moves.Bounded(q, p.A.Spec.Links)
			p.qos = &use
			if math.Abs(p.load()-p.told) >= loadStep && rp.interests.Wanted(p.A.Service) {
				p.told = p.load()
				rp.interests.Touch(p.A.Service)
			}
			if w.Facts != nil {
				rp.neighbours.Learn(&p.A, &use, w.Facts.Capacity.CPU, w.loads)
			}
			rp.judge.look(now, p, fx)
			rp.judge.reconsider(now, p, fx)
			if i := rp.Apps.Instance(id); i != nil {
				i.QoS = &use
			}
		}
	}
	rp.arrivalsBy(now, w)
	rp.reload(w, r.Instances)
	rp.urge(now, w, fx)
	rp.overlay.trim(now, w)
	if facts == nil {
		return ""
	}
	if n := len(mustJSON(facts.Kept())); n > maxFacts {
		if !w.immodest {
			w.immodest = true
			rp.siteEvent(fx, now, wire.EventWarning, "Implausible", fmt.Sprintf(
				"worker %s says %d bytes of itself, which are not read: at most %d are", name, n, maxFacts), name)
		}
		return members.IgnoredUnreadable
	}
	facts, found := rp.trust.Capacity(now, name, facts)
	rp.guard.counted(now, found, fx)
	if facts = rp.opt.Admission.offered(facts); reflect.DeepEqual(facts, w.Facts) && !w.untold {
		return ""
	}
	if facts.Location != nil && !facts.Location.Valid() {
		facts.Location = nil
	}
	if w.Facts == nil || w.Facts.Probe != facts.Probe {
		rp.overlay.peers.Touch(now)
	}
	if was := w.Facts; was != nil && was.Knows(spec.FeatureAliases) != facts.Knows(spec.FeatureAliases) {
		rp.overlay.ingressesChanged() // it may offer others
	}
	if was := w.Facts; was == nil || !reflect.DeepEqual(was.Overlay, facts.Overlay) {
		rp.readmit[name] = true
		rp.overlay.changedHere()
		rp.overlay.ingressesChanged()
		if !slices.Equal(networksOf(w.Facts), networksOf(facts)) {
			rp.overlay.warnOverlap(now, w, facts, fx)
			defer rp.overlay.reviewSites() // hosts may be where instances of another site were thought to be, or no longer
		}
		for _, o := range rp.workers { // a block that was in the way of its networks may be free now
			if o.Peer != 0 && o.cramped(rp.overlay.attached(o)) {
				rp.readmit[o.Name] = true
			}
		}
		// Those that exchange packets with it must know its new endpoints at once.
		rp.overlay.paths.Touch(name)
		rp.overlay.paths.TouchPeers(name)
	}
	was := w.Facts
	w.Facts, w.untold = facts, false
	rp.upgraded(now, w, was, fx)
	rp.saveWorker(w, fx)
	rp.seeWorker(w)
	rp.freed()
	for _, p := range rp.on(name) {
		rp.linked[p.A.Service.App] = true
		rp.judge.look(now, p, fx) // the worker may have shrunk, or moved
		rp.crowd(now, p, fx)      // or measured its runtimes
	}
	return ""
}

// ofWorker are the reasons of events that a worker may tell of itself.
var ofWorker = []string{wire.EventStoreRepaired, "VolumesNotRemoved", "VolumeDeleted"}

// workerEvent takes what a worker tells of an instance of its own, or of itself.
func (rp *reports) workerEvent(now time.Time, name string, data []byte, fx *wire.Effects) {
	var e wire.Event
	if rp.codec.Unmarshal(data, &e) != nil {
		rp.Children.Ignored.Count(members.IgnoredUnreadable)
		return
	}
	if e.Instance == "" && slices.Contains(ofWorker, e.Reason) {
		rp.siteEvent(fx, now, wire.EventWarning, e.Reason, strings.ToValidUTF8(e.Text[:min(len(e.Text), 500)], ""), name)
		return
	}
	e.Bound()
	p := rp.places[e.Instance]
	if p == nil || p.Worker != name {
		rp.Children.Ignored.Count(members.IgnoredUnknown)
		return
	}
	rp.event(fx, now, p, e.Type, e.Reason, e.Text)
}

// observe takes what a worker reports of an instance.
func (rp *reports) observe(now time.Time, worker string, o wire.Observation, fx *wire.Effects) {
	p := rp.places[o.ID]
	if p != nil && p.Original != nil && p.Original.Worker == worker && p.Worker != worker {
		return // returned judges it when all is told
	}
	if p == nil || p.Worker != worker && (p.Next == nil || p.Next.Worker != worker) {
		rp.stray(o.ID, worker)
	}
	if p != nil {
		rp.guard.unknownToken(now, rp.workers[worker], p, &o, fx)
	}
	if p == nil {
		rp.Children.Ignored.Count(members.IgnoredUnknown)
		rp.stranger(now, worker, o.ID, fx)
		return
	}
	if p.Next != nil && p.Next.Worker == worker {
		rp.observeNext(now, p, o, fx)
		return
	}
	if p.Worker != worker {
		if !rp.farewells.Has(moves.Place{Worker: worker, ID: o.ID}) {
			rp.Children.Delete(worker, wire.AssignmentKey(o.ID)) // an old copy: end it
		}
		return
	}
	if o.Fence != p.A.Fence || !p.Obs.State.CanReach(o.State) {
		rp.Children.Ignored.Count(members.IgnoredToken)
		return // the worker has not got the newest word yet
	}
	wasReady, before, address := p.Obs.Ready, p.Obs.State, p.Obs.Address
	further := p.Resize == nil && o.OnlyFurther(&p.Obs)
	ended := o.State == skerry.Terminated || o.State == skerry.Failed
	if ended && before != o.State {
		rp.endOriginal(p)
		rp.abandon(p) // it has done its work, or will be placed anew
		rp.reserve(p, -1)
		rp.touchClaims(p)
		rp.freed()
	}
	if o.Ready && p.Late != nil && p.Late.Worker == worker && p.Next != nil && !p.Next.Rescue {
		rp.abandon(p) // the one that was tried elsewhere because this one was slow
	}
	if o.Ready {
		p.Avoid = nil // it found its place; what failed elsewhere is over
	}
	o.Violated = p.Obs.Violated // the site's own judgement
	p.Obs = o
	if o.State == skerry.Running {
		rp.ranWithData(p)
	}
	if n := p.Next; n != nil && n.Checkpoint && n.Down.IsZero() && o.Phase == skerry.PhaseLeaving {
		n.Down = now
	}
	rp.resized(now, p, fx)
	rp.workers.addressPorts(p)
	if wasReady != o.Ready || ended || before != o.State || address != o.Address {
		rp.linked[p.A.Service.App] = true
	}
	if wasReady != o.Ready || ended {
		rp.judge.look(now, p, fx)
	}
	if o.Phase == skerry.PhaseCutOff && !p.Removing {
		rp.resume(now, p, fx)
		return
	}
	if rp.again(now, p, fx) {
		return
	}
	if further {
		rp.further(now, p, fx)
		return
	}
	rp.changed(now, p, fx)
}

// again gives what has failed another try: elsewhere, or where it belongs if it is a copy that has lost its device.
func (rp *reports) again(now time.Time, p *placement, fx *wire.Effects) bool {
	job := p.A.Spec.Mode == spec.ModeJob || p.A.Spec.Mode == spec.ModeCron
	if p.lostDevice() {
		rp.event(fx, now, p, wire.EventWarning, "Failed", p.Obs.Reason)
		rp.restart(now, p, fx)
		return true
	}
	if p.Obs.State == skerry.Failed && !job && !p.Removing && p.Group == "" {
		if p.Moves++; p.Moves < maxMoves && rp.find.othersFit(p) {
			rp.event(fx, now, p, wire.EventWarning, "Failed", p.Obs.Reason)
			rp.move(now, p, p.Obs.Reason, true, fx)
			return true
		}
	}
	return false
}

// stranger is an instance that a worker runs and this store does not know: it was restored from an older backup. It is
// left alone until its owner names it or an operator ends it.
func (rp *reports) stranger(now time.Time, worker string, id skerry.InstanceID, fx *wire.Effects) {
	w := rp.workers[worker]
	if _, held := rp.Children.Get(worker).Desired.Orphan(wire.AssignmentKey(id)); !held || w == nil || w.strangers >= namedMost {
		return
	}
	text := "worker " + worker + " runs " + wire.Short(string(id)) + ", which this site's store does not know; it is left running"
	if w.strangers++; w.strangers == namedMost {
		text += "; so are others, which are not named"
	}
	rp.siteEvent(fx, now, wire.EventWarning, "UnknownInstance", text, worker)
}

// returned decides, once a worker that was out of touch has told all that it runs, which copies stay.
func (rp *reports) returned(now time.Time, child *members.Child, fx *wire.Effects) {
	for _, id := range sortedIDs(rp.moving) {
		if p := rp.places[id]; p.Worker == child.Name && p.Next.Rescue && !rp.stranded[id] && p.Obs.Ready {
			rp.event(fx, now, p, wire.EventNormal, "Back", "worker "+p.Worker+" is back in touch; it ran all the time")
			rp.abandon(p)
			rp.changed(now, p, fx)
		}
	}
	for _, id := range sortedIDs(rp.originals) {
		p := rp.places[id]
		if p.Original.Worker != child.Name {
			continue
		}
		var o wire.Observation
		value, orphaned, has := child.Observed.Get(wire.AssignmentKey(id))
		if !has || orphaned || rp.said(value, &o) != nil || o.Fence != p.Original.Fence {
			rp.endOriginal(p)
			rp.changed(now, p, fx)
			continue
		}
		if keep, why := rp.find.keepsOriginal(p, o); keep {
			rp.restore(now, p, o, why, fx)
		} else {
			rp.event(fx, now, p, wire.EventNormal, "KeptReplacement", "the copy on worker "+child.Name+", which is back in touch, ends: "+why)
			rp.endOriginal(p)
			rp.changed(now, p, fx)
		}
	}
}

// maxFrozen is how much of a worker's reason for being held is kept, in bytes.
const maxFrozen = 200

// maxFacts is how much a worker may say of itself, in bytes of its record, beside the details of its devices, of which each is bounded.
const maxFacts = 256 << 10

// countable drops what no ingress can have counted, and what is about services that are not known here: they would go up to the root.
func (o *overlay) countable(list []wire.IngressUse) []wire.IngressUse {
	known := map[skerry.AppKey]map[string]bool{}
	services := func(app skerry.AppKey) map[string]bool {
		if known[app] != nil {
			return known[app]
		}
		all := map[string]bool{}
		for _, p := range o.byApp[app] {
			all[p.A.Service.Service] = true
		}
		if n := o.network(app); n != nil {
			for i := range n.Services {
				if k := n.Real(&n.Services[i]); k.App == app {
					all[k.Service] = true
				}
			}
		}
		if a := o.localApp(app); a != nil {
			for i := range a.Manifest.Spec.Services {
				all[a.Manifest.Spec.Services[i].Name] = true
			}
		}
		known[app] = all
		return all
	}
	list = list[:min(len(list), wire.MaxIngressUses)]
	return slices.DeleteFunc(list, func(u wire.IngressUse) bool { return !u.Valid() || !services(u.Service.App)[u.Service.Service] })
}

// urge tells a worker how near a limit something there is, if that changed by a step.
func (rp *reports) urge(now time.Time, w *worker, fx *wire.Effects) {
	k := rp.Children.Get(w.Name)
	if w.Carrier != "" || k == nil || !k.Connected || rp.opt.Pace != nil && rp.opt.Pace.Report > 0 {
		return // it does not adapt, or must not
	}
	if gain, changed := w.urgency.See(now, rp.margin(w)); changed {
		fx.Sends = append(fx.Sends, wire.Outgoing{To: w.Name,
			Msg: &wire.Report{Kind: wire.ReportUrgency, Payload: rp.codec.Marshal(&wire.Urgency{Gain: gain})}})
	}
}

// margin is how far the nearest limit of anything on a worker is.
func (rp *reports) margin(w *worker) moves.Margin {
	m := moves.NewMargin()
	if f := w.Facts; f != nil {
		m.Machine(&w.report.Used, &f.Capacity)
	}
	for _, id := range sortedIDs(rp.byWorker[w.Name]) {
		if p := rp.byWorker[w.Name][id]; p.qos != nil && !p.Removing && !p.ended() {
			m.Instance(&p.A, p.qos)
		}
	}
	return m
}

// maxMoves is on how many workers an instance that fails is tried before the failure goes up.
const maxMoves = 2

// upgraded tells the site how a worker's upgrade ended, once.
func (rp *reports) upgraded(now time.Time, w *worker, was *wire.WorkerFacts, fx *wire.Effects) {
	a := w.Facts.Agent
	if a == nil || was != nil && was.Agent != nil && *was.Agent == *a {
		return
	}
	switch a.Stage {
	case wire.AgentPassed:
		rp.siteEvent(fx, now, wire.EventNormal, "Upgraded", "worker "+w.Name+" went from "+a.From+" to "+a.To, w.Name)
	case wire.AgentFailed:
		rp.siteEvent(fx, now, wire.EventWarning, "UpgradeFailed", "worker "+w.Name+" keeps its program: "+a.Why, w.Name)
	}
}

// Sender implements loop.Sent.
func (m ChildUp) Sender() string { return m.Hello.Name }

// Sender implements loop.Sent.
func (m ChildFrame) Sender() string { return m.Name }
