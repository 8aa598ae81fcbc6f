package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/fleet"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// maxMoves is on how many workers an instance that fails is tried before the failure goes up.
const maxMoves = 2

// reconcileDesired takes changes of what the root wants here.
func (c *Core) reconcileDesired(now time.Time, changed, deleted []string, fx *wire.Effects) {
	for _, key := range changed { // what they say about assignments comes first
		if value, _, have := c.Up.Desired.Get(key); have && strings.HasPrefix(key, "amended/") {
			c.amendedItem(now, key, value, fx)
		}
	}
	for _, key := range changed {
		id, ok := strings.CutPrefix(key, "inst/")
		value, _, have := c.Up.Desired.Get(key)
		if app, is := strings.CutPrefix(key, "net/"); is {
			c.relink(app)
		} else if _, is := spec.ParseVolumeKey(key); is {
			c.volumes.Touch()
		} else if have && c.foreignItem(key, value, false) {
			continue
		}
		if !ok || !have {
			continue
		}
		var a spec.Assignment
		if err := c.codec.Unmarshal(value, &a); err != nil || string(a.ID) != id {
			c.Up.Ignored.Count(fleet.IgnoredUnreadable)
			c.siteEvent(fx, now, wire.EventWarning, "BadAssignment", "the root sent something for "+id+" that cannot be read", "")
			continue
		}
		if err := a.CheckNames(); err != nil {
			c.Up.Ignored.Count(fleet.IgnoredUnreadable)
			c.siteEvent(fx, now, wire.EventWarning, "BadAssignment", fmt.Sprintf("the root sent something for %.64q that is refused: %v", id, err), "")
			continue
		}
		if !c.overrides.Has(a.Service.App) { // else it is looked at when the root has answered
			c.accept(now, a, "root", fx)
		}
	}
	for _, key := range deleted {
		if id, ok := strings.CutPrefix(key, "inst/"); ok {
			if p := c.places[skerry.InstanceID(id)]; p != nil && p.Group == "" && c.overrides.Has(p.A.Service.App) {
				continue
			}
			c.removeID(now, skerry.InstanceID(id), fx)
		} else if app, ok := strings.CutPrefix(key, "net/"); ok {
			c.relink(app)
		} else if _, ok := spec.ParseVolumeKey(key); ok {
			c.volumes.Touch()
		} else {
			c.foreignItem(key, nil, true)
		}
	}
}

// accept takes an assignment, new or changed, from the root or from the site's own applications.
func (c *Core) accept(now time.Time, a spec.Assignment, origin string, fx *wire.Effects) {
	if a.Spec.Mode == spec.ModePerWorker {
		c.acceptGroup(now, a, origin, fx)
		return
	}
	askFor(c, now, &a, fx)
	p := c.places[a.ID]
	if p != nil && a.Fence.RootEpoch == p.A.Fence.RootEpoch && changed(p, &a) {
		if why := c.opt.Admission.Check(&a); why != nil { // what runs was admitted as it is, whatever it is called
			fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "NotAdmitted", App: a.Service.App, Service: a.Service.Service, Instance: a.ID,
				Text: "it runs on as it was: " + why.Text})
			return
		}
	}
	if p != nil && origin == "root" && !c.mine(p) {
		p.Origin = origin
		a.Restart += p.Extra
	}
	if p != nil && c.regrant(now, p, a, fx) {
		return
	}
	if p != nil && a.Fence.RootEpoch < p.A.Fence.RootEpoch {
		c.Up.Ignored.Count(fleet.IgnoredToken)
		return
	}
	if p == nil || p.A.Fence.RootEpoch < a.Fence.RootEpoch {
		if p != nil {
			c.abandon(p)
			c.endOriginal(p)
			c.letGo(p)
			if !p.ended() {
				c.leave(p, p.Worker)
			}
			c.reserve(p, -1)
			c.dropQuietly(p, fx)
			a.Restart -= min(p.Extra, a.Restart)
		}
		p = &placement{A: a, Origin: origin, Created: now}
		p.Obs = wire.Observation{ID: a.ID, Gen: a.Gen, State: skerry.ClusterScheduled}
		p.Obs.Fence = a.Fence
		c.addPlacement(p)
		why := c.opt.Admission.Check(&a)
		if why == nil {
			why = takenHere(c, &a, origin)
		}
		if why == nil {
			why = c.foreignData(&a)
		}
		if why == nil {
			why = c.opt.Admission.CheckQuota(c.usedBy(a.Org, a.ID), &a)
		}
		if why != nil {
			c.refuse(now, p, []wire.Reason{*why}, nil, fx)
			return
		}
		if !c.adopt(now, p, fx) {
			c.wait(a.ID, true)
		}
		c.changed(now, p, fx)
		return
	}
	c.touchClaims(p) // it may have another schedule
	if p.Removing || c.relimit(now, p, a, fx) {
		return
	}
	if p.A.Restart == a.Restart && p.A.Gen == a.Gen && p.A.Failover == a.Failover {
		return
	}
	fence, held := p.A.Fence, p.A.Held
	keepGrants(p, &a, &c.opt.Admission)
	p.A = a
	p.A.Fence, p.A.Held = fence, held
	c.boundTo(p)
	c.changed(now, p, fx)
	if p.Worker != "" {
		c.send(p)
		c.sendNext(p)
	}
}

