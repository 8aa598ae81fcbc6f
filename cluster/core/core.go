package core

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/cluster/certs"
	"skerry.dev/skerry/cluster/detect"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/cluster/placing"
	"skerry.dev/skerry/cluster/trust"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/cluster/volumes"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/questions"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Core is a cluster orchestrator as a state machine. Apps, Children and Up are exported because its server looks into them
// (archtest TestServersReadParts), and because the simulator looks into them and damages them. Only messages change them in production.
type Core struct {
	*lifecycle
	*overlay
	*views
	*planner
	opt       Options
	find      *finder
	queue     *queue
	drainer   *drainer
	balancer  *balancer
	judge     *judge
	intake    *intake
	guard     *guard
	rebuilder *rebuilder
	reports   *reports
	snapshots *snapshots
	transfers *transfers
	amender   *amender
}

// New makes a core without state; Load adds the records of the store, and Start must follow.
func New(opt Options) *Core {
	if opt.LostAfter == 0 {
		opt.LostAfter = 3 * time.Second
	}
	if opt.StartGrace == 0 {
		opt.StartGrace = 30 * time.Second
	}
	if opt.ReportEvery == 0 {
		opt.ReportEvery = 10 * time.Second
	}
	if opt.Policies == nil {
		opt.Policies = sched.Policies()
	}
	life := opt.Incarnation + skerry.Incarnation(fmt.Sprintf(".%x", opt.Seed[:6]))
	tells := herald{ledger: newLedger(opt.Term), name: opt.Name, workers: roster{}, codec: wire.New(),
		Apps: apps.New(opt.Seed, "c"), Up: members.NewParent(life, opt.Sets)}
	holds := &books{herald: tells, marks: newMarks(), Children: members.NewChildren(opt.Incarnation, opt.below()), site: sched.NewSite(),
		held: map[string]bool{}, keepCounts: map[string]keeps{}, far: network.NewFar(), releases: moves.NewReleases(),
		farewells: moves.NewFarewells(), hearing: moves.NewHearing(), neighbours: moves.NewNeighbours()}
	core := &Core{opt: opt}
	core.overlay = newOverlay(holds, &core.opt)
	core.lifecycle = &lifecycle{sender: &sender{books: holds, secret: &core.overlayNet.Secret, life: opt.Incarnation,
		counted: map[string]bool{}}, then: sequels{core},
		questions: questions.New(opt.Policies),
		starts:    placing.NewStarts(), dependents: autonomy.NewDependents(fates{&holds.ledger}), scaling: autonomy.NewScaling()}
	core.find = &finder{books: holds, questions: core.questions}
	core.drainer = &drainer{core.lifecycle, core.find, moves.NewDrains()}
	core.balancer = &balancer{core.lifecycle, core.find, moves.NewBalance(opt.Rebalance), core.drainer.drains}
	core.judge = &judge{core.lifecycle, core.find, core.drainer.drains}
	core.intake = &intake{lifecycle: core.lifecycle, find: core.find}
	core.snapshots = &snapshots{core.lifecycle}
	core.rebuilder = &rebuilder{core.lifecycle, core.intake, autonomy.NewRebuild(opt.Rebuild, opt.StartGrace), &core.opt,
		map[string]leftovers{}}
	core.amender = &amender{core.lifecycle, core.intake, core.overlay, autonomy.NewOverrides(loans{&holds.herald}, Self, core.Apps)}
	core.views = &views{core.overlay, core.drainer, core.amender.overrides, core.rebuilder.rebuild, &grants{}, nil}
	core.upgrader = &upgrader{books: holds, grants: core.grants}
	core.planner = &planner{core.find}
	core.transfers = &transfers{core.lifecycle, core.find}
	core.guard = &guard{core.lifecycle, core.find, core.peers}
	core.reports = &reports{core.lifecycle, core.overlay, core.find, core.judge, core.guard, core.rebuilder, &core.opt}
	core.queue = &queue{lifecycle: core.lifecycle, find: core.find, rebuild: core.rebuilder.rebuild}
	holds.admission, holds.uplink = &core.opt.Admission, uplink.New(core.Up, opt.ReportEvery)
	core.detect = detect.New(detect.Options{LostAfter: opt.LostAfter, StartGrace: opt.StartGrace}, lookout{core.overlay})
	core.volumes = volumes.New(disks{holds, core.lifecycle.sender})
	core.trust = trust.New(witnesses{core.overlay})
	return core
}

