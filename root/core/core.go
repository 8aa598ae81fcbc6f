// Package core is the root as a state machine: which applications there are, and which cluster holds each instance. It knows sites only in
// aggregate, and no worker.
//
//	what sites send, what people want ─► Step ─┐                  ┌─► writes, which the server persists first
//	                     what is due ─► Tick ─┴─► settle ─► Effects ─► messages to sites, then events
//	                                                 │            └─► Appraise, Score: the answers come by Step
//	    decide/apps: what should run ─► place: at which site ─► decide/members: what each site is given
//	 zones ─ networks ─ extents ─ relations     what sites may know of each other, and which of them has a name or a prefix
//	 suspects ─ tokens ─ presences              what counts against sites, what they were given, when they were away
//
// Each part has the parts that it asks, which are below it, and not the core. Core places instances, has them fail over, and decides
// between the parts.
//
// It is pure: it starts and opens nothing, and takes the time as an argument. Package root has the goroutines, the store and the links;
// Views has what it asks.
package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Core is the root as a state machine. Apps and Children are exported because its server looks into them
// (archtest TestServersReadParts), and because the simulator looks into them and damages them. Only messages change them in production.
type Core struct {
	opt       Options
	Apps      *apps.Controller
	Children  *members.Children
	codec     *wire.Codec
	reports   map[string]*siteReport
	fed       federation // the scheduler's view of reports
	tokens    *tokens
	rounds    uint64
	nets      *networks
	relations relations
	zones     *zones
	extents   *extents
	failover  failover
	suspects  *suspects
	away      presences
	labels    *labels
	upgrades  *upgrades
	doubts    map[skerry.InstanceID]time.Time // instances that their site said were gone before it had heard of their placement
	strangers *strangers
}

// siteReport is the newest aggregate of a site.
type siteReport struct {
	report  wire.ClusterReport
	at      time.Time
	since   time.Time // of the connection that it came on
	numbers members.Numbers
}

// New makes a core without state; Load adds the records of the store, and Start must follow.
func New(opt Options) *Core {
	if opt.LostAfter == 0 {
		opt.LostAfter = DefaultLostAfter
	}
	codec := wire.New()
	opt.Sets.Common = commonIn(codec)
	c := &Core{opt: opt, Apps: apps.New(opt.Seed, "r"), Children: members.NewChildren(opt.Incarnation, opt.Sets),
		codec: codec, reports: map[string]*siteReport{}, fed: newFederation(), tokens: &tokens{epoch: opt.Epoch},
		relations: newRelations(), failover: newFailover(), away: newPresences(), doubts: map[skerry.InstanceID]time.Time{}}
	c.nets, c.extents = newNetworks(c.Apps, c.Children), newExtents(c.codec)
	c.strangers = newStrangers(c.Apps, c.Children)
	c.zones = newZones(c.Apps, c.nets)
	c.suspects = newSuspects(c.Apps, c.Children, &c.fed, c.tokens)
	c.labels = newLabels(c.Apps, c.Children, c.fed.Federation)
	c.upgrades = newUpgrades(c.Children, c.labels, func(site string) (*wire.ClusterReport, time.Time) {
		if r := c.reports[site]; r != nil {
			return &r.report, r.since
		}
		return nil, time.Time{}
	})
	c.relations.gateways = newGateways(opt.Seed[:])
	c.fed.SetWays(c.relations.gateways.decide)
	return c
}

// Decode gives Load in two steps, as loop.Decode describes them.
func Decode(c *Core) func(key string, value []byte) (take func() error) {
	return func(key string, value []byte) func() error {
		if take := c.Apps.DecodeInstance(key, value); take != nil {
			return take
		}
		return func() error { return c.Load(key, value) }
	}
}

// Load takes one record of the store.
func (c *Core) Load(key string, value []byte) error {
	if key == keySeq {
		return c.tokens.load(value)
	}
	if key == keyZones {
		return c.zones.load(value)
	}
	if key == keyExtents {
		return c.extents.load(value)
	}
	if site, ok := strings.CutPrefix(key, prefixTrust); ok {
		return c.suspects.load(site, value)
	}
	if site, ok := strings.CutPrefix(key, prefixCordon); ok {
		return c.suspects.cordons.load(site, value)
	}
	if site, ok := strings.CutPrefix(key, prefixLabels); ok {
		return c.labels.load(site, value)
	}
	if name, ok := strings.CutPrefix(key, prefixUpgrade); ok {
		return c.upgrades.load(name, value)
	}
	if site, ok := strings.CutPrefix(key, prefixAway); ok {
		return c.away.load(site, value)
	}
	if key == keyAlive {
		return c.away.alive.UnmarshalText(value)
	}
	if c.Children.Load(key, value) {
		return nil
	}
	_, err := c.Apps.Load(key, value)
	return err
}

