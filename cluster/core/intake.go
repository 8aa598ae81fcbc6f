package core

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/placing"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// intake takes what the root and the site's own applications want here: instances, groups with copies on workers or for devices, and
// questions about successors. What the admission policy refuses goes back to its owner.
//
//	the root ─┐            ┌─ refuse
//	           ├─► accept ─┼─ adopt: a worker runs it already
//	own apps ─┘            └─ wait for a place
type intake struct {
	*lifecycle
	find *finder
	// steadyAt is when a copy of a group that takes another one's place will have been ready for long enough; zero: nobody waits for one.
	steadyAt time.Time
	// goneAt is when a copy ends whose device has gone; zero: none is gone.
	goneAt time.Time
}

// accept takes an assignment, new or changed, from the root or from the site's own applications.
func (in *intake) accept(now time.Time, a spec.Assignment, origin string, fx *wire.Effects) {
	if a.Spec.Mode.HasCopies() {
		in.acceptGroup(now, a, origin, fx)
		return
	}
	in.askFor(now, &a, fx)
	in.acceptInstance(now, a, origin, fx)
	in.askFor(now, &a, fx) // the question may have come with a new token
}

// acceptInstance takes an assignment of one instance.
func (in *intake) acceptInstance(now time.Time, a spec.Assignment, origin string, fx *wire.Effects) {
	p := in.places[a.ID]
	if p != nil && a.Fence.RootEpoch == p.A.Fence.RootEpoch && differs(p, &a) {
		if why := in.admission.Check(&a); why != nil { // what runs was admitted as it is, whatever it is called
			fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "NotAdmitted", App: a.Service.App,
				Service: a.Service.Service, Instance: a.ID, Text: "it runs on as it was: " + why.Text})
			in.takeFailover(now, p, a.Failover, fx)
			return
		}
	}
	if p != nil && origin == "root" && !in.mine(p) {
		p.Origin = origin
		a.Restart += p.Extra
	}
	if p != nil && in.regrant(now, p, a, fx) {
		return
	}
	if p != nil && a.Fence.RootEpoch < p.A.Fence.RootEpoch {
		in.Up.Ignored.Count(members.IgnoredToken)
		return
	}
	if p == nil || p.A.Fence.RootEpoch < a.Fence.RootEpoch {
		if p != nil {
			in.abandon(p)
			in.endOriginal(p)
			in.letGo(p)
			if !p.ended() {
				in.leave(p, p.Worker)
			}
			in.reserve(p, -1)
			in.dropQuietly(p, fx)
			a.Restart -= min(p.Extra, a.Restart)
		}
		p = &placement{A: a, Origin: origin, Created: now}
		p.Obs = wire.Observation{ID: a.ID, Gen: a.Gen, State: skerry.ClusterScheduled}
		p.Obs.Fence = a.Fence
		in.addPlacement(p)
		why := in.admission.Check(&a)
		if why == nil {
			why = in.takenHere(&a, origin)
		}
		if why == nil {
			why = in.admission.CheckCertificates(&a)
		}
		if why == nil {
			why = in.othersData(&a)
		}
		if why == nil {
			why = in.admission.CheckQuota(in.usedBy(a.Org, a.ID), &a)
		}
		if why != nil {
			in.refuse(now, p, []wire.Reason{*why}, nil, fx)
			return
		}
		if !in.adopt(now, p, fx) {
			in.wait(a.ID, true)
		}
		in.changed(now, p, fx)
		return
	}
	in.touchClaims(p) // it may have another schedule
	if p.Removing || in.relimit(now, p, a, fx) {
		return
	}
	if p.A.Restart == a.Restart && p.A.Gen == a.Gen && p.A.Failover == a.Failover {
		return
	}
	fence, held := p.A.Fence, p.A.PriorFence
	keepGrants(p, &a, in.admission)
	p.A = a
	p.A.Fence, p.A.PriorFence = fence, held
	in.boundTo(p)
	in.changed(now, p, fx)
	if p.Worker != "" {
		in.send(p)
		in.sendNext(p)
	}
}