func newOverlay(b *books, opt *Options) *overlay {
	dir := &directories{books: b, opt: opt, overlayNet: newOverlayNet()}
	a := &abroad{directories: dir, paths: network.NewPaths()}
	a.remote = newRemote(home{a})
	o := &overlay{abroad: a, peers: network.NewPeers(measuring{b}, opt.Secret[:]), endpoints: network.NewEndpoints()}
	o.ingress = network.NewIngress(ingressView{o})
	o.certs.Certs = certs.New(opt.Admission.Certificates)
	return o
}

// sequels is where what becomes of placements leads to.
type sequels struct{ c *Core }

func (s sequels) runs(now time.Time, p *placement, fx *wire.Effects) {
	s.c.guard.compareStart(now, p, fx)
}

func (s sequels) still(now time.Time, id skerry.InstanceID, fx *wire.Effects) {
	s.c.reconcileDesired(now, []string{wire.AssignmentKey(id)}, nil, fx)
}

// Load takes one record of the store.
func (c *Core) Load(key string, value []byte) error {
	var err error
	switch {
	case key == keySeq:
		err = c.loadSeq(value)
	case strings.HasPrefix(key, prefixPlace):
		p := new(placement)
		if err = json.Unmarshal(value, p); err == nil {
			c.addPlacement(p)
		}
	case strings.HasPrefix(key, prefixGroup):
		g := new(group)
		if err = json.Unmarshal(value, g); err == nil {
			c.enterGroup(g)
		}
	case strings.HasPrefix(key, prefixWorker):
		r := workerRecord{worker: new(worker)}
		if err = json.Unmarshal(value, &r); err == nil {
			r.ports, r.untold = map[string]int{}, r.Facts != nil && len(r.Facts.Attachable) > 0
			c.addWorker(r.worker, r.Record)
			c.countsOfBefore(r.Name, r.Keeps)
			if r.Drain != nil {
				c.drainer.drains.Begin(r.Name, r.Drain)
			}
		}
	case strings.HasPrefix(key, prefixKeeps):
		err = c.loadCounts(strings.TrimPrefix(key, prefixKeeps), value)
	case strings.HasPrefix(key, volumes.SnapshotPrefix):
		err = c.volumes.LoadSnapshot(value)
	case strings.HasPrefix(key, volumes.Prefix):
		err = c.volumes.Load(value)
	case strings.HasPrefix(key, moves.Prefix):
		err = c.releases.Load(key, value)
	case key == keySiteUpgrade:
		err = c.upgrader.load(value)
	case key == keyGrants:
		err = c.grants.load(value)
	case key == keyOverlayNet:
		err = json.Unmarshal(value, &c.overlayNet)
	case key == network.KeyIngress:
		err = c.ingress.Load(value)
	case key == certs.KeyAccount:
		err = c.loadAccount(value)
	case strings.HasPrefix(key, certs.Prefix):
		err = c.certs.Load(value)
	case strings.HasPrefix(key, autonomy.Prefix):
		err = c.amender.overrides.Load(value)
	case key == network.KeyPeers:
		err = c.peers.Load(value)
	case c.Children.Load(key, value), c.Up.Load(key, value):
	default:
		_, err = c.Apps.Load(key, value)
	}
	if err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	return nil
}

