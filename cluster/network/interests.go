package network

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
)

const (
	// MaxWants bounds what one worker can make the site keep.
	MaxWants = 4096
	// refillPause is the least time between two looks at the interests of workers that have too many.
	refillPause = time.Second
)

// Interests is which workers, and which other sites, want the routes of which services, and which of those routes must be worked out again.
// Workers report their interests, and the root reports those of other sites, so nothing is written down; what a worker wanted when the site
// was started anew, the routes say that it has.
type Interests struct {
	here   map[skerry.ServiceKey]map[string]bool        // workers
	abroad map[skerry.ServiceKey]map[string]bool        // other sites
	of     map[string]map[skerry.ServiceKey]bool        // by worker
	apps   map[skerry.AppKey]map[skerry.ServiceKey]bool // services of an application that anybody wants
	dirty  map[skerry.ServiceKey]bool                   // services whose routes must be worked out again
	// recalled are, by worker, interests of an earlier life of the site that it has not told again.
	recalled map[string]map[skerry.ServiceKey]bool
	// refill are workers with more interests than they may have, of which some have ended; they are looked at from refillAt on.
	refill   map[string]bool
	refillAt time.Time
}

// NewInterests makes a site of which nobody wants anything.
func NewInterests() *Interests {
	return &Interests{here: map[skerry.ServiceKey]map[string]bool{}, abroad: map[skerry.ServiceKey]map[string]bool{},
		of:   map[string]map[skerry.ServiceKey]bool{},
		apps: map[skerry.AppKey]map[skerry.ServiceKey]bool{}, dirty: map[skerry.ServiceKey]bool{}, refill: map[string]bool{},
		recalled: map[string]map[skerry.ServiceKey]bool{}}
}

// Add takes an interest of a worker, unless it has too many.
func (n *Interests) Add(worker string, k skerry.ServiceKey) bool {
	if n.Full(worker) && !n.of[worker][k] {
		return false
	}
	add(n.here, k, worker)
	add(n.of, worker, k)
	add(n.apps, k.App, k)
	remove(n.recalled, worker, k)
	n.dirty[k] = true
	return true
}

// Recall takes an interest that a worker told an earlier life of the site; it holds until the worker has told all that it wants.
func (n *Interests) Recall(worker string, k skerry.ServiceKey) bool {
	if !n.Add(worker, k) {
		return false
	}
	add(n.recalled, worker, k)
	return true
}

// Recalled lists the interests of a worker that it told an earlier life and not this one, in any order.
func (n *Interests) Recalled(worker string) []skerry.ServiceKey {
	return slices.Collect(maps.Keys(n.recalled[worker]))
}

// Full reports whether a worker has as many interests as it may.
func (n *Interests) Full(worker string) bool { return len(n.of[worker]) >= MaxWants }

// Remove ends an interest of a worker.
func (n *Interests) Remove(worker string, k skerry.ServiceKey) {
	if len(n.of[worker]) == MaxWants && n.of[worker][k] {
		n.refill[worker] = true // there is room for one that was refused
	}
	remove(n.here, k, worker)
	remove(n.of, worker, k)
	remove(n.recalled, worker, k)
	n.forget(k)
	n.dirty[k] = true
}

// AddSite takes an interest of another site.
func (n *Interests) AddSite(site string, k skerry.ServiceKey) {
	add(n.abroad, k, site)
	add(n.apps, k.App, k)
	n.dirty[k] = true
}

// RemoveSite ends an interest of another site.
func (n *Interests) RemoveSite(site string, k skerry.ServiceKey) {
	remove(n.abroad, k, site)
	n.forget(k)
	n.dirty[k] = true
}

// forget takes a service that nobody wants any more off its application.
func (n *Interests) forget(k skerry.ServiceKey) {
	if !n.Wanted(k) {
		remove(n.apps, k.App, k)
	}
}

// Wanted reports whether a worker here or another site wants the routes of a service.
func (n *Interests) Wanted(k skerry.ServiceKey) bool { return len(n.here[k])+len(n.abroad[k]) > 0 }

// Has reports whether a worker wants the routes of a service.
func (n *Interests) Has(worker string, k skerry.ServiceKey) bool { return n.of[worker][k] }