// settleApps accepts what the site's own applications want and ends what they no longer want.
func (in *intake) settleApps(now time.Time, fx *wire.Effects) {
	fx.Merge(in.Apps.Reconcile(now))
	for _, i := range in.Apps.Unplaced(now) {
		if in.Apps.Frozen(i.Service.App) {
			continue
		}
		// The site takes the root's part for its own applications, first number of the token included. What was delegated to it
		// keeps the root's.
		fence := skerry.Fence{RootEpoch: max(in.number(fx), i.Fence.RootEpoch)}
		in.Apps.Place(now, i, Self, fence, nil, fx)
		in.acceptLocal(now, i, fx)
	}
	for _, ch := range fx.Changed { // what is wanted back comes before the end of what was to take its place
		g, i := in.groups[ch.Instance], in.Apps.Instance(ch.Instance)
		if g != nil && g.Removing && i != nil && i.Live() && !in.Apps.Frozen(i.Service.App) {
			in.acceptLocal(now, i, fx)
		}
	}
	for _, i := range in.Apps.Stopping() {
		if !in.Apps.Frozen(i.Service.App) {
			in.removeID(now, i.ID, fx)
		}
	}
	for _, ch := range fx.Changed {
		if i := in.Apps.Instance(ch.Instance); ch.Instance != "" && i != nil && i.Holder == Self && !i.Stopping && !i.State.Final() &&
			!in.Apps.Frozen(i.Service.App) {
			in.acceptLocal(now, i, fx)
		}
	}
}

// acceptLocal takes an assignment of the site's own applications, or of one that was delegated to it.
func (in *intake) acceptLocal(now time.Time, i *apps.Instance, fx *wire.Effects) {
	a, origin := *i.Assignment(in.digests(i)), "local"
	if in.rootWants(i.ID) {
		origin = "root"
	}
	if p := in.places[i.ID]; p != nil {
		a.Failover = p.A.Failover
	}
	in.accept(now, a, origin, fx)
}

// reviewLocal ends, after a start, what the site's own applications do not know, and gives them back what the site does not have: a write
// of many records may have been cut short.
func (in *intake) reviewLocal(now time.Time, fx *wire.Effects) {
	unknown := func(origin string, id skerry.InstanceID) bool {
		if origin != "local" {
			return false
		}
		i := in.Apps.Instance(id)
		return i == nil || i.Holder != Self
	}
	for _, id := range sortedIDs(in.groups) {
		if unknown(in.groups[id].Origin, id) {
			in.removeGroup(now, in.groups[id], fx)
		}
	}
	for _, id := range sortedIDs(in.places) {
		if p := in.places[id]; p.Group == "" && unknown(p.Origin, id) || p.Group != "" && in.groups[p.Group] == nil {
			in.remove(now, p, fx)
		}
	}
	for _, i := range in.Apps.HeldBy(Self) {
		if in.places[i.ID] == nil && in.groups[i.ID] == nil {
			in.Apps.Gone(now, Self, i.ID, fx)
		}
	}
}

func (in *intake) digests(i *apps.Instance) map[string]string {
	if a := in.Apps.App(i.Service.App); a != nil {
		return a.Digests
	}
	return nil
}

func (in *intake) deleteInstance(now time.Time, m apps.DeleteInstance, fx *wire.Effects) {
	if in.Apps.Instance(m.ID) != nil {
		*fx, _ = in.Apps.Handle(now, m)
		return
	}
	p := in.places[m.ID]
	if p == nil {
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no instance %q", m.ID).WithHint("`skerry get instances` lists them")
		return
	}
	switch {
	case m.Scale:
		fx.Err = skerry.Errorf(skerry.CodeWrongTier, "the root says how many instances of %s there are", m.ID).WithHint("repeat this at the root")
		return
	case p.Refused:
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "this site refused instance %q", m.ID).WithHint("delete it where its application is")
		return
	case p.ended():
		fx.Err = skerry.Errorf(skerry.CodeConflict, "instance %q has ended", m.ID).WithHint("its owner removes it when its time is over")
		return
	case p.Removing, p.Worker == "":
		return // it ends, or looks for a place, already
	}
	// A copy of a group or an instance of the root: the site gives it a new place.
	in.move(now, p, "deleted by "+m.Actor, false, fx)
}

