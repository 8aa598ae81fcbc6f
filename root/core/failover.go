package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// What happens to an instance whose site is out of touch for LostAfter. Nobody can know from here whether it still runs.
//
//	onDisconnect: run        stranded: a copy starts at another site; the instance stays in the books where it was
//	                           site back first, and the instance ready -> the copy ends, nothing else happens
//	                           copy ready first -> it is the instance now; the one left behind is the original
//	onDisconnect: stopAfter  stranded until its site has surely stopped it, then placed anew
//	placement.cluster        it waits for its site, and so does what runs once on every worker, or has local volumes there
//
// When the original's site is back, onReconnect decides. The winner gets the higher fencing token: an original takes it over
// in place (Assignment.PriorFence), through its cluster down to its worker. Of the sites' own rescue see cluster/core/cutoff.go.
type failover struct {
	lost     map[string]bool               // sites that were given up, until they are back
	stranded map[skerry.InstanceID]*search // instances at lost sites, and those with a copy on the way
	next     map[skerry.InstanceID]string  // at which sites copies start,
	left     map[skerry.InstanceID]string  // and were left behind
	unsure   map[skerry.InstanceID]bool    // whose sites may not know yet that they end them when they are out of touch
}

// search is the search for a place for the copy of a stranded instance.
type search struct {
	again time.Time // not before
	tried []string  // sites that refused it, in this round
	told  bool      // that there is no place
	anew  bool      // it must have ended where it was, and then starts anew: no copy
}

func newFailover() failover {
	return failover{lost: map[string]bool{}, stranded: map[skerry.InstanceID]*search{}, next: map[skerry.InstanceID]string{},
		left: map[skerry.InstanceID]string{}, unsure: map[skerry.InstanceID]bool{}}
}

const (
	// DefaultLostAfter is the default of Options.LostAfter: most outages of a site's uplink are over by then, and every site
	// lives on without the root.
	DefaultLostAfter = 5 * time.Minute
	// strandedRetry is how often a place is looked for again where there was none.
	strandedRetry = 10 * time.Second
	// stopSpare is what may pass in the networks between root, site and worker.
	stopSpare = 10 * time.Second
)

// failsOver reports whether an instance is given to another site when its own is lost.
func (c *Core) failsOver(i *apps.Instance) bool {
	return c.opt.LostAfter > 0 && i.Target == "" && !i.Spec.KeepsData() && c.labels.elsewhere(i)
}

// reviewFailover tells sites which of their instances fail over, where that has changed. What could go nowhere from a lost site may now.
func (c *Core) reviewFailover(now time.Time, fx *wire.Effects) {
	for _, name := range c.Children.Names() {
		for _, i := range c.Apps.HeldBy(name) {
			if c.failover.lost[name] && i.Cut && c.failover.stranded[i.ID] == nil && c.failsOver(i) {
				c.loseInstance(now, i, name, fx)
			}
			c.refresh(now, i, fx)
		}
	}
}

// loadFailover finds out what an earlier life had under way. Sites that are not back after LostAfter are lost again.
func (c *Core) loadFailover(now time.Time) {
	for _, name := range c.Children.Names() {
		if k := c.Children.Get(name); k.Since.IsZero() {
			k.Since = now
		}
		for _, i := range c.Apps.HeldBy(name) {
			if i.Cut && c.failsOver(i) {
				c.failover.stranded[i.ID] = &search{anew: stopsDisconnected(i)}
			}
		}
	}
	for _, a := range c.Apps.Apps() {
		for _, i := range c.Apps.InstancesOf(a.Key()) {
			c.track(i)
			c.tokens.above(i.Fence)
			if i.Holder != "" && !i.Bound && stopsDisconnected(i) && c.failsOver(i) {
				c.failover.unsure[i.ID] = true
			}
		}
	}
}

// track keeps the index of copies right.
func (c *Core) track(i *apps.Instance) {
	f := &c.failover
	delete(f.next, i.ID)
	delete(f.left, i.ID)
	if i.Next != nil {
		f.next[i.ID] = i.Next.Holder
	}
	if i.Left != nil {
		f.left[i.ID] = i.Left.Holder
	}
	c.nets.dirty[i.Service.App] = true
	c.relations.dirty = true
}

