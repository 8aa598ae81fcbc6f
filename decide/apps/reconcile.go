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
			c.jobs.reconcileJob(now, a, s, fx)
		case spec.ModePerWorker:
			c.rollouts.reconcilePerWorker(now, a, s, fx)
		default:
			c.rollouts.reconcileService(now, a, s, fx)
		}
	}
	c.releaseClaims(now, k, a, fx)
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