// changed reports whether an assignment is about another service than the one that a placement was admitted with, whatever its revision says.
func changed(p *placement, a *spec.Assignment) bool {
	t := p.target()
	return a.Spec.Revision() != t.Spec.Revision() || a.Org != t.Org || a.Service != t.Service || !maps.Equal(a.Digest, t.Digest)
}

// adopt takes over an instance that a worker runs already and this store has forgotten, as after a restored backup.
func (c *Core) adopt(now time.Time, p *placement, fx *wire.Effects) bool {
	key := wire.AssignmentKey(p.A.ID)
	for _, name := range slices.Sorted(maps.Keys(c.astray[p.A.ID])) {
		if c.Kids.Get(name) == nil {
			continue
		}
		value, orphaned, ok := c.Kids.Get(name).Observed.Get(key)
		var o wire.Observation
		if !ok || orphaned || c.said(value, &o) != nil || o.Fence.RootEpoch != p.A.Fence.RootEpoch || o.Fence.ClusterTerm > c.opt.Term {
			continue
		}
		if p.Pinned != "" && p.Pinned != name {
			continue // a copy for every worker, whose name tells any of them how that of another is called
		}
		c.bind(p, name)
		c.claimAt(p, name)
		p.Placed, p.A.Fence, p.A.Runtime, p.A.Devices, p.Obs = now, o.Fence, o.Runtime, o.Devices, o
		c.opt.Admission.confine(&p.A)
		c.found(p.A.ID, name)
		c.above(o.Fence.Sequence)
		c.reserve(p, 1)
		c.send(p)
		c.event(fx, now, p, wire.EventNormal, "Adopted", "runs on worker "+name+" already")
		return true
	}
	return false
}

// removeID ends an instance or a group that its owner no longer wants.
func (c *Core) removeID(now time.Time, id skerry.InstanceID, fx *wire.Effects) {
	if g := c.groups[id]; g != nil {
		c.removeGroup(now, g, fx)
		return
	}
	p := c.places[id]
	if p == nil {
		c.ownerGone(now, id, fx)
		return
	}
	c.remove(now, p, fx)
}

func (c *Core) remove(now time.Time, p *placement, fx *wire.Effects) {
	if p.Removing {
		return
	}
	c.wait(p.A.ID, false)
	c.unstrand(p)
	c.abandon(p)
	c.endOriginal(p)
	w := c.workers[p.Worker]
	if p.Worker == "" || w == nil || w.sight.Lost() {
		c.letGo(p)
		if !p.ended() {
			c.leave(p, p.Worker) // it may run on out of touch
		}
		c.drop(now, p, fx)
		return
	}
	c.end(p)
	c.letGo(p)
	c.changed(now, p, fx)
}

// drop forgets a placement and tells its owner.
func (c *Core) drop(now time.Time, p *placement, fx *wire.Effects) {
	c.reserve(p, -1)
	c.forget(p)
	fx.Delete(prefixPlace + string(p.A.ID))
	c.linked[p.A.Service.App] = true
	c.freed()
	if p.Group != "" {
		if g := c.groups[p.Group]; g != nil {
			c.tellGroup(now, g, fx)
		}
		return
	}
	c.ownerGone(now, p.A.ID, fx)
	if p.Origin == "root" && c.rootWants(p.A.ID) {
		// A crash had left half of a commit: that it was here, and not that the root wants it. It was ended for that, and the root has said it again.
		c.reconcileDesired(now, []string{wire.AssignmentKey(p.A.ID)}, nil, fx)
	}
}