// acceptGroup takes a perWorker or perDevice assignment.
func (in *intake) acceptGroup(now time.Time, a spec.Assignment, origin string, fx *wire.Effects) {
	g := in.groups[a.ID]
	if g != nil && a.Fence.RootEpoch < g.A.Fence.RootEpoch {
		in.Up.Ignored.Count(members.IgnoredToken)
		return
	}
	same := g != nil && g.A.Gen == a.Gen && g.A.Restart == a.Restart && g.A.Fence.RootEpoch == a.Fence.RootEpoch &&
		g.A.Exchange == a.Exchange
	if same && !g.Removing {
		return
	}
	if g == nil {
		g = &group{Origin: origin, Created: now}
	}
	g.Removing, g.Begun = false, nil // its owner may want it back, before the copies of another one have taken the place of all of its own
	in.strikeGroup(a.ID)
	g.A, g.PerDevice = a, a.Spec.Mode == spec.ModePerDevice
	in.enterGroup(g)
	fx.Put(prefixGroup+string(a.ID), mustJSON(g))
	for _, p := range in.copies(a.ID) {
		fence := p.A.Fence
		p.A.Gen, p.A.Restart = a.Gen, a.Restart
		p.A.Fence = fence
		p.A.Fence.RootEpoch = a.Fence.RootEpoch
		if p.Worker != "" && !p.Removing { // what its worker was told to end is gone first; then there is a new one
			p.Obs.Fence = p.A.Fence
			in.send(p)
		}
	}
	in.retry()
	in.tellGroup(now, g, fx)
}

// watch notes whether the first copies of a version are a trial, and tells its owner.
func (in *intake) watch(now time.Time, next *group, trial bool, fx *wire.Effects) {
	if next.trial != trial {
		next.trial = trial
		in.tellGroup(now, next, fx)
	}
}

// expandGroups gives the groups their copies.
func (in *intake) expandGroups(now time.Time, fx *wire.Effects) {
	in.goneAt = time.Time{}
	for _, id := range sortedIDs(in.groups) {
		g := in.groups[id]
		if g.Removing {
			continue
		}
		no := in.admission.Check(&g.A)
		if no == nil && len(in.copies(id)) == 0 { // what runs goes on
			if no = in.takenHere(&g.A, g.Origin); no == nil {
				no = in.admission.CheckCertificates(&g.A)
			}
		}
		if why := no; why != nil {
			o := wire.Observation{ID: id, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Reason: why.Text, Why: []wire.Reason{*why}}
			in.tellGroupAs(now, g, o, fx)
			continue
		}
		for _, p := range in.copies(id) {
			if in.workers[p.Pinned] == nil && !p.spot().inNetwork() {
				in.vacate(now, g, p, fx)
			}
		}
		policy, _, why := in.find.policyOf(&g.A)
		if why != nil {
			o := wire.Observation{ID: id, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Reason: why.Text, Why: []wire.Reason{*why}}
			in.tellGroupAs(now, g, o, fx)
			continue
		}
		over := in.expand(now, g, policy, fx)
		if over != nil && len(in.copies(id)) == 0 {
			o := wire.Observation{ID: id, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Reason: over.Text,
				Why: []wire.Reason{*over}}
			in.tellGroupAs(now, g, o, fx)
			continue
		}
		in.tellGroup(now, g, fx)
	}
}

// askEvery is how often an answer is looked for again.
const askEvery = time.Second

// askFor takes the question that came with an assignment of an instance which is here, or its end.
func (in *intake) askFor(now time.Time, a *spec.Assignment, fx *wire.Effects) {
	p := in.places[a.ID]
	if p == nil || p.Removing || a.Fence.RootEpoch != p.A.Fence.RootEpoch {
		return
	}
	q, was := a.Successor, p.A.Successor
	p.A.Successor = q
	switch {
	case q == nil && was == nil:
	case q == nil:
		in.ask(a.ID, nil)
		in.changed(now, p, fx)
	case was == nil || in.asking[a.ID] == nil || was.Revision != q.Revision || was.Gen != q.Gen:
		in.ask(a.ID, &answer{wire.SuccessorAnswer{Revision: q.Revision, Why: in.noSuccessor(now, p)}, now})
		in.changed(now, p, fx)
	}
}

