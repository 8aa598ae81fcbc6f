package core

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// relations keep which sites have to do with each other, because one wants the routes of a service that another holds. All
// of it follows from what sites report.
type relations struct {
	wants map[skerry.ServiceKey]map[string]bool // sites that want the routes of a service
	told  map[string]map[string][]byte          // by site: items of this kind that it reports, mail as it was carried last
	given map[string]map[string]bool            // by site: keys of items of this kind that it has
	apps  map[skerry.AppKey]bool                // applications of wanted services
	// whole are sites that have told all of their set in this life. What they reported to an earlier one is not kept, so
	// that until then nothing follows from what is missing.
	whole  map[string]bool
	dirty  bool
	lately []leftSite // sites that held something of an application until a moment ago
	// refused holds by site keys of what it said and may not: interests above maxWants, and mail that it has no part in. Counts
	// is how many there were so far, by what is wrong with them.
	refused  map[string]map[string]bool
	counts   map[string]int
	gateways gateways
}

// What is refused.
const (
	refusedWant = "more interests than a site may have"
	refusedMail = "mail of a site that has no part in it"
	refusedTold = "more of a site than is looked at"
	// refusedExtent is told of a site whose instances others do not reach by such an address.
	refusedExtent = "addresses of instances that another site has"
)

// maxWants bounds the services of other sites whose routes one site may want, maxTold all that it may tell of this kind: all of it is
// looked at whenever something of any site changes.
const maxWants, maxTold = 16384, 1 << 17

func newRelations() relations {
	return relations{wants: map[skerry.ServiceKey]map[string]bool{}, told: map[string]map[string][]byte{}, given: map[string]map[string]bool{},
		apps: map[skerry.AppKey]bool{}, whole: map[string]bool{}, refused: map[string]map[string]bool{},
		counts: map[string]int{refusedWant: 0, refusedMail: 0, refusedTold: 0, refusedExtent: 0}, dirty: true}
}

// item reports whether an item that a site reports, or no longer does, is of this kind, and takes it up.
func (r *relations) item(site, key string, there bool) bool {
	kind, _, _ := strings.Cut(key, "/")
	if kind != wire.SiteItem && kind != "want" && kind != "to" {
		return false
	}
	if r.told[site] == nil {
		r.told[site] = map[string][]byte{}
	}
	if _, known := r.told[site][key]; there && !known && len(r.told[site]) >= maxTold {
		r.counts[refusedTold]++
		return true
	}
	r.dirty = true
	if _, known := r.told[site][key]; there && !known {
		r.told[site][key] = nil // nothing of it was carried
	} else if !there {
		delete(r.told[site], key)
	}
	return true
}

