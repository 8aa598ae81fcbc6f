package apps

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const (
	firstRetry  = time.Second
	longestWait = time.Minute
	maxTimeline = 24
	// steady is how long an instance must have run for its earlier failures to be forgotten.
	steady = 5 * time.Minute
)

// Reconcile brings the instances of every application that changed in line with what it asks for. It only decides: the
// core above places what is Unplaced and ends what is Stopping.
func (c *Controller) Reconcile(now time.Time) wire.Effects {
	var fx wire.Effects
	c.awake(now)
	// An application may become dirty again by what is done here; a bound keeps a mistake from spinning.
	for round := 0; c.Dirty() && round < 4; round++ {
		for _, k := range c.due() {
			c.reconcileApp(now, k, &fx)
		}
	}
	c.tellLate(now, &fx)
	return fx
}

func firstWhy(i *Instance) string {
	if len(i.Why) == 0 {
		return "no cluster is connected"
	}
	return i.Why[0].Text
}

func (c *Controller) reconcileApp(now time.Time, k skerry.AppKey, fx *wire.Effects) {
	a := c.apps[k]
	if a == nil || c.Frozen(k) {
		return
	}
	if a.Deleting {
		left := c.InstancesOf(k)
		for _, i := range left {
			c.stop(now, i, "its application is deleted", fx)
		}
		c.releaseClaims(now, k, a, fx)
		if len(c.InstancesOf(k)) == 0 {
			c.demand.drop(k)
			c.networks.drop(k, fx)
			c.history.drop(k, fx)
			c.forget(k, fx)
			fx.Changed = append(fx.Changed, wire.Change{App: k, Deleted: true})
			c.appEvent(fx, now, a, "", "Deleted", "nothing of it is left")
		}
		return
	}
	c.readdress(now, a, fx)
	if !a.Deployed {
		return
	}
	for _, sk := range c.servicesWithInstances(k) {
		if a.Manifest.Spec.Service(sk.Service) == nil {
			for _, i := range c.Instances(sk) {
				c.stop(now, i, "its service was removed from the application", fx)
			}
		}
	}
	c.autoscale(now, a, fx)
	for i := range a.Manifest.Spec.Services {
		s := &a.Manifest.Spec.Services[i]
		switch s.Mode {
		case spec.ModeJob, spec.ModeCron:
			c.reconcileJob(now, a, s, fx)
		case spec.ModePerWorker:
			c.reconcilePerWorker(now, a, s, fx)
		default:
			c.reconcileService(now, a, s, fx)
		}
	}
	c.releaseClaims(now, k, a, fx)
}

// reconcileService keeps replicas instances of the current revision. A rolling update never has more than replicas +
// maxSurge instances, and never fewer than replicas - maxUnavailable ready ones on its own account.
func (c *Controller) reconcileService(now time.Time, a *App, s *spec.ServiceSpec, fx *wire.Effects) {
	sk := skerry.ServiceKey{App: a.Key(), Service: s.Name}
	rev, want := a.revisions[s.Name], *s.Replicas
	var current, old []*Instance
	for _, i := range c.Instances(sk) {
		if c.settleCrashLoop(now, i) {
			c.saveInstance(i, fx)
		}
		switch {
		case i.State == skerry.Terminated && !i.Stopping && i.Revision == rev && want > 0:
			want-- // it has done its work, and its restart policy says that this was all
		case i.State == skerry.Terminated && !i.Stopping:
			c.discard(now, i, fx)
		case !i.Live():
		case i.wanted() == rev:
			c.unask(i, "", fx)
			current = append(current, i)
		default:
			c.unask(i, rev, fx)
			old = append(old, i)
		}
	}
	current, old = c.followLimits(now, a, s, current, old, fx)
	current = c.settleReplacements(now, current, fx)
	c.takeOver(now, a, s, current, fx)
	limit, ok := c.rollout(now, a, s, current, old, want, fx)
	if !ok {
		return // it goes back to what ran before
	}
	current, old = c.resize(now, a, s, current, old, limit, fx)
	if s.Update.Strategy == "recreate" && len(old) > 0 && (a.Paused[s.Name] != "" || a.waitsTurn(s.Name) != "") {
		return
	}
	if s.Update.Strategy == "recreate" && len(old) > 0 {
		end := true
		for _, i := range old {
			end = c.mayEnd(now, a, s, i, fx) && end
		}
		for _, i := range old {
			if end {
				c.stop(now, i, "replaced by a new version", fx)
			}
		}
		return // Gone makes the application dirty again
	}
	if s.Update.Strategy == "recreate" && c.anyStoppingOld(sk, rev) {
		return
	}
	// More than is wanted: end those first that serve least.
	if extra := len(current) - want; extra > 0 {
		slices.SortStableFunc(current, lessUseful)
		for _, i := range current[:extra] {
			c.stop(now, i, "scaled down", fx)
		}
		current = current[extra:]
	}
	leaving := c.leaving(s, sk)
	room := want + *s.Update.MaxSurge - len(current) - len(old) - leaving
	if len(old) == 0 {
		room = want - len(current) - leaving
	}
	for n := min(limit-len(current), room); n > 0; n-- {
		current = append(current, c.create(now, a, s, c.freeOrdinal(sk, rev), "", "", fx))
	}
	for n := want - limit - len(old) - leaving; n > 0 && len(old) > 0; n-- { // a wave is not done, and one of the others has gone
		old = append(old, c.createAs(now, a, old[0], c.freeOrdinal(sk, old[0].Revision), fx))
	}
	// Old ones that are not ready serve nobody and go at once, but only for what is already on its way in their place.
	ready, placed := 0, 0
	for _, i := range append(slices.Clone(current), old...) {
		if c.serves(now, a, s, i) {
			ready++
		}
	}
	for _, i := range current {
		if !c.serves(now, a, s, i) && (i.State == skerry.WorkerScheduled || i.State == skerry.Running) {
			placed++
		}
	}
	spare := ready - (want - *s.Update.MaxUnavailable)
	if !s.EndsFirst() { // else its holder is asked
		spare = min(spare, max(0, ready-want)+placed)
	}
	slices.SortStableFunc(old, lessUseful)
	for _, i := range old[:max(0, len(old)-max(0, want-limit))] {
		serving := i.IsReady()
		if serving && spare <= 0 || s.EndsFirst() && !c.mayEnd(now, a, s, i, fx) {
			continue
		}
		if serving {
			spare--
		}
		c.stop(now, i, "replaced by a new version", fx)
	}
	c.restartOneByOne(now, a, s, current, fx)
	if len(old) == 0 {
		c.seekElsewhere(now, a, s, current, fx)
	}
}

