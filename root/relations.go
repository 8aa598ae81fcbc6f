package root

import (
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
)

// relations keep which sites have to do with each other, because one wants the routes of a service that another holds. All
// of it follows from what sites report.
type relations struct {
	wants map[skerry.ServiceKey]map[string]bool // sites that want the routes of a service
	told  map[string]map[string]bool            // by site: keys of items of this kind that it reports
	given map[string]map[string]bool            // by site: keys of items of this kind that it has
	apps  map[skerry.AppKey]bool                // applications of wanted services
	dirty bool
}

func newRelations() relations {
	return relations{wants: map[skerry.ServiceKey]map[string]bool{}, told: map[string]map[string]bool{}, given: map[string]map[string]bool{}, apps: map[skerry.AppKey]bool{}, dirty: true}
}

// relationItem reports whether an item that a site reports, or no longer does, is of this kind, and takes it up.
func (c *Core) relationItem(site, key string, there bool) bool {
	kind, _, _ := strings.Cut(key, "/")
	if kind != skerry.SiteItem && kind != "want" && kind != "to" {
		return false
	}
	r := &c.relations
	r.dirty = true
	if r.told[site] == nil {
		r.told[site] = map[string]bool{}
	}
	if there {
		r.told[site][key] = true
	} else {
		delete(r.told[site], key)
	}
	return true
}

// mayWant reports whether a site may know the routes of a service: it holds something of the application, or of one that
// the service is exported to.
func (c *Core) mayWant(site string, k skerry.ServiceKey) bool {
	for app, at := range c.networks {
		if at[site] && (app == k.App || c.Apps.Exported(app, k)) {
			return true
		}
	}
	return false
}

// publishRelations introduces sites that have to do with each other, and carries what they send each other.
func (c *Core) publishRelations() {
	r := &c.relations
	if !r.dirty {
		return
	}
	r.dirty = false
	clear(r.wants)
	clear(r.apps)
	items := map[string]map[string][]byte{} // by site
	put := func(site, key string, value []byte) {
		if items[site] == nil {
			items[site] = map[string][]byte{}
		}
		items[site][key] = value
	}
	info := map[string][]byte{}
	for _, name := range c.Kids.Names() {
		child := c.Kids.Get(name)
		for key := range r.told[name] {
			value, orphaned, ok := child.Observed.Get(key)
			if !ok || orphaned {
				continue
			}
			if key == skerry.SiteItem {
				var s skerry.SiteInfo
				if c.codec.Unmarshal(value, &s) == nil && string(s.Name) == name {
					info[name] = value
				}
			}
			var w skerry.Want
			if strings.HasPrefix(key, "want/") && c.codec.Unmarshal(value, &w) == nil && skerry.WantKey(w.Service) == key && c.mayWant(name, w.Service) {
				if r.wants[w.Service] == nil {
					r.wants[w.Service] = map[string]bool{}
				}
				r.wants[w.Service][name], r.apps[w.Service.App] = true, true
			}
		}
	}
	related := map[[2]string]bool{}
	for k, sites := range r.wants {
		for _, i := range c.Apps.Instances(k) {
			if i.Holder == "" {
				continue
			}
			for site := range sites {
				if site != i.Holder {
					put(i.Holder, skerry.WantedKey(k, site), []byte{})
					related[[2]string{site, i.Holder}], related[[2]string{i.Holder, site}] = true, true
				}
			}
		}
	}
	for pair := range related {
		if value := info[pair[1]]; value != nil {
			put(pair[0], skerry.SiteKey(pair[1]), value)
		}
	}
	for _, name := range c.Kids.Names() {
		for key := range r.told[name] {
			value, orphaned, there := c.Kids.Get(name).Observed.Get(key)
			if to, topic, ok := skerry.ParseMail(key); ok && there && !orphaned && strings.HasPrefix(key, "to/") && related[[2]string{name, to}] {
				put(to, skerry.MailFrom(name, topic), value)
			}
		}
	}
	for _, site := range c.Kids.Names() {
		for _, key := range slices.Sorted(maps.Keys(items[site])) {
			if c.Kids.Put(site, key, items[site][key]) == nil {
				if r.given[site] == nil {
					r.given[site] = map[string]bool{}
				}
				r.given[site][key] = true
			}
		}
		for key := range r.given[site] {
			if _, ok := items[site][key]; !ok {
				c.Kids.Delete(site, key)
				delete(r.given[site], key)
			}
		}
	}
}

// loadRelations finds out what an earlier life gave.
func (c *Core) loadRelations() {
	for _, name := range c.Kids.Names() {
		for key := range c.Kids.Get(name).Observed.All() {
			c.relationItem(name, key, true)
		}
		for _, key := range c.Kids.Get(name).Desired.Keys() {
			kind, _, _ := strings.Cut(key, "/")
			if kind == "site" || kind == "wanted" || kind == "from" {
				if c.relations.given[name] == nil {
					c.relations.given[name] = map[string]bool{}
				}
				c.relations.given[name][key] = true
			}
		}
	}
}