// gone handles a worker that no longer has an instance.
func (c *Core) gone(now time.Time, worker string, id skerry.InstanceID, fx *wire.Effects) {
	c.left(worker, id)
	c.found(id, worker)
	p := c.places[id]
	if p != nil && p.Original != nil && p.Original.Worker == worker {
		c.endOriginal(p)
		c.changed(now, p, fx)
	}
	if p == nil || p.Worker != worker {
		return
	}
	if p.Removing {
		c.drop(now, p, fx)
		return
	}
	// It was wiped, or was not told yet. Its set is sent again, and it starts the instance anew.
	if p.Obs.State == skerry.Running {
		p.Obs.State, p.Obs.Phase, p.Obs.Ready, p.Obs.Reason = skerry.WorkerScheduled, skerry.PhaseNone, false, "its worker starts it again"
		c.linked[p.A.Service.App] = true
		c.changed(now, p, fx)
	}
}

// observe takes what a worker reports of an instance.
func (c *Core) observe(now time.Time, worker string, o wire.Observation, fx *wire.Effects) {
	p := c.places[o.ID]
	if p != nil && p.Original != nil && p.Original.Worker == worker && p.Worker != worker {
		return // returned judges it when all is told
	}
	if p == nil || p.Worker != worker && (p.Next == nil || p.Next.Worker != worker) {
		c.stray(o.ID, worker)
	}
	if p != nil {
		c.foreignToken(now, c.workers[worker], p, &o, fx)
	}
	if p == nil {
		c.Kids.Ignored.Count(fleet.IgnoredUnknown)
		c.stranger(now, worker, o.ID, fx)
		return
	}
	if p.Next != nil && p.Next.Worker == worker {
		c.observeNext(now, p, o, fx)
		return
	}
	if p.Worker != worker {
		c.Kids.Delete(worker, wire.AssignmentKey(o.ID)) // an old copy: end it
		return
	}
	if o.Fence != p.A.Fence || !p.Obs.State.CanReach(o.State) {
		c.Kids.Ignored.Count(fleet.IgnoredToken)
		return // the worker has not got the newest word yet
	}
	wasReady, before, address := p.Obs.Ready, p.Obs.State, p.Obs.Address
	ended := o.State == skerry.Terminated || o.State == skerry.Failed
	if ended && before != o.State {
		c.endOriginal(p)
		c.abandon(p) // it has done its work, or will be placed anew
		c.reserve(p, -1)
		c.touchClaims(p)
		c.freed()
	}
	if o.Ready && p.Late != nil && p.Late.Worker == worker && p.Next != nil && !p.Next.Rescue {
		c.abandon(p) // the one that was tried elsewhere because this one was slow
	}
	if o.Ready {
		p.Avoid = nil // it found its place; what failed elsewhere is over
	}
	o.Violated = p.Obs.Violated // the site's own judgement
	p.Obs = o
	if o.State == skerry.Running {
		c.ranWithData(p)
	}
	if n := p.Next; n != nil && n.Carry && n.Down.IsZero() && o.Phase == skerry.PhaseLeaving {
		n.Down = now
	}
	c.resized(now, p, fx)
	c.workers.addressPorts(p)
	if wasReady != o.Ready || ended || before != o.State || address != o.Address {
		c.linked[p.A.Service.App] = true
	}
	if wasReady != o.Ready || ended {
		c.judge(now, p, fx)
	}
	if o.Phase == skerry.PhaseCutOff && !p.Removing {
		c.resume(now, p, fx)
		return
	}
	job := p.A.Spec.Mode == spec.ModeJob || p.A.Spec.Mode == spec.ModeCron
	if o.State == skerry.Failed && !job && !p.Removing && p.Group == "" {
		if p.Moves++; p.Moves < maxMoves && c.find.othersFit(p) {
			c.event(fx, now, p, wire.EventWarning, "Failed", o.Reason)
			c.move(now, p, o.Reason, true, fx)
			return
		}
	}
	c.changed(now, p, fx)
}

// stranger is an instance that a worker runs and this store does not know: it was restored from an older backup. It is
// left alone until its owner names it or an operator ends it.
func (c *Core) stranger(now time.Time, worker string, id skerry.InstanceID, fx *wire.Effects) {
	list, _ := c.Kids.Get(worker).Desired.Orphans()
	for _, o := range list {
		if o.Key == wire.AssignmentKey(id) {
			c.siteEvent(fx, now, wire.EventWarning, "UnknownInstance", "worker "+worker+" runs "+string(id)+", which this site's store does not know; it is left running", worker)
		}
	}
}