func stopsDisconnected(i *apps.Instance) bool { _, ok := i.Spec.OnDisconnect.StopAfter(); return ok }

// loseSites gives up sites that have been out of touch for too long.
func (c *Core) loseSites(now time.Time, fx *wire.Effects) {
	if c.opt.LostAfter <= 0 {
		return
	}
	for _, name := range c.Children.Apart() {
		k := c.Children.Get(name)
		if k.Since.IsZero() || c.failover.lost[name] || now.Sub(k.Since) < c.opt.LostAfter {
			continue
		}
		c.failover.lost[name] = true
		c.relations.dirty = true
		c.nets.lookAgain(name)
		held := c.Apps.HeldBy(name)
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "ClusterLost", Cluster: skerry.ClusterName(name),
			Text: fmt.Sprintf("cluster %s has been out of touch for %s; what runs there (%d instances) is started elsewhere where it may be", name,
				now.Sub(k.Since).Round(time.Second), len(held))})
		for _, id := range slices.Sorted(maps.Keys(c.failover.next)) {
			if c.failover.next[id] == name {
				c.abandon(now, c.Apps.Instance(id), "its site is lost", fx)
			}
		}
		for _, i := range held {
			c.loseInstance(now, i, name, fx)
		}
	}
}

func (c *Core) loseInstance(now time.Time, inst *apps.Instance, site string, fx *wire.Effects) {
	why := "cluster " + site + " is out of touch"
	switch {
	case inst.Target != "" || inst.State == skerry.Terminated:
	case inst.Stopping: // its tombstone waits for the site
		c.Children.Delete(site, wire.AssignmentKey(inst.ID))
		c.Apps.Lost(now, inst.ID, why, fx)
	case !c.failsOver(inst):
		c.Apps.Strand(now, inst, why+", and it may run nowhere else", fx)
	case stopsDisconnected(inst):
		c.failover.stranded[inst.ID] = &search{anew: true}
		at, ok := c.surelyStopped(inst)
		switch {
		case !ok:
			c.Apps.Strand(now, inst, why+", and has not confirmed that it stops this by itself; it waits for the site", fx)
		default:
			c.Apps.Strand(now, inst, why+" and stops it by itself; it gets a new place in "+at.Sub(now).Round(time.Second).String(), fx)
		}
	case inst.State == skerry.Running && inst.Spec.Mode == spec.ModeService:
		c.failover.stranded[inst.ID] = &search{}
		c.Apps.Strand(now, inst, why, fx)
	default:
		c.Children.Delete(site, wire.AssignmentKey(inst.ID))
		c.Apps.Lost(now, inst.ID, why, fx)
	}
}

// confirm notes which sites know by now that they end an instance when they are out of touch.
func (c *Core) confirm(k *members.Child, fx *wire.Effects) {
	for _, id := range slices.Sorted(maps.Keys(c.failover.unsure)) {
		i := c.Apps.Instance(id)
		switch {
		case i == nil || i.Holder == "" || i.Stopping || !c.failsOver(i): // else it would confirm that it lets it run
			delete(c.failover.unsure, id)
		case i.Holder == k.Name && k.Desired.Confirmed(wire.AssignmentKey(id)):
			delete(c.failover.unsure, id)
			c.Apps.Bind(i, true, fx)
		}
	}
}

// surelyStopped is when a site that is out of touch, and its workers, have stopped an instance. The site counts from when it
// heard the root last, which was no later than the end of its connection here; a worker that was cut off from it just before
// it said so counts the same time again. ok is false when the site may not know that it must.
func (c *Core) surelyStopped(i *apps.Instance) (at time.Time, ok bool) {
	d, stops := i.Spec.SurelyStopped(stopSpare)
	k := c.Children.Get(i.Holder)
	if !stops || k == nil {
		return time.Time{}, true
	}
	if !i.Bound {
		return time.Time{}, false
	}
	return k.Since.Add(2*d + wire.AutonomyGrace), true
}