// Start ends loading. It gives events about what could not be read.
func (c *Core) Start(now time.Time) wire.Effects {
	var fx wire.Effects
	for _, name := range c.Children.Finish() {
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "DamagedRecords",
			Text: "the set of cluster " + name + " is resynchronised", Cluster: skerry.ClusterName(name)})
	}
	for _, name := range c.Children.Names() {
		c.fed.SetConnected(name, false)
		c.suspects.rankSite(name)
		c.labels.apply(name)
	}
	c.away.start(now)
	c.suspects.due = now.Add(trustEvery)
	c.suspects.expectStart(now.Add(patience))
	c.Apps.Start(now)
	c.Apps.ReviewClaims(func(spec.VolumeClaim) bool { return false }, &fx)
	c.Apps.SetTargets(c.Children.Names())
	c.nets.load()
	c.loadRelations()
	loadGateways(c)
	c.loadFailover(now)
	c.reviewSets()
	c.upgrades.start(now)
	c.reviewClaims()
	c.reviewFailover(now, &fx)
	c.settle(now, &fx) // with what was in touch when the root ended: sites come back in a moment, and updates go on
	for _, name := range c.Children.Names() {
		c.outOfTouch(now, name, &fx)
	}
	return fx
}

// Messages from links. ChildUp's result is a Welcome with the sets and events filled in.
type (
	ChildUp    struct{ Hello *wire.Hello }
	ChildDown  struct{ Name string }
	ChildFrame struct {
		Name string
		Msg  wire.Message
	}
)

// RemoveCluster forgets a cluster that is not connected; its instances are placed elsewhere.
type RemoveCluster struct{ Name string }

// Step takes a message and gives its effects.
func (c *Core) Step(now time.Time, msg any) wire.Effects {
	var fx wire.Effects
	switch m := msg.(type) {
	case ChildUp:
		var heard time.Time
		if k := c.Children.Get(m.Hello.Name); k != nil {
			heard = k.Heard
		}
		c.away.arrivals(now, m.Hello.Name, heard, &fx)
		c.strangers.forget(m.Hello.Name)
		c.away.lives(now, &fx)
		sets, events := c.Children.Up(now, m.Hello)
		fx.Result = &wire.Welcome{Sets: sets, Events: events, Incarnation: c.opt.Incarnation}
		c.fed.SetConnected(m.Hello.Name, true)
		c.suspects.rankSite(m.Hello.Name)
		if c.failover.lost[m.Hello.Name] {
			delete(c.failover.lost, m.Hello.Name)
			c.relations.dirty = true
		}
		c.Apps.SetTargets(c.Children.Names())
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventNormal, Reason: "ClusterConnected",
			Text: "cluster " + m.Hello.Name + " is connected", Cluster: skerry.ClusterName(m.Hello.Name)})
		c.Apps.RetryNow()
	case ChildDown:
		if k := c.Children.Get(m.Name); k != nil && k.Connected {
			c.away.left(now, m.Name, k.Since, k.Heard, &fx)
		}
		c.Children.Down(now, m.Name)
		c.fed.SetConnected(m.Name, false)
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "ClusterDisconnected",
			Text: "cluster " + m.Name + " is not connected; its instances run on", Cluster: skerry.ClusterName(m.Name)})
		c.outOfTouch(now, m.Name, &fx)
	case ChildFrame:
		c.frame(now, m, &fx)
	case RemoveCluster:
		if c.removeCluster(now, m.Name, &fx); fx.Err == nil {
			c.reviewFailover(now, &fx)
		}
	case TrustCluster:
		c.suspects.trustCluster(now, m, &fx)
	case apps.DecideOrphan:
		decideOrphan(c, now, m, &fx)
	case MoveToCluster:
		c.moveToCluster(now, m, &fx)
	case Appraised:
		c.relations.gateways.link(m.Name, m.RTT)
		c.suspects.appraised(now, m, &fx)
	case Scored:
		scored(c, m)
	case SetPlugins:
		setPlugins(c, m)
	default:
		if cordonMessage(c, now, msg, &fx) || c.upgrades.message(now, msg, &fx) {
			break
		}
		if c.labels.message(msg, &fx) {
			if fx.Err == nil {
				c.reviewFailover(now, &fx) // a group has other sites, perhaps
			}
			break
		}
		more, ok := c.Apps.Handle(now, msg)
		if !ok {
			panic(fmt.Sprintf("root core does not know message %T", msg))
		}
		fx = more
	}
	c.settle(now, &fx)
	return fx
}