// move takes an instance from its worker and lets it wait for another. avoid keeps it from the same one in this round.
func (c *Core) move(now time.Time, p *placement, why string, avoid bool, fx *wire.Effects) {
	c.unstrand(p)
	c.abandon(p)
	c.letGo(p)
	if !p.ended() {
		c.leave(p, p.Worker)
	}
	c.reserve(p, -1)
	c.questions.Drop(p.A.ID) // what was asked was about another place
	if avoid && p.Worker != "" {
		p.Avoid = append(p.Avoid, p.Worker)
	}
	old := p.Obs
	c.event(fx, now, p, wire.EventWarning, "Moved", why)
	c.bind(p, "")
	p.Obs = wire.Observation{ID: p.A.ID, Gen: p.A.Gen, Fence: p.A.Fence, State: skerry.ClusterScheduled, Reason: why, Restarts: old.Restarts, Exit: old.Exit, CrashLoop: old.CrashLoop}
	c.wait(p.A.ID, true)
	c.linked[p.A.Service.App] = true
	c.uplink.Touch()
	c.changed(now, p, fx)
}

// changed persists a placement and tells its owner.
func (c *Core) changed(now time.Time, p *placement, fx *wire.Effects) {
	if n := len(p.Timeline); n == 0 || p.Timeline[n-1].State != p.Obs.State || p.Timeline[n-1].Phase != p.Obs.Phase {
		p.Timeline = append(p.Timeline, wire.Step{At: now, State: p.Obs.State, Phase: p.Obs.Phase, Text: p.Obs.Reason})
		if len(p.Timeline) > 24 {
			p.Timeline = slices.Delete(p.Timeline, 1, 2)
		}
	}
	c.seeStart(now, p, fx)
	fx.Put(prefixPlace+string(p.A.ID), mustJSON(p))
	fx.Changed = append(fx.Changed, wire.Change{App: p.A.Service.App, Instance: p.A.ID})
	if p.Group != "" {
		if g := c.groups[p.Group]; g != nil {
			c.tellGroup(now, g, fx)
		}
		return
	}
	c.tellUp(now, p, fx)
}

// tellUp gives the owner what it may know of an instance: the root learns no address and no worker.
func (c *Core) tellUp(now time.Time, p *placement, fx *wire.Effects) {
	o := p.Obs
	if p.Group != "" {
		return
	}
	o.Successor, o.Revision, o.Limits, o.Crowded = c.answerOf(p), p.A.Revision, p.Limits, c.workers.anonymous(p, p.Strain.Crowded)
	if c.mine(p) {
		c.Apps.Instance(p.A.ID).Worker = skerry.WorkerName(p.Worker)
		if c.Apps.Observe(now, Self, o, fx) {
			c.remove(now, p, fx)
		}
	}
	if p.Origin == "local" {
		return
	}
	o.Restart -= min(p.Extra, o.Restart)
	o.Successor = c.anonymousAnswer(p, o.Successor)
	o.Reason, o.Held, o.CrashLoop = c.workers.anonymous(p, o.Reason), c.workers.anonymous(p, o.Held), c.workers.anonymous(p, o.CrashLoop)
	if o.Limits != nil {
		o.Limits = &wire.LimitsRefusal{Gen: o.Limits.Gen, Reason: c.workers.anonymous(p, o.Limits.Reason), InUse: o.Limits.InUse}
	}
	c.report(&p.A.Spec, o)
}

// refuse hands an instance back to its owner with the reasons.
func (c *Core) refuse(now time.Time, p *placement, why []wire.Reason, d *wire.Decision, fx *wire.Effects) {
	c.wait(p.A.ID, false)
	p.Decision = d
	if i := c.Apps.Instance(p.A.ID); p.Origin == "local" || c.mine(p) {
		if c.mine(p) {
			i.Worker = ""
			if d == nil {
				d = &wire.Decision{At: now, Instance: p.A.ID, Tier: "cluster", Policy: "admission", Why: why}
			}
			c.dropQuietly(p, fx)
			o := p.Obs
			o.Rejected, o.Why, o.State = true, why, skerry.Requested
			c.Apps.Observe(now, Self, o, fx)
			c.Apps.NoPlace(now, i, d, fx)
		}
		return
	}
	p.Refused = true
	p.Obs.State, p.Obs.Rejected, p.Obs.Why = skerry.Requested, true, why
	c.changed(now, p, fx)
}

func (c *Core) dropQuietly(p *placement, fx *wire.Effects) {
	c.forget(p)
	fx.Delete(prefixPlace + string(p.A.ID))
}
