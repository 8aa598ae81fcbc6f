package core

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/wire"
)

// keepAsleep adds to the sites that hold something of an application those that held what sleeps now: their ingresses wake it.
func (c *Core) keepAsleep(app skerry.AppKey, at map[string]bool) {
	if len(c.nets.asleep(app)) == 0 {
		return
	}
	for site := range c.nets.sites[app] {
		if c.Children.Get(site) != nil && !c.failover.lost[site] {
			at[site] = true
		}
	}
}

// rouse wakes what sleeps where nobody could come for it: the sites that held it are gone.
func (c *Core) rouse(now time.Time, app skerry.AppKey, fx *wire.Effects) {
	if len(c.nets.sites[app]) > 0 {
		return
	}
	for _, k := range c.nets.asleep(app) {
		if *c.Apps.App(app).Manifest.Spec.Service(k.Service).Replicas == 0 {
			more, _ := c.Apps.Handle(now, apps.Scale{Service: k, Replicas: 1, Actor: "the root: no site is left that would wake it"})
			fx.Merge(more)
		}
	}
}