// Tick does what is due.
func (c *Core) Tick(now time.Time) wire.Effects {
	var fx wire.Effects
	c.loseSites(now, &fx)
	c.settleDoubts(now, &fx)
	c.suspects.lateStarts(now, &fx)
	c.suspects.reviewTrust(now, &fx)
	c.settle(now, &fx)
	return fx
}

// NextWake gives the time at which Tick has something to do, or the zero time.
func (c *Core) NextWake() time.Time {
	next := c.Apps.NextWake()
	consider := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	consider(c.Children.Due())
	consider(c.fed.questions.Due())
	for id, at := range c.doubts {
		if i := c.Apps.Instance(id); i == nil || i.Holder == "" || c.Children.Get(i.Holder) != nil && c.Children.Get(i.Holder).Settled() {
			consider(at.Add(doubtFor))
		}
	}
	consider(c.nextRescue())
	consider(c.suspects.slowDue)
	consider(c.suspects.cordons.due)
	consider(c.upgrades.due)
	if len(c.suspects.books) > 0 {
		consider(c.suspects.due)
	}
	return next
}

func (c *Core) frame(now time.Time, m ChildFrame, fx *wire.Effects) {
	d := c.Children.Frame(now, m.Name, m.Msg, fx)
	child := c.Children.Get(m.Name)
	if child == nil {
		return
	}
	c.away.lives(now, fx)
	for _, key := range d.Changed { // what they say about instances comes first
		if value, orphaned, have := child.Observed.Get(key); have && !orphaned && strings.HasPrefix(key, "amend/") {
			c.amendment(now, m.Name, key, value, fx)
		}
	}
	for _, key := range d.Changed {
		value, orphaned, have := child.Observed.Get(key)
		if c.relations.item(m.Name, key, true) || gatewayItem(c, m.Name, key, value, have && !orphaned) {
			continue
		}
		id, ok := strings.CutPrefix(key, "inst/")
		if !ok || !have || orphaned {
			continue
		}
		var o wire.Observation
		if err := c.codec.Unmarshal(value, &o); err != nil || string(o.ID) != id {
			c.Children.Ignored.Count(members.IgnoredUnreadable)
			continue // a hostile or broken child harms only itself
		}
		o.Bound()
		delete(c.doubts, o.ID)
		o.Address, o.Ports = "", hideAddresses(o.Ports)
		if c.Apps.Instance(o.ID) == nil {
			c.Children.Ignored.Count(members.IgnoredUnknown)
			c.strangers.runs(now, m.Name, &o, fx)
			continue
		}
		c.suspects.unknownToken(now, m.Name, &o, fx)
		for n := range o.Why {
			o.Why[n].Text = m.Name + ": " + o.Why[n].Text
		}
		if c.copyItem(now, m.Name, o, fx) {
			continue
		}
		if i := c.Apps.Instance(o.ID); i.Holder != m.Name || o.Fence.RootEpoch < i.Fence.RootEpoch {
			c.Children.Ignored.Count(members.IgnoredToken)
		}
		if i := c.Apps.Instance(o.ID); i.Holder == m.Name && o.Fence.RootEpoch == i.Fence.RootEpoch {
			c.suspects.offered(now, m.Name, &o)
		}
		if c.Apps.Observe(now, m.Name, o, fx) {
			c.Children.Delete(m.Name, key)
		}
		if i := c.Apps.Instance(o.ID); i != nil && i.Holder == m.Name {
			c.suspects.compareStart(now, i, fx)
		}
		if i := c.Apps.Instance(o.ID); o.Phase == skerry.PhaseCutOff && i != nil && i.Holder == m.Name && !i.Stopping &&
			o.Fence.RootEpoch == i.Fence.RootEpoch {
			c.resume(now, i, fx)
		}
	}
	for _, key := range d.Deleted {
		if k, ok := wire.ParseAmendmentKey(key); ok {
			c.Children.Delete(m.Name, wire.AmendedKey(k)) // it has heard the answer
		}
		if c.relations.item(m.Name, key, false) || gatewayItem(c, m.Name, key, nil, false) {
			continue
		}
		id, ok := strings.CutPrefix(key, "inst/")
		if !ok {
			continue
		}
		if child.Desired.Has(key) && !child.Desired.Confirmed(key) {
			// This is about an earlier placement: the site has not heard of the present one. Taken for its loss, each new
			// placement would be undone by the end of the one before.
			c.doubts[skerry.InstanceID(id)] = now
			continue
		}
		c.gone(now, m.Name, skerry.InstanceID(id), fx)
	}
	for _, e := range d.Events {
		c.childEvent(now, m.Name, e, fx)
	}
	if d.Report != nil {
		c.Children.Ignored.Count(c.report(now, m.Name, d.Report, fx))
	}
	if child.Synced && !c.relations.whole[m.Name] {
		c.relations.whole[m.Name], c.relations.dirty = true, true
	}
	if d.Settled && len(c.failover.unsure) > 0 {
		c.confirm(child, fx)
	}
	// A report brings nothing new about instances, but a site that has nothing to tell sends no more than that.
	if (d.Settled || d.Report != nil) && child.Settled() {
		if !child.Reviewed {
			child.Reviewed = true
			c.returned(now, child, fx)
			c.review(now, child, fx)
		}
		c.decideOrphans(child)
		for _, i := range c.Apps.Stopping() {
			if _, orphaned, has := child.Observed.Get(wire.AssignmentKey(i.ID)); i.Holder == m.Name && (!has || orphaned) {
				c.gone(now, m.Name, i.ID, fx)
			}
		}
	}
}