// Start ends loading. Workers count as just lost from sight, and each has StartGrace to come back: after a power cut a
// site's machines start at their own pace, and what runs on them must not be placed anew for that.
func (c *Core) Start(now time.Time) wire.Effects {
	c.find.started = now
	c.uplink.Start(now)
	c.rebuilder.rebuild.Start(now)
	c.detect.Start(now)
	var fx wire.Effects
	for _, name := range c.Children.Finish() {
		c.siteEvent(&fx, now, wire.EventWarning, "DamagedRecords", "the set of worker "+name+" is resynchronised", name)
	}
	if err := c.Up.Finish(); err != nil {
		c.siteEvent(&fx, now, wire.EventWarning, "DamagedRecords", "what the root wants here is fetched again: "+err.Error(), "")
	}
	for name := range c.workers {
		if k := c.Children.Get(name); k != nil && k.Since.IsZero() {
			k.Since = now
		}
	}
	c.ensureSecret(&fx)
	c.loadOverlayNet()
	c.turnTags(now)
	c.loadWants()
	c.startIngress(now, &fx)
	c.startCerts(now, &fx)
	for _, name := range slices.Sorted(maps.Keys(c.workers)) {
		c.seeWorker(c.workers[name])
	}
	c.loadLeaving(&fx)
	for _, id := range sortedIDs(c.places) {
		inst := c.places[id]
		inst.SLA.Start(now)
		c.reserve(inst, 1)
		if q := inst.A.Successor; q != nil {
			c.ask(inst.A.ID, &answer{SuccessorAnswer: wire.SuccessorAnswer{Revision: q.Revision, Why: "its site has just started"}})
		}
		c.above(inst.A.Fence.Sequence) // a crash may have left half of the commit that gave it
		if inst.Next != nil {
			if inst.Next.Since.After(now) {
				inst.Next.Since = now // the clock was set back
			}
			c.reserveOn(inst.Next.Worker, inst, 1)
		}
		if o := inst.Original; o != nil {
			c.leave(inst, o.Worker)
		}
		c.linked[inst.A.Service.App] = true
		if inst.Worker == "" && !inst.Removing && !inst.Refused && inst.Obs.Phase != skerry.PhaseCutOff {
			c.wait(inst.A.ID, true)
		}
		c.seeStart(now, inst, &fx)
		c.tellUp(now, inst, &fx)
	}
	for _, id := range sortedIDs(c.groups) {
		if g := c.groups[id]; g != nil {
			c.tellGroup(now, g, &fx)
		}
	}
	c.trust.Start(now)
	c.Apps.Start(now)
	c.Apps.ReviewClaims(func(v spec.VolumeClaim) bool { return c.notLocal(v) }, &fx)
	c.Apps.SetTargets([]string{Self})
	c.amender.mend(now, &fx)
	c.intake.reviewLocal(now, &fx)
	c.reviewDesired(now, &fx)
	c.reviewChildren()
	c.reviewClaims()
	c.snapshots.reviewSnapshots(now, &fx)
	c.peers.Touch(now)
	c.balancer.rebalance(now, &fx) // from then on each minute
	c.retry()
	c.settle(now, &fx, nil)
	return fx
}

// Messages from the link to the root.
type (
	ParentUp struct{ Welcome *wire.Welcome }
	// ParentDown tells that the root is no longer connected, and when it was heard last (the zero time: now).
	ParentDown  struct{ Heard time.Time }
	ParentFrame struct{ Msg wire.Message }
)