// rescue looks for places for copies of stranded instances, and ends those that do not get ready.
func (c *Core) rescue(now time.Time, fx *wire.Effects) {
	for _, id := range slices.Sorted(maps.Keys(c.failover.stranded)) {
		inst, search := c.Apps.Instance(id), c.failover.stranded[id]
		if inst == nil || inst.Stopping || inst.State.Final() || !inst.Cut {
			delete(c.failover.stranded, id)
			continue
		}
		k := c.Children.Get(inst.Holder)
		switch {
		case inst.Next != nil:
			if now.Sub(inst.Next.Since) >= apps.CopyTime {
				search.tried = append(search.tried, inst.Next.Holder)
				c.abandon(now, inst, "it did not get ready", fx)
			}
		case k == nil || k.Connected: // it is asked what it holds
		case search.anew:
			if at, ok := c.surelyStopped(inst); ok && !now.Before(at) {
				delete(c.failover.stranded, id)
				c.Children.Delete(inst.Holder, wire.AssignmentKey(id))
				c.Apps.Lost(now, id, "cluster "+inst.Holder+" is out of touch, and has stopped it", fx)
			}
		case !now.Before(search.again):
			c.placeCopy(now, inst, search, fx)
		}
	}
}

// placeCopy offers a copy to the best site that has not refused it.
func (c *Core) placeCopy(now time.Time, inst *apps.Instance, found *search, fx *wire.Effects) {
	req := c.request(inst, map[skerry.AppKey]*around{})
	req.Avoid = append(append(slices.Clone(inst.Shun), found.tried...), inst.Holder)
	if inst.Left != nil {
		req.Avoid = append(req.Avoid, inst.Left.Holder)
	}
	// What is at lost sites is no reason to be near or far.
	req.Peers = slices.DeleteFunc(slices.Clone(req.Peers), func(p sched.Peer) bool { return c.failover.lost[p.Worker] })
	c.rounds++
	decision, wait := choose(c, now, inst, req, fx)
	if wait {
		found.again = c.fed.questions.Until(inst.ID)
		return
	}
	if decision.Chosen == "" {
		found.again, found.tried = now.Add(strandedRetry), nil
		if !found.told {
			found.told = true
			why := "no other site can take it"
			if len(decision.Why) > 0 {
				why += ": " + decision.Why[0].Text
			}
			c.Apps.NotCopied(now, inst, "Stranded", "cluster "+inst.Holder+" is out of touch, and "+why, fx)
		}
		return
	}
	next := apps.Copy{Holder: decision.Chosen, Fence: c.tokens.mint(fx), Since: now}
	c.Apps.Copying(now, inst, next, &decision, fx)
	as := c.assignment(inst)
	as.Fence, as.PriorFence = next.Fence, nil
	if err := c.Children.Put(next.Holder, wire.AssignmentKey(inst.ID), c.codec.Marshal(as)); err != nil {
		c.abandon(now, inst, err.Error(), fx)
		return
	}
	c.fed.Take(next.Holder, inst.Spec.LeastCost())
	c.track(inst)
}

// abandon ends a copy that is not to take over after all.
func (c *Core) abandon(now time.Time, i *apps.Instance, why string, fx *wire.Effects) {
	if i == nil || i.Next == nil {
		return
	}
	at := i.Next.Holder
	c.Children.Delete(at, wire.AssignmentKey(i.ID))
	c.Apps.NotCopied(now, i, "NotReplaced", "the copy at "+at+" ended: "+why, fx)
	c.track(i)
	if s := c.failover.stranded[i.ID]; s != nil {
		s.again = now.Add(strandedRetry)
	}
}

// copyItem takes what a site reports of a copy, and reports whether it was about one.
func (c *Core) copyItem(now time.Time, site string, obs wire.Observation, fx *wire.Effects) bool {
	inst := c.Apps.Instance(obs.ID)
	switch {
	case inst == nil || inst.Holder == site:
		return false
	case inst.Left != nil && inst.Left.Holder == site:
		return true // returned judges it when all is told
	case inst.Next == nil || inst.Next.Holder != site:
		return false
	case obs.Fence.RootEpoch != inst.Next.Fence.RootEpoch:
		return true // the site has not got the newest word yet
	case obs.Rejected || obs.State == skerry.Failed || obs.State == skerry.Terminated:
		why := obs.Reason
		if len(obs.Why) > 0 {
			why = obs.Why[0].Text
		}
		if s := c.failover.stranded[inst.ID]; s != nil {
			s.tried = append(s.tried, site)
		}
		c.abandon(now, inst, why, fx)
		if s := c.failover.stranded[inst.ID]; s != nil && obs.Rejected {
			s.again = now
		}
	case obs.Ready:
		c.takeOver(now, inst, "cluster "+inst.Holder+" is out of touch", fx)
		c.Apps.Observe(now, site, obs, fx)
	}
	return true
}