// hideAddresses keeps what the root must not know out of it, even from a cluster that tells too much.
func hideAddresses(ports []wire.PortBinding) []wire.PortBinding {
	out := slices.Clone(ports)
	for i := range out {
		out[i].Address = ""
	}
	return out
}

// doubtFor is how long a site has to tell of an instance that it said was gone before it had heard of its placement.
const doubtFor = 5 * time.Second

// settleDoubts takes instances for lost that their sites still do not speak of.
func (c *Core) settleDoubts(now time.Time, fx *wire.Effects) {
	for _, id := range slices.Sorted(maps.Keys(c.doubts)) {
		if now.Sub(c.doubts[id]) < doubtFor {
			continue
		}
		i := c.Apps.Instance(id)
		if i == nil || i.Holder == "" {
			delete(c.doubts, id)
			continue
		}
		child := c.Children.Get(i.Holder)
		if child == nil || !child.Settled() {
			continue // it will be reviewed once it is back
		}
		delete(c.doubts, id)
		if _, orphaned, has := child.Observed.Get(wire.AssignmentKey(id)); !has || orphaned {
			c.gone(now, i.Holder, id, fx)
		}
	}
}

func (c *Core) gone(now time.Time, holder string, id skerry.InstanceID, fx *wire.Effects) {
	if i := c.Apps.Instance(id); i != nil {
		c.nets.dirty[i.Service.App] = true
	}
	c.Children.Delete(holder, wire.AssignmentKey(id))
	if i := c.Apps.Instance(id); i != nil && i.Holder != holder {
		switch {
		case i.Next != nil && i.Next.Holder == holder:
			c.abandon(now, i, "its site no longer has it", fx)
		case i.Left != nil && i.Left.Holder == holder:
			c.Apps.LetGo(now, i, "it is not there any more", fx)
			c.track(i)
		}
		return
	}
	c.Apps.Gone(now, holder, id, fx)
}

// review looks, once a site has confirmed all and told all after it connected, for instances that it should have or be
// rid of.
func (c *Core) review(now time.Time, child *members.Child, fx *wire.Effects) {
	for _, i := range c.Apps.HeldBy(child.Name) {
		key := wire.AssignmentKey(i.ID)
		_, orphaned, has := child.Observed.Get(key)
		if has && !orphaned {
			continue
		}
		if !child.Desired.Has(key) {
			c.gone(now, child.Name, i.ID, fx)
		}
	}
	// What the child reports and nobody wants is ended; orphans of an earlier incarnation are ended only when the
	// application that they belong to is known to be gone, which after a restore it never is by absence alone.
	for key := range child.Observed.All() {
		id, ok := strings.CutPrefix(key, "inst/")
		if !ok || child.Desired.Has(key) {
			continue
		}
		if i := c.Apps.Instance(skerry.InstanceID(id)); i != nil && i.Holder == child.Name && !i.Stopping {
			c.assign(now, i, fx)
		}
	}
}