// Step takes a message and gives its effects.
func (c *Core) Step(now time.Time, msg any) wire.Effects {
	var fx wire.Effects
	var replies []wire.Message
	switch m := msg.(type) {
	case ChildUp:
		c.childUp(now, m.Hello, &fx)
	case ChildDown:
		c.Children.Down(now, m.Name)
		if w := c.workers[m.Name]; w != nil {
			c.seeWorker(w)
			if !w.sight.Lost() {
				c.guard.suspect(now, w, &fx)
			}
		}
		c.siteEvent(&fx, now, wire.EventWarning, "WorkerDisconnected", "worker "+m.Name+" is not connected", m.Name)
		c.uplink.Touch()
	case ChildFrame:
		c.reports.childFrame(now, m, &fx)
	case ParentUp:
		c.Up.Up(now, m.Welcome)
		c.amender.tellAmendments(now, &fx)
		c.uplink.Touch()
	case ParentDown:
		c.uplink.Lost(now, m.Heard)
		c.Up.Down(now)
		c.Apps.Freeze(false)
	case ParentFrame:
		changed, deleted, r := c.Up.Frame(now, m.Msg)
		replies = r
		c.reconcileDesired(now, changed, deleted, &fx)
	case RemoveWorker:
		c.removeWorker(now, m.Name, &fx)
	case CordonWorker:
		c.cordonWorker(now, m, &fx)
	case DrainWorker, Rebalance, MigrateInstance:
		c.moveAsked(now, m, &fx)
	case UpgradeWorker:
		c.upgrader.upgradeWorker(now, m, &fx)
	case SetGrant:
		if c.grants.set(now, m, &fx) {
			c.uplink.Touch()
		}
	case apps.DeleteInstance:
		c.intake.deleteInstance(now, m, &fx)
	case Quiet:
		c.guard.quiet(now, m, &fx)
	case Alive:
		c.guard.alive(m)
	case Witnessed:
		c.guard.witnessed(m)
	case Measured:
		c.queue.measured(now, m)
	case Scored:
		c.questions.Scored(m)
	case Appraised:
		c.guard.appraised(now, m, &fx)
	case RelayUp:
		c.relayUp(m)
	case GatewayHeard:
		c.gatewayHeard(m)
	case SetPlugins:
		c.queue.setPlugins(m)
	case ChallengeSet:
		c.challengeSet(m)
	case ChallengeLate:
		c.challengeLate(m)
	case CertificateDone:
		c.certificateDone(now, m, &fx)
	case apps.DeleteVolume:
		c.snapshots.deleteVolume(now, m, &fx)
	case apps.DecideOrphan:
		c.rebuilder.decideOrphan(now, m, &fx)
	default:
		if c.snapshots.snapshotMessage(now, msg, &fx) {
			break
		}
		if k, ok := autonomy.Target(msg); ok && c.amender.ofRoot(k) {
			if c.amender.amend(now, k, msg, &fx); fx.Err != nil {
				return fx
			}
			break
		}
		if fx.Err = cmp.Or(c.takenAbove(msg), c.noCertificates(msg), elsewhere(msg, c.name)); fx.Err != nil {
			return fx
		}
		more, ok := c.Apps.Handle(now, msg)
		if !ok {
			panic(fmt.Sprintf("cluster core does not know message %T", msg))
		}
		fx = more
	}
	c.settle(now, &fx, replies)
	return fx
}

// Tick does what is due.
func (c *Core) Tick(now time.Time) wire.Effects {
	var fx wire.Effects
	for _, name := range c.detect.Overdue(now) {
		c.guard.loseWorker(now, c.workers[name], &fx)
	}
	c.guard.askWitnesses(now, &fx)
	c.amender.endDisconnected(now, &fx)
	c.amender.autoscale(now, &fx)
	c.rebuilder.endRebuild(now, &fx)
	c.queue.expire(now, &fx)
	c.judge.judgeWatched(now, &fx)
	c.balancer.rebalance(now, &fx)
	if record := c.peers.Review(now); record != nil {
		fx.Put(network.KeyPeers, record)
	}
	c.guard.lateStarts(now, &fx)
	c.snapshots.takeScheduled(now, &fx)
	c.guard.reviewTrust(now, &fx)
	c.turnTags(now)
	c.settle(now, &fx, nil)
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
	consider(c.Up.Due())
	consider(c.queue.nextExpiry())
	consider(c.intake.nextLook())
	consider(c.peers.Due())
	away, heard := c.uplink.Away()
	consider(c.dependents.Due(away, heard))
	consider(c.scaling.Due(away))
	consider(c.rebuilder.rebuild.Due(c.rebuilder.rootAway()))
	consider(c.drainer.drains.Due())
	consider(c.starts.Due())
	consider(c.farewells.Due())
	consider(c.hearing.Due())
	consider(c.remote.partings.Due())
	consider(c.trust.Due())
	consider(c.balancer.balance.Due())
	consider(c.volumes.NextLook())
	if due, rests := c.remote.sites.Due(); rests {
		consider(due)
	}
	consider(c.interests.Due())
	if c.opt.Trusted {
		consider(time.Unix((c.overlayNet.turn+1)*int64(tagTurn/time.Second), 0))
	}
	consider(c.certs.Due())
	consider(c.upgrader.due)
	consider(c.detect.Due())
	consider(c.uplink.Due())
	return next
}