// publishRelations introduces sites that have to do with each other, and carries what they send each other.
func (c *Core) publishRelations(now time.Time, fx *wire.Effects) {
	rel := &c.relations
	if !rel.dirty {
		return
	}
	rel.dirty = false
	clear(rel.wants)
	clear(rel.apps)
	items := map[string]map[string][]byte{} // by site
	put := func(site, key string, value []byte) {
		if items[site] == nil {
			items[site] = map[string][]byte{}
		}
		items[site][key] = value
	}
	info, refused := map[string][]byte{}, map[string]map[string]bool{}
	refuse := func(site, key, why string) {
		if refused[site] == nil {
			refused[site] = map[string]bool{}
			if len(rel.refused[site]) == 0 {
				fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "OverlayRefused",
					Cluster: skerry.ClusterName(site), Text: "cluster " + site + ": " + why})
			}
		}
		if refused[site][key] = true; !rel.refused[site][key] {
			rel.counts[why]++
		}
	}
	for _, name := range c.Children.Names() {
		child := c.Children.Get(name)
		wants := 0
		for _, key := range slices.Sorted(maps.Keys(rel.told[name])) {
			value, orphaned, ok := child.Observed.Get(key)
			if !ok || orphaned {
				continue
			}
			if key == wire.SiteItem {
				h := c.extents.introduce(name, value, fx)
				info[name] = h.told
				for _, p := range h.refused {
					refuse(name, key+" "+p.String(), refusedExtent)
				}
			}
			var w wire.Want
			if strings.HasPrefix(key, "want/") && c.codec.Unmarshal(value, &w) == nil && wire.WantKey(w.Service) == key {
				if wants++; wants > maxWants {
					refuse(name, key, refusedWant)
					continue
				}
				rel.apps[w.Service.App] = true // it may come to want what it may not know yet
				if !c.nets.mayWant(name, w.Service) {
					continue
				}
				if rel.wants[w.Service] == nil {
					rel.wants[w.Service] = map[string]bool{}
				}
				rel.wants[w.Service][name] = true
			}
		}
	}
	related := map[[2]string]bool{}
	routes := map[[2]string]map[string]bool{} // topics that one site may write to another about
	for service, sites := range rel.wants {
		for _, inst := range c.Apps.Instances(service) {
			at := holders(inst)
			if inst.Holder != "" && !c.serves(inst) {
				at = at[1:]
			}
			for _, holder := range at {
				if inst.Left != nil && holder == inst.Left.Holder && !c.Children.Get(holder).Connected {
					continue // nobody is sent to what was left behind
				}
				for site := range sites {
					if site != holder {
						put(holder, wire.WantedKey(service, site), []byte{})
						related[[2]string{site, holder}], related[[2]string{holder, site}] = true, true
						from := [2]string{holder, site}
						if routes[from] == nil {
							routes[from] = map[string]bool{}
						}
						routes[from][wire.TopicRoute(service)] = true
					}
				}
			}
		}
	}
	for pair := range related {
		if value := info[pair[1]]; value != nil {
			put(pair[0], wire.SiteKey(pair[1]), value)
		}
	}
	for _, name := range c.Children.Names() {
		for key := range rel.told[name] {
			value, orphaned, there := c.Children.Get(name).Observed.Get(key)
			to, topic, ok := wire.ParseMail(key)
			if !there || orphaned || !strings.HasPrefix(key, "to/") {
				continue
			}
			// A site tells of workers whom it exchanges packets with, and of the routes of what it holds whom wants them: it
			// cannot take what is meant for services of others. Who is told of a route may confirm it.
			path, answered := [2]string{name, to}, false
			if of, is := wire.AnswersTopic(topic); is {
				answered = routes[[2]string{to, name}][of]
			}
			lawful := ok && (related[path] && topic == wire.TopicPeers || routes[path][topic] || answered)
			if lawful {
				put(to, wire.MailFrom(name, topic), value)
			}
			// What has come to its end is no offence until the site has heard of that.
			if was := rel.told[name][key]; lawful || rel.given[to][wire.MailFrom(name, topic)] {
				rel.told[name][key] = value
			} else if was == nil || !bytes.Equal(was, value) {
				refuse(name, key, refusedMail)
			}
		}
	}
	for _, site := range c.Children.Names() {
		for _, key := range slices.Sorted(maps.Keys(items[site])) {
			if c.Children.Put(site, key, items[site][key]) == nil {
				if rel.given[site] == nil {
					rel.given[site] = map[string]bool{}
				}
				rel.given[site][key] = true
			}
		}
		for _, key := range slices.Sorted(maps.Keys(rel.given[site])) {
			if _, ok := items[site][key]; !ok && !c.untold(site) && !c.untold(about(key)) {
				c.Children.Delete(site, key)
				delete(rel.given[site], key)
			}
		}
	}
	rel.refused = refused
}

// untold reports whether a site is still expected to tell what it has to do with others: it has not been back since the root
// was started, and is not given up.
func (c *Core) untold(site string) bool {
	return !c.relations.whole[site] && c.Children.Get(site) != nil && !c.failover.lost[site]
}

// about gives the site that an item of this kind tells another one of.
func about(key string) string {
	if _, site, ok := wire.ParseWantedKey(key); ok {
		return site
	}
	if site, _, ok := wire.ParseMail(key); ok {
		return site
	}
	return strings.TrimPrefix(key, "site/")
}

// loadRelations finds out what an earlier life gave.
func (c *Core) loadRelations() {
	for _, name := range c.Children.Names() {
		for key := range c.Children.Get(name).Observed.All() {
			c.relations.item(name, key, true)
		}
		for _, key := range c.Children.Get(name).Desired.Keys() {
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