// reviewSets takes away, after a start, what sites were given that this store does not know or knows elsewhere: a crash in the middle of
// a commit kept that it ended or moved, and not that its site is told so.
func (c *Core) reviewSets() {
	for _, name := range c.Children.Names() {
		for _, key := range c.Children.Get(name).Desired.Keys() {
			id, ok := strings.CutPrefix(key, "inst/")
			if i := c.Apps.Instance(skerry.InstanceID(id)); ok && (i == nil || !slices.Contains(holders(i), name)) {
				c.Children.Delete(name, key)
			}
		}
	}
}

func (c *Core) childEvent(now time.Time, name string, data []byte, fx *wire.Effects) {
	var e wire.Event
	if c.codec.Unmarshal(data, &e) != nil {
		c.Children.Ignored.Count(members.IgnoredUnreadable)
		return
	}
	e.Cluster, e.Worker, e.Seq = skerry.ClusterName(name), "", 0
	e.Bound()
	if a := c.Apps.App(e.App); a != nil && concerns(c, now, name, e.App) {
		e.Org = a.Org
		fx.Events = append(fx.Events, e)
	}
}

// outOfTouch marks the instances at a site that is not connected.
func (c *Core) outOfTouch(now time.Time, site string, fx *wire.Effects) {
	for _, i := range c.Apps.HeldBy(site) {
		c.Apps.OutOfTouch(now, i, "cluster "+site+" is not connected", fx)
	}
}

func (c *Core) removeCluster(now time.Time, name string, fx *wire.Effects) {
	k := c.Children.Get(name)
	if k == nil {
		fx.Err = noCluster(name)
		return
	}
	if k.Connected {
		fx.Err = skerry.Errorf(skerry.CodeConflict, "cluster %s is connected",
			name).WithHint("stop it first; its services are then placed elsewhere")
		return
	}
	for id, at := range maps.Clone(c.failover.next) {
		if at == name {
			c.abandon(now, c.Apps.Instance(id), "its site was removed", fx)
		}
	}
	for id, at := range maps.Clone(c.failover.left) {
		if i := c.Apps.Instance(id); at == name && i != nil {
			i.Left = nil // it has no way back
			c.track(i)
		}
	}
	for _, i := range c.Apps.HeldBy(name) {
		c.Apps.Lost(now, i.ID, "cluster "+name+" was removed", fx)
	}
	c.Apps.ForgetClaims(name, fx)
	delete(c.failover.lost, name)
	c.nets.lookAgain(name)
	c.Children.Remove(name, fx)
	delete(c.relations.given, name)
	delete(c.relations.told, name)
	delete(c.relations.refused, name)
	delete(c.relations.whole, name)
	c.zones.drop(name, fx)
	c.extents.drop(name, fx)
	c.relations.gateways.remove(name)
	c.relations.dirty = true
	delete(c.reports, name)
	c.strangers.forget(name)
	c.suspects.cordons.forget(name, fx)
	c.labels.forget(name, fx)
	c.upgrades.forget(now, name, fx)
	c.suspects.forgetBook(name, fx)
	c.away.forget(name, fx)
	c.Apps.Arrivals(now, name, nil)
	c.Apps.Waits(now, name, nil)
	c.fed.Remove(name)
	c.Apps.SetTargets(c.Children.Names())
}

// settle brings everything in line: what should be, who gets it, what must be told.
func (c *Core) settle(now time.Time, fx *wire.Effects) {
	for round := 0; round < 4; round++ {
		fx.Merge(c.Apps.Reconcile(now))
		c.promote(now, fx)
		c.rescue(now, fx)
		drainClusters(c, now, fx)
		seen := map[skerry.AppKey]*around{}
		for _, i := range c.Apps.Unplaced(now) {
			c.place(now, i, seen, fx)
		}
		if !c.Apps.Dirty() {
			break
		}
	}
	c.fed.questions.Keep(func(id skerry.InstanceID) bool {
		i := c.Apps.Instance(id)
		return i != nil && i.Live() && (i.Holder == "" || c.failover.stranded[id] != nil)
	})
	for _, i := range c.Apps.Stopping() {
		c.Children.Delete(i.Holder, wire.AssignmentKey(i.ID))
	}
	refreshChanged(c, now, fx)
	c.publishClaims()
	publishGateways(c, now, fx)
	c.publishNetworks(now, fx)
	c.publishRelations(now, fx)
	c.upgrades.advance(now, fx)
	c.Children.Flush(now, fx)
}