// settle brings everything in line: what should be, who gets it, what must be told.
func (c *Core) settle(now time.Time, fx *wire.Effects, replies []wire.Message) {
	c.let(now)
	// What one part decides may give another something to do; a bound keeps a mistake from spinning.
	for round := 0; round < 4; round++ {
		c.intake.settleApps(now, fx)
		c.reviewKept()
		if c.retries() || c.intake.goneDue(now) {
			for id := range c.stranded {
				if p := c.places[id]; p.room.IsZero() {
					p.again = time.Time{}
				}
			}
			c.intake.expandGroups(now, fx)
		}
		c.intake.exchangeGroups(now, fx)
		c.volumes.Reserve()
		c.drainer.drainWorkers(now, fx)
		c.intake.answerAgain(now, fx)
		c.queue.placeWaiting(now, fx)
		if !c.Apps.Dirty() && !c.grew {
			break
		}
	}
	for _, k := range c.Apps.Readdressed() {
		c.redirected(k)
	}
	for _, name := range slices.Sorted(maps.Keys(c.readmit)) {
		if w := c.workers[name]; w != nil {
			c.admit(now, w, fx)
		}
	}
	clear(c.readmit)
	c.settleIngress(now, fx)
	c.settleCerts(now, fx)
	for _, k := range slices.SortedFunc(maps.Keys(c.linked), skerry.AppKey.Compare) {
		c.publishEndpoints(k)
		c.publishNetwork(k)
		c.interests.TouchApp(k)
	}
	clear(c.linked)
	c.tellUnserved(now, fx)
	c.refillWants(now)
	c.publishRoutes()
	c.sayFarewells(now)
	c.confirmRoutes(c.heard(now))
	c.publishSite()
	c.remote.sites.Forget(now)
	c.serveRelay(fx)
	c.measureSites(fx)
	if c.remote.sites.Unsaved() || c.overlayNet.dirty {
		c.overlayNet.dirty = false
		c.saveOverlayNet(fx)
	}
	c.releaseClaims()
	c.snapshots.reportSchedules(c.opt.Standalone)
	c.upgrader.advance(now, fx)
	c.saveCounts(fx)
	c.written(fx)
	c.Children.Flush(now, fx)
	if c.uplink.Ready(now) {
		r := c.Aggregate()
		r.Certificates = c.certificateCounts(now)
		c.uplink.Number(now, &r)
		fx.Sends = append(fx.Sends, wire.Outgoing{Msg: &wire.Report{Kind: wire.ReportCluster, Payload: c.codec.Marshal(&r)}})
	}
	c.Up.Flush(now, fx, replies)
}

// Orphans lists what workers run and the store does not know.
func (c *Core) Orphans() (out []view.Orphan, err error) {
	for _, x := range c.rebuilder.orphans() {
		out = append(out, x.Orphan)
	}
	return out, nil
}