// takeOver makes the copy the instance; the one at a site that is out of touch is left behind.
func (c *Core) takeOver(now time.Time, i *apps.Instance, why string, fx *wire.Effects) {
	if i.Left != nil { // of two that were left behind the older one has no say
		c.Children.Delete(i.Left.Holder, wire.AssignmentKey(i.ID))
	}
	var left *apps.Copy
	if k := c.Children.Get(i.Holder); k != nil && !k.Connected && !i.Stopping {
		left = &apps.Copy{Holder: i.Holder, Fence: i.Fence, Since: now}
	} else if i.Holder != "" {
		c.Children.Delete(i.Holder, wire.AssignmentKey(i.ID))
	}
	delete(c.failover.stranded, i.ID)
	c.Apps.TakeOver(now, i, left, why, fx)
	c.track(i)
}

// promote lets copies take the place of instances that their sites no longer have, and ends copies of those that end.
func (c *Core) promote(now time.Time, fx *wire.Effects) {
	for _, id := range slices.Sorted(maps.Keys(c.failover.next)) {
		i := c.Apps.Instance(id)
		switch {
		case i == nil:
			c.Children.Delete(c.failover.next[id], wire.AssignmentKey(id))
			delete(c.failover.next, id)
		case i.Stopping || i.Next == nil:
			c.Children.Delete(c.failover.next[id], wire.AssignmentKey(id))
			i.Next = nil
			c.track(i)
		case i.Holder == "":
			c.takeOver(now, i, "the first one has ended", fx)
			c.reobserve(now, i, fx)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.failover.left)) {
		if i := c.Apps.Instance(id); i == nil || i.Stopping {
			c.Children.Delete(c.failover.left[id], wire.AssignmentKey(id))
			delete(c.failover.left, id)
			if i != nil {
				i.Left = nil
			}
		}
	}
}

// reobserve takes what an instance's site said of it last.
func (c *Core) reobserve(now time.Time, i *apps.Instance, fx *wire.Effects) {
	k := c.Children.Get(i.Holder)
	if k == nil {
		return
	}
	if o, ok := c.observation(k, i.ID); ok && o.Fence.RootEpoch == i.Fence.RootEpoch {
		if c.Apps.Observe(now, k.Name, o, fx) {
			c.Children.Delete(k.Name, wire.AssignmentKey(i.ID))
		}
	}
}

// observation reads what a site reports of an instance, without what the root must not know.
func (c *Core) observation(k *members.Child, id skerry.InstanceID) (o wire.Observation, ok bool) {
	value, orphaned, has := k.Observed.Get(wire.AssignmentKey(id))
	if !has || orphaned || c.codec.Unmarshal(value, &o) != nil || o.ID != id {
		return o, false
	}
	o.Bound()
	o.Address, o.Ports = "", hideAddresses(o.Ports)
	for n := range o.Why {
		o.Why[n].Text = k.Name + ": " + o.Why[n].Text
	}
	return o, true
}

// returned decides, once a site that was out of touch has told all that it runs, which copies stay. What it said before
// still holds until it says otherwise: a set that did not change is not sent again.
func (c *Core) returned(now time.Time, child *members.Child, fx *wire.Effects) {
	for _, i := range c.Apps.HeldBy(child.Name) {
		if i.Stopping || !i.Cut && skerry.HasCondition(i.Conditions, skerry.Reachable) {
			continue
		}
		c.reobserve(now, i, fx)
		if !i.Cut || i.Holder != child.Name {
			continue
		}
		if i.Next == nil || i.IsReady() {
			at := ""
			if i.Next != nil {
				at = i.Next.Holder
				c.Children.Delete(at, wire.AssignmentKey(i.ID))
				at = "; the copy at " + at + " ends"
			}
			delete(c.failover.stranded, i.ID)
			c.Apps.Back(now, i, "cluster "+child.Name+" is in touch again"+at, fx)
			c.track(i)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.failover.left)) {
		if c.failover.left[id] == child.Name {
			c.judge(now, child, c.Apps.Instance(id), fx)
		}
	}
}

