package apps

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
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
			fx.Changed = append(fx.Changed, wire.Change{App: k, Org: a.Org, Deleted: true})
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
		case spec.ModePerWorker, spec.ModePerDevice:
			c.rollouts.reconcileCopies(now, a, s, fx)
		default:
			c.rollouts.reconcileService(now, a, s, fx)
		}
	}
	c.releaseClaims(now, k, a, fx)
}