// reviewDesired looks at everything that the root wants here, as after a start.
func (c *Core) reviewDesired(now time.Time, fx *wire.Effects) {
	if c.Up.Desired.Incarnation() == "" {
		return // a set that was lost says nothing
	}
	var changed, deleted []string
	for key := range c.Up.Desired.All() {
		changed = append(changed, key)
	}
	for _, id := range sortedIDs(c.places) {
		p := c.places[id]
		if p.Origin == "root" && p.Group == "" && !c.rootWants(id) && !c.amender.overrides.Has(p.A.Service.App) {
			deleted = append(deleted, wire.AssignmentKey(id))
		}
	}
	for _, id := range sortedIDs(c.groups) {
		if c.groups[id].Origin == "root" && !c.rootWants(id) {
			deleted = append(deleted, wire.AssignmentKey(id))
		}
	}
	c.reconcileDesired(now, changed, deleted, fx)
}

// reconcileDesired takes changes of what the root wants here.
func (c *Core) reconcileDesired(now time.Time, changed, deleted []string, fx *wire.Effects) {
	for _, key := range changed { // what they say about assignments comes first
		if value, _, have := c.Up.Desired.Get(key); have && strings.HasPrefix(key, "amended/") {
			c.amender.amendedItem(now, key, value, fx)
		}
	}
	for _, key := range changed {
		id, ok := strings.CutPrefix(key, "inst/")
		value, _, have := c.Up.Desired.Get(key)
		if app, is := strings.CutPrefix(key, "net/"); is {
			c.relink(app)
		} else if _, is := spec.ParseVolumeKey(key); is {
			c.volumes.Told()
		} else if have && c.remoteItem(key, value, false) {
			continue
		}
		if !ok || !have {
			continue
		}
		var a spec.Assignment
		if err := c.codec.Unmarshal(value, &a); err != nil || string(a.ID) != id {
			c.Up.Ignored.Count(members.IgnoredUnreadable)
			c.siteEvent(fx, now, wire.EventWarning, "BadAssignment", "the root sent something for "+id+" that cannot be read", "")
			continue
		}
		if err := a.CheckNames(); err != nil {
			c.Up.Ignored.Count(members.IgnoredUnreadable)
			c.siteEvent(fx, now, wire.EventWarning, "BadAssignment", fmt.Sprintf("the root sent something for %.64q that is refused: %v", id, err),
				"")
			continue
		}
		c.amender.asked(now, &a, fx)
	}
	for _, key := range deleted {
		if id, ok := strings.CutPrefix(key, "inst/"); ok {
			if p := c.places[skerry.InstanceID(id)]; p != nil && p.Group == "" && c.amender.overrides.Has(p.A.Service.App) {
				continue
			}
			c.removeID(now, skerry.InstanceID(id), fx)
		} else if app, ok := strings.CutPrefix(key, "net/"); ok {
			c.relink(app)
		} else if _, ok := spec.ParseVolumeKey(key); ok {
			c.volumes.Touch()
		} else {
			c.withdrawn(now, key)
		}
	}
}

// moveAsked takes what moves instances because somebody wants that.
func (c *Core) moveAsked(now time.Time, msg any, fx *wire.Effects) {
	switch m := msg.(type) {
	case DrainWorker:
		c.drainer.drainWorker(now, m, fx)
	case Rebalance:
		c.balancer.askBalance(now, m, fx)
	case MigrateInstance:
		c.transfers.migrateInstance(now, m, fx)
	}
}

// Audit says what of the core's books does not balance, part by part. It costs as much as the site is large; tests call
// it after every step.
func (c *Core) Audit() []string {
	faults := slices.Concat(c.ledger.audit(c.workers), c.books.audit(), c.lifecycle.audit(), c.overlay.audit(), c.drainer.audit(),
		c.balancer.balance.Audit(), c.amender.overrides.Audit(), c.rebuilder.rebuild.Audit(), c.Apps.Audit())
	slices.Sort(faults)
	return faults
}

// Sender implements loop.Sent.
func (ParentUp) Sender() string { return "" }

// Sender implements loop.Sent.
func (ParentFrame) Sender() string { return "" }