// judge chooses between an instance and the copy that was left behind at a site that is back.
func (c *Core) judge(now time.Time, child *members.Child, inst *apps.Instance, fx *wire.Effects) {
	if inst == nil || inst.Left == nil || inst.Left.Holder != child.Name {
		return // promote ends it
	}
	obs, ok := c.observation(child, inst.ID)
	keep, why := false, "it is not there any more"
	if ok && obs.Fence.RootEpoch == inst.Left.Fence.RootEpoch {
		keep, why = inst.Spec.KeepsOriginal(spec.CopyState{Ready: obs.State == skerry.Running && obs.Ready, Violated: obs.Violated},
			stateOf(inst))
	}
	if !keep {
		c.Children.Delete(child.Name, wire.AssignmentKey(inst.ID))
		c.Apps.LetGo(now, inst, why, fx)
		c.track(inst)
		return
	}
	if inst.Next != nil {
		c.Children.Delete(inst.Next.Holder, wire.AssignmentKey(inst.ID))
	}
	if inst.Holder != "" {
		c.Children.Delete(inst.Holder, wire.AssignmentKey(inst.ID))
	}
	delete(c.failover.stranded, inst.ID)
	c.Apps.Restore(now, inst, c.tokens.mint(fx), why, fx)
	c.assign(now, inst, fx)
	obs.Fence = inst.Fence
	c.Apps.Observe(now, child.Name, obs, fx)
	c.track(inst)
}

// stateOf is what speaks for an instance, or against it, when its original is back.
func stateOf(i *apps.Instance) spec.CopyState {
	s := spec.CopyState{Ready: i.IsReady()}
	for _, k := range i.Conditions {
		if k.Type == skerry.Satisfied && !k.Status {
			s.Violated = cmp.Or(k.Reason, "it is not kept")
		}
	}
	return s
}

// resume has an instance started again that its site stopped while it was out of touch: it waits for a new token.
func (c *Core) resume(now time.Time, i *apps.Instance, fx *wire.Effects) {
	delete(c.failover.stranded, i.ID)
	c.Apps.Regrant(now, i, c.tokens.mint(fx), fx)
	c.assign(now, i, fx)
	c.track(i)
}

// serves reports whether clients are still sent to a site's instances of a service: to those of a lost site only while no
// other site has one that is ready.
func (c *Core) serves(i *apps.Instance) bool {
	if !c.failover.lost[i.Holder] {
		return true
	}
	return !slices.ContainsFunc(c.Apps.Instances(i.Service), func(o *apps.Instance) bool {
		return o.IsReady() && o.Holder != "" && !c.failover.lost[o.Holder]
	})
}

// holders lists the sites that an instance concerns, its own first.
func holders(i *apps.Instance) []string {
	out := []string{i.Holder}
	if i.Next != nil {
		out = append(out, i.Next.Holder)
	}
	if i.Left != nil {
		out = append(out, i.Left.Holder)
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// nextRescue is when a site is lost, or rescue has something to do, or the zero time.
func (c *Core) nextRescue() (next time.Time) {
	if c.opt.LostAfter <= 0 {
		return next
	}
	consider := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, name := range c.Children.Apart() { // it is asked after each message, and most sites are connected
		if k := c.Children.Get(name); !k.Since.IsZero() && !c.failover.lost[name] {
			consider(k.Since.Add(c.opt.LostAfter))
		}
	}
	for id, s := range c.failover.stranded {
		i := c.Apps.Instance(id)
		if i == nil {
			continue
		}
		k := c.Children.Get(i.Holder)
		switch {
		case i.Next != nil:
			consider(i.Next.Since.Add(apps.CopyTime))
		case k == nil || k.Connected:
		case s.anew:
			if at, ok := c.surelyStopped(i); ok {
				consider(at)
			}
		default:
			consider(s.again)
		}
	}
	return next
}