// lessUseful orders instances so that those that serve least come first.
func lessUseful(a, b *Instance) int {
	rank := func(i *Instance) int {
		switch {
		case i.IsReady():
			return 2
		case i.State == skerry.Running:
			return 1
		}
		return 0
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	return b.Ordinal - a.Ordinal
}

// takeOver lets instances of an unchanged template follow the application's generation without touching them.
func (c *Controller) takeOver(now time.Time, a *App, s *spec.ServiceSpec, list []*Instance, fx *wire.Effects) {
	for _, i := range list {
		if i.Resize != nil {
			if i.Resize.Gen != a.Gen {
				i.Resize.Gen, i.Resize.Spec = a.Gen, s
				c.saveInstance(i, fx)
			}
			continue
		}
		if i.Gen != a.Gen {
			i.Gen = a.Gen
			i.Spec = s
			i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, true, "")
			c.saveInstance(i, fx)
		}
	}
}

// restartOneByOne hands an asked-for restart to one instance at a time, so that the others serve meanwhile.
func (c *Controller) restartOneByOne(now time.Time, a *App, s *spec.ServiceSpec, list []*Instance, fx *wire.Effects) {
	asked := a.Restarts[s.Name]
	for _, i := range list {
		if i.Restart == asked && i.State == skerry.Running && !i.IsReady() && len(list) > 1 {
			return // the last one restarted is not back yet
		}
	}
	for _, i := range list {
		if i.Restart >= asked {
			continue
		}
		wasServing := i.IsReady()
		i.Restart = asked
		if wasServing {
			i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Ready, false, "restart was asked for")
		}
		c.saveInstance(i, fx)
		if wasServing {
			return
		}
	}
}

func (c *Controller) reconcilePerWorker(now time.Time, a *App, s *spec.ServiceSpec, fx *wire.Effects) {
	sk := skerry.ServiceKey{App: a.Key(), Service: s.Name}
	rev := a.revisions[s.Name]
	have := map[string]bool{}
	var list []*Instance
	for _, i := range c.Instances(sk) {
		if c.settleCrashLoop(now, i) {
			c.saveInstance(i, fx)
		}
		switch {
		case !i.Live():
		case i.Revision != rev || !slices.Contains(c.targets, i.Target) || !c.allows(s, i.Target) || have[i.Target]:
			c.stop(now, i, "replaced or no longer wanted there", fx)
		default:
			have[i.Target] = true
			list = append(list, i)
		}
	}
	c.takeOver(now, a, s, list, fx)
	for n, t := range c.targets {
		if !have[t] && c.allows(s, t) {
			c.create(now, a, s, n, t, "", fx)
		}
	}
	for _, i := range list {
		if i.Restart < a.Restarts[s.Name] {
			i.Restart = a.Restarts[s.Name]
			c.saveInstance(i, fx)
		}
	}
}

func orNothing(s string) string {
	if s == "" {
		return "ended"
	}
	return s
}

func (i *Instance) event(now time.Time, t wire.EventType, reason, text string) wire.Event {
	return wire.Event{At: now, Type: t, Reason: reason, Text: text, App: i.Service.App, Service: i.Service.Service,
		Instance: i.ID, Cluster: i.Cluster, Worker: i.Worker, Org: i.Org}
}

// step adds an entry to the timeline; the oldest but the first go when it grows long.
func (i *Instance) step(now time.Time, text string) {
	if n := len(i.Timeline); n > 0 && i.Timeline[n-1].State == i.State && i.Timeline[n-1].Phase == i.Phase && i.Timeline[n-1].Text == text {
		return
	}
	i.Timeline = append(i.Timeline, wire.Step{At: now, State: i.State, Phase: i.Phase, Text: text})
	if len(i.Timeline) > maxTimeline {
		i.Timeline = slices.Delete(i.Timeline, 1, 2)
	}
}
