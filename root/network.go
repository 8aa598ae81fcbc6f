package root

import (
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// loadNetworks finds out which sites an earlier life gave the directory of which application.
func (c *Core) loadNetworks() {
	for _, name := range c.Kids.Names() {
		for _, key := range c.Kids.Get(name).Desired.Keys() {
			if rest, ok := strings.CutPrefix(key, "net/"); ok {
				if app, err := skerry.ParseAppKey(rest, ""); err == nil {
					c.gaveNetwork(app, name)
				}
			}
		}
	}
	for app := range c.networks {
		c.netDirty[app] = true
	}
}

func (c *Core) gaveNetwork(app skerry.AppKey, site string) {
	if c.networks[app] == nil {
		c.networks[app] = map[string]bool{}
	}
	c.networks[app][site] = true
}

// publishNetworks gives the directory of an application, its network and its service addresses, to the sites that hold
// something of it.
func (c *Core) publishNetworks(now time.Time, fx *skerry.Effects) {
	for _, app := range c.Apps.Readdressed() {
		c.netDirty[app] = true
	}
	for _, app := range slices.SortedFunc(maps.Keys(c.netDirty), skerry.AppKey.Compare) {
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
				if c.Kids.Put(site, skerry.NetworkItem(app), value) == nil {
					c.gaveNetwork(app, site)
				}
			}
		}
		for site := range c.networks[app] {
			if !at[site] {
				c.Kids.Delete(site, skerry.NetworkItem(app))
				delete(c.networks[app], site)
			}
		}
		if len(c.networks[app]) == 0 {
			delete(c.networks, app)
		}
		c.rouse(now, app, fx)
	}
	clear(c.netDirty)
}
