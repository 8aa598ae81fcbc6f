package core

import (
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// publishNetworks gives the directory of an application, its network and its service addresses, to the sites that hold
// something of it.
func (c *Core) publishNetworks(now time.Time, fx *wire.Effects) {
	for _, app := range c.Apps.Readdressed() {
		c.nets.dirty[app] = true
	}
	for _, app := range slices.SortedFunc(maps.Keys(c.nets.dirty), skerry.AppKey.Compare) {
		if c.relations.apps[app] {
			c.relations.dirty = true // who holds what may have changed
		}
		at := map[string]bool{}
		for _, i := range c.Apps.InstancesOf(app) {
			for _, site := range holders(i) {
				at[site] = true
			}
		}
		c.keepAsleep(app, at)
		if n := c.Apps.Network(app); n != nil && len(at) > 0 {
			value := c.codec.Marshal(n)
			for site := range at {
				if c.Children.Put(site, wire.NetworkItem(app), value) == nil {
					c.nets.gave(app, site)
				}
			}
		}
		for site := range c.nets.sites[app] {
			if !at[site] {
				c.Children.Delete(site, wire.NetworkItem(app))
				delete(c.nets.sites[app], site)
				c.relations.lately = append(c.relations.lately, leftSite{app, site, now})
			}
		}
		if len(c.nets.sites[app]) == 0 {
			delete(c.nets.sites, app)
		}
		c.rouse(now, app, fx)
	}
	c.nets.dirty = map[skerry.AppKey]bool{} // a cleared map keeps its size, and copying or ranging over it stays as slow
}

// leftSite is a site that held something of an application until a moment ago.
type leftSite struct {
	app  skerry.AppKey
	site string
	at   time.Time
}

// speaksFor is how long a site may still tell of an application of which it holds nothing any more: what it told may be on its way.
const speaksFor = 10 * time.Minute

// concerns reports whether a site has to do with an application, or had a moment ago. What it says of others is not listened to.
func concerns(c *Core, now time.Time, site string, app skerry.AppKey) bool {
	c.relations.lately = slices.DeleteFunc(c.relations.lately, func(l leftSite) bool { return now.Sub(l.at).Abs() > speaksFor })
	return c.nets.sites[app][site] || c.nets.holds(site, app) ||
		slices.ContainsFunc(c.relations.lately, func(l leftSite) bool { return l.app == app && l.site == site })
}