// answerAgain tells owners of instances when the answer has changed.
func (in *intake) answerAgain(now time.Time, fx *wire.Effects) {
	for _, id := range sortedIDs(in.asking) {
		p, k := in.places[id], in.asking[id]
		if p == nil || p.A.Successor == nil {
			in.ask(id, nil)
			continue
		}
		if now.Sub(k.at) < askEvery && !now.Before(k.at) {
			continue
		}
		k.at = now
		if why := in.noSuccessor(now, p); why != k.Why || k.Revision != p.A.Successor.Revision {
			k.Revision, k.Why = p.A.Successor.Revision, why
			in.changed(now, p, fx)
		}
	}
}

// noSuccessor says why a newer version of an instance has no place in the site once the instance has ended, or "".
func (in *intake) noSuccessor(now time.Time, p *placement) string {
	if p.Worker == "" || p.Removing || p.ended() {
		return ""
	}
	q := &placement{A: p.A, Origin: p.Origin, location: location{Pinned: p.Pinned}, Located: placing.Located{Users: p.Users}, Created: now}
	q.A.Spec, q.A.Revision, q.A.Gen = p.A.Successor.Spec, p.A.Successor.Revision, p.A.Successor.Gen
	q.A.Runtime, q.A.Devices, q.A.Digest, q.A.Successor = "", nil, nil, nil
	if why := in.admission.Check(&q.A); why != nil {
		return why.Text
	}
	if why := in.admission.CheckQuota(in.usedBy(p.A.Org, p.A.ID), &q.A); why != nil {
		return why.Text
	}
	at := in.dataAt(q)
	if w := in.workers[at]; w != nil {
		switch {
		case w.Drain != nil:
			return "the volume is on worker " + at + ", which is drained"
		case w.Cordon != "":
			return "the volume is on worker " + at + ", which is cordoned: " + w.Cordon
		case p.Worker != at:
			return "the volume is on worker " + at + ", and it runs elsewhere"
		}
	}
	policy, plugins, reason := in.find.policyOf(&q.A)
	if reason != nil {
		return reason.Text
	}
	if len(plugins) > 0 && at == "" {
		return "" // their programs are asked when it is placed
	}
	in.reserve(p, -1)
	d := in.find.placeFree(now, policy, in.find.request(q))
	in.reserve(p, 1)
	switch {
	case d.Chosen != "":
		return ""
	case len(d.Why) == 0:
		return "no worker of the site can take it"
	case at != "":
		return "the volume is on worker " + at + ", which cannot take the new version: " + whyAt(d.Why)
	}
	return "no worker of the site can take the new version: " + d.Why[0].Text
}

// whyAt is the first reason that is not about other workers.
func whyAt(why []wire.Reason) string {
	for _, r := range why {
		if r.What != "volumes" {
			return r.Text
		}
	}
	return why[0].Text
}

// expand gives every spot that fits its copy, and ends copies whose spot is no longer there. It says what is over a quota.
func (in *intake) expand(now time.Time, of *group, policy sched.Policy, fx *wire.Effects) (over *wire.Reason) {
	spots, have, on := in.find.spots(&of.A.Spec), map[spot]bool{}, map[string]int{}
	stay, _ := in.before(of)
	for _, p := range stay {
		have[p.spot()] = true
		on[p.Pinned]++
	}
	for _, p := range in.copies(of.A.ID) {
		have[p.spot()] = true
		on[p.Pinned]++
		in.review(now, of, p, spots[p.spot()], policy, fx)
	}
	for at := range in.begunFor(of) {
		if w := in.workers[at.worker()]; at.device() != "" && len(spots[at]) == 0 && !have[at] && (w == nil || !w.untold) {
			in.settled(of, at, fx) // there is nothing that the next version could serve
		}
	}
	for _, at := range slices.Sorted(maps.Keys(spots)) {
		if have[at] {
			continue
		}
		added := in.placeAt(now, of, at, spots[at], policy)
		if added == nil || in.places[added.A.ID] != nil {
			continue
		}
		if at.device() != "" && on[added.Pinned] >= spec.MaxCopiesWorker {
			in.crowded(now, of, added, fx)
			continue
		}
		if over = in.admission.CheckQuota(in.usedBy(added.A.Org, added.A.ID), &added.A); over != nil {
			break
		}
		on[added.Pinned]++
		added.Created = now
		added.Obs = wire.Observation{ID: added.A.ID, Gen: added.A.Gen, Fence: added.A.Fence, State: skerry.ClusterScheduled}
		in.addPlacement(added)
		in.wait(added.A.ID, true)
		in.changed(now, added, fx)
	}
	return over
}

