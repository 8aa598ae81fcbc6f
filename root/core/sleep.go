package core

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/wire"
)

// asleep gives the services of an application that no site has an instance of, until something comes for them (scale.min: 0); also
// one that was woken and has no place yet.
func (c *Core) asleep(app skerry.AppKey) (out []skerry.ServiceKey) {
	a := c.Apps.App(app)
	if a == nil || !a.Deployed || a.Deleting {
		return nil
	}
	for i := range a.Manifest.Spec.Services {
		s := &a.Manifest.Spec.Services[i]
		k := skerry.ServiceKey{App: app, Service: s.Name}
		if s.Sleeps() && !slices.ContainsFunc(c.Apps.Instances(k), func(i *apps.Instance) bool { return len(holders(i)) > 0 }) {
			out = append(out, k)
		}
	}
	return out
}

// keepAsleep adds to the sites that hold something of an application those that held what sleeps now: their ingresses wake it.
func (c *Core) keepAsleep(app skerry.AppKey, at map[string]bool) {
	if len(c.asleep(app)) == 0 {
		return
	}
	for site := range c.networks[app] {
		if c.Children.Get(site) != nil && !c.failover.lost[site] {
			at[site] = true
		}
	}
}

// awaited takes for which services clients wait at a site. Only one that has to do with an application can wake it.
func (c *Core) awaited(now time.Time, site string, r *wire.ClusterReport) {
	var list []skerry.ServiceKey
	if r.Ingress != nil {
		for _, d := range r.Ingress.Entries {
			if d.Waiting && c.networks[d.Service.App][site] {
				list = append(list, d.Service)
			}
		}
	}
	c.Apps.Waits(now, site, list)
}

// rouse wakes what sleeps where nobody could come for it: the sites that held it are gone.
func (c *Core) rouse(now time.Time, app skerry.AppKey, fx *wire.Effects) {
	if len(c.networks[app]) > 0 {
		return
	}
	for _, k := range c.asleep(app) {
		if *c.Apps.App(app).Manifest.Spec.Service(k.Service).Replicas == 0 {
			more, _ := c.Apps.Handle(now, apps.Scale{Service: k, Replicas: 1, Actor: "the root: no site is left that would wake it"})
			fx.Merge(more)
		}
	}
}

// gatesLost has the sites that are there for what sleeps looked at again.
func (c *Core) gatesLost(site string) {
	for app, at := range c.networks {
		if at[site] {
			c.netDirty[app] = true
		}
	}
}