// SiteHas reports whether another site wants the routes of a service.
func (n *Interests) SiteHas(site string, k skerry.ServiceKey) bool { return n.abroad[k][site] }

// Of lists what a worker wants, in any order.
func (n *Interests) Of(worker string) []skerry.ServiceKey {
	return slices.Collect(maps.Keys(n.of[worker]))
}

// Workers lists the workers that want the routes of a service, in any order.
func (n *Interests) Workers(k skerry.ServiceKey) iter.Seq[string] { return maps.Keys(n.here[k]) }

// Sites lists the other sites that want the routes of a service, by name.
func (n *Interests) Sites(k skerry.ServiceKey) []string { return slices.Sorted(maps.Keys(n.abroad[k])) }

// Touch has the routes of a service worked out again. The ones below do so for all that depends on what changed.
func (n *Interests) Touch(k skerry.ServiceKey) { n.dirty[k] = true }

// TouchApp has the routes worked out again of what is wanted of an application.
func (n *Interests) TouchApp(app skerry.AppKey) { maps.Copy(n.dirty, n.apps[app]) }

// TouchSite has the routes worked out again of what another site wants.
func (n *Interests) TouchSite(site string) {
	for k, by := range n.abroad {
		if by[site] {
			n.dirty[k] = true
		}
	}
}

// TouchAbroad has the routes worked out again of what any other site wants.
func (n *Interests) TouchAbroad() {
	for k := range n.abroad {
		n.dirty[k] = true
	}
}

// TouchRights has a worker's routes to services of other applications than one worked out again, because that one, or what is exported to
// it, came or went there.
func (n *Interests) TouchRights(worker string, app skerry.AppKey) {
	for k := range n.of[worker] {
		if k.App != app {
			n.dirty[k] = true
		}
	}
}

// Changed lists the services whose routes must be worked out, once.
func (n *Interests) Changed() []skerry.ServiceKey {
	out := slices.SortedFunc(maps.Keys(n.dirty), skerry.ServiceKey.Compare)
	clear(n.dirty)
	return out
}

// Due is when there may be room for interests that were refused, or the zero time.
func (n *Interests) Due() time.Time {
	if len(n.refill) == 0 {
		return time.Time{}
	}
	return n.refillAt
}

// Refill lists the workers that have room for interests that were refused, where it is time, in any order.
func (n *Interests) Refill(now time.Time) []string {
	if len(n.refill) == 0 || now.Before(n.refillAt) {
		return nil
	}
	n.refillAt = now.Add(refillPause)
	out := slices.Collect(maps.Keys(n.refill))
	clear(n.refill)
	return out
}

// Audit reports where the lists contradict each other.
func (n *Interests) Audit() (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	here, apps := map[skerry.ServiceKey]map[string]bool{}, map[skerry.AppKey]map[skerry.ServiceKey]bool{}
	for worker, list := range n.of {
		if len(list) == 0 || len(list) > MaxWants {
			bad("%s has %d interests", worker, len(list))
		}
		for k := range list {
			add(here, k, worker)
			add(apps, k.App, k)
		}
	}
	for k, by := range n.here {
		if !maps.Equal(by, here[k]) {
			bad("%s is wanted by %d workers, and listed with %d", k, len(here[k]), len(by))
		}
	}
	if len(n.here) != len(here) {
		bad("%d services are wanted here, %d listed", len(here), len(n.here))
	}
	for k, by := range n.abroad {
		if len(by) == 0 {
			bad("%s is listed for other sites, and none wants it", k)
		}
		add(apps, k.App, k)
	}
	for worker, list := range n.recalled {
		for k := range list {
			if !n.of[worker][k] {
				bad("%s is recalled for %s, which does not have it", k, worker)
			}
		}
	}
	if !maps.EqualFunc(n.apps, apps, maps.Equal) {
		bad("of applications %v are wanted, listed %v", apps, n.apps)
	}
	return faults
}

// add and remove keep sets by key; there are no empty ones.
func add[K, V comparable](m map[K]map[V]bool, k K, v V) {
	if m[k] == nil {
		m[k] = map[V]bool{}
	}
	m[k][v] = true
}

func remove[K, V comparable](m map[K]map[V]bool, k K, v V) {
	if delete(m[k], v); len(m[k]) == 0 {
		delete(m, k)
	}
}