// placeAt makes the copy for a spot on the best of the workers on which it can be; nil: none of them can take it. One that runs it already
// comes first.
func (in *intake) placeAt(now time.Time, g *group, at spot, workers []string, policy sched.Policy) (best *placement) {
	score := 0.0
	for _, name := range workers {
		p := g.copyAt(at, name)
		d := in.site.Place(now, policy, in.find.request(p), 0)
		if d.Chosen == "" {
			continue
		}
		if len(workers) == 1 || in.orphan[p.A.ID][name] {
			return p
		}
		if s := d.Top[0].Score; best == nil || s > score {
			best, score = p, s
		}
	}
	return best
}

// review ends a copy whose worker has left, or whose device has been gone for a while, and moves one for a device in a network to another
// worker that sees it. The workers given are those that do.
func (in *intake) review(now time.Time, of *group, held *placement, workers []string, policy sched.Policy, fx *wire.Effects) {
	w := in.workers[held.Pinned]
	switch {
	case held.Removing:
	case w != nil && w.untold && (len(workers) == 0 || !w.sight.Lost()): // it has yet to tell of its devices
	case len(workers) > 0:
		held.gone = time.Time{}
		in.follow(now, of, held, workers, policy, fx)
	case held.Spot == "" || w == nil || held.ended() || !held.gone.IsZero() && !now.Before(held.gone.Add(deviceGrace)):
		in.vacate(now, of, held, fx)
	default:
		if held.gone.IsZero() {
			held.gone = now
		}
		if ends := held.gone.Add(deviceGrace); in.goneAt.IsZero() || ends.Before(in.goneAt) {
			in.goneAt = ends
		}
	}
}

// vacate ends a copy whose spot is no longer there.
func (in *intake) vacate(now time.Time, of *group, held *placement, fx *wire.Effects) {
	if held.Spot != "" {
		in.settled(of, held.Spot, fx)
	}
	in.remove(now, held, fx)
}

// follow moves the copy for a device in a network to another of the workers that see it, if its own cannot have it any more.
func (in *intake) follow(now time.Time, of *group, held *placement, workers []string, policy sched.Policy, fx *wire.Effects) {
	present := in.workers[held.Pinned]
	why := ""
	switch {
	case !held.spot().inNetwork():
		return
	case held.Worker == "":
		why = "another worker can take it"
	case present != nil && present.sight.Lost():
		why = "its worker is out of touch, and another one sees its device"
	case present != nil && present.Drain != nil:
		why = "its worker is drained"
	case !slices.Contains(workers, held.Pinned):
		why = "its worker does not see its device any more"
	default:
		return
	}
	others := slices.DeleteFunc(slices.Clone(workers), func(name string) bool { return name == held.Pinned && held.Worker != "" })
	best := in.placeAt(now, of, held.spot(), others, policy)
	if best == nil || best.Pinned == held.Pinned {
		return
	}
	held.Pinned = best.Pinned
	if held.Worker == "" {
		in.changed(now, held, fx)
		return
	}
	in.move(now, held, why, false, fx)
}

// nextLook is when copies of groups are to be looked at next; zero: at no time.
func (in *intake) nextLook() time.Time {
	if in.goneAt.IsZero() || !in.steadyAt.IsZero() && in.steadyAt.Before(in.goneAt) {
		return in.steadyAt
	}
	return in.goneAt
}

// goneDue reports whether it is time to look for copies whose device has gone.
func (in *intake) goneDue(now time.Time) bool { return !in.goneAt.IsZero() && !now.Before(in.goneAt) }

// crowded tells once that a worker offers more devices than get an instance.
func (in *intake) crowded(now time.Time, g *group, p *placement, fx *wire.Effects) {
	if g.crowded {
		return
	}
	g.crowded = true
	in.event(fx, now, p, wire.EventWarning, "TooManyDevices", "worker "+p.Pinned+" offers more devices than get an instance of this service: "+
		strconv.Itoa(spec.MaxCopiesWorker)+" do")
}
