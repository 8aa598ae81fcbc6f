package cluster

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/fleet"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// salvage is what a core that is rebuilt has found so far.
type salvage struct {
	own    map[skerry.ServiceKey]int    // instances of the site's own services that were taken up
	wanted map[skerry.ServiceKey]int    // how many there were, by their assignments
	left   map[skerry.InstanceID]string // what runs on and was not taken up, and why
	done   bool                         // the time for workers to come back is over
}

// rebuilding reports whether workers still have time to tell what runs on them, and the root what it wants, before anything is placed
// anew.
func (c *Core) rebuilding() bool { return c.opt.Rebuild && !c.salvaged.done }

// rebuildDue is when that time ends; a root that is away is waited for ten times as long, since what it wants here cannot be told
// from the site's own without it.
func (c *Core) rebuildDue() time.Time {
	if c.opt.Standalone || c.Up.Connected {
		return c.started.Add(c.opt.StartGrace)
	}
	return c.started.Add(10 * c.opt.StartGrace)
}

// ofSite reports whether an instance's id was minted by a site for an application of its own; a root's have another letter.
func ofSite(id skerry.InstanceID) bool {
	return strings.HasPrefix(string(id[strings.LastIndexByte(string(id), '-')+1:]), "c")
}

// sealKey is the key of what this site gives its workers, which any backup has.
func sealKey(c *Core) []byte {
	key := hmac.New(sha256.New, c.fabric.Secret)
	key.Write([]byte("assignment"))
	return key.Sum(nil)
}

// given encodes an assignment for a worker.
func given(c *Core, worker string, a *spec.Assignment) []byte {
	a.Seal = nil
	value := c.item(worker, a)
	if w := c.workers[worker]; w == nil || w.Carrier != "" || !ofSite(a.ID) {
		return value
	}
	a.Seal = c.codec.Seal(sealKey(c), worker, value)
	return c.item(worker, a)
}

// notGiven is why what a worker holds is not taken up.
const notGiven = "it is not shown that this site gave it to that worker; apply its application again"

// wasGiven reports whether an assignment that a worker holds has the seal with which this site gave it to that worker.
func wasGiven(c *Core, worker string, value []byte) bool {
	return c.codec.Sealed(sealKey(c), worker, value)
}

// salvageFrom takes up what a worker runs of the site's own applications, which this store has lost, with what the worker holds of
// it. What is the root's, the root tells itself, and adopt then finds the copy that runs.
func (c *Core) salvageFrom(now time.Time, child *fleet.Child, fx *wire.Effects) {
	orphans, known := child.Desired.Orphans()
	if !known {
		return
	}
	for _, o := range orphans {
		id, ok := strings.CutPrefix(o.Key, "inst/")
		if !ok || c.places[skerry.InstanceID(id)] != nil || !ofSite(skerry.InstanceID(id)) {
			continue
		}
		value, orphaned, has := child.Observed.Get(o.Key)
		var a spec.Assignment
		var obs wire.Observation
		if !has || orphaned || said(c, value, &obs) != nil || c.codec.Unmarshal(o.Value, &a) != nil || string(a.ID) != id {
			continue
		}
		why := notGiven
		if wasGiven(c, child.Name, o.Value) {
			why = c.salvageOne(now, child.Name, &a, &obs, fx)
		}
		if why != "" {
			c.salvaged.left[a.ID] = "on worker " + child.Name + ", of " + a.Service.String() + ": " + why
		}
	}
}

func (c *Core) salvageOne(now time.Time, worker string, a *spec.Assignment, obs *wire.Observation, fx *wire.Effects) (why string) {
	switch app := c.Apps.App(a.Service.App); {
	case a.Spec.Mode != spec.ModeService:
		return "only services are taken up, and this is a " + string(a.Spec.Mode)
	case obs.State != skerry.Running || obs.Fence != a.Fence:
		return "it does not run as it was assigned last"
	case app != nil && c.salvaged.own[a.Service] == 0 && !c.salvagedApp(a.Service.App):
		return "the application is there already, and does not know this instance"
	}
	if c.Apps.Instance(a.ID) != nil {
		return ""
	}
	wanted := 1
	if a.Spec.Replicas != nil {
		wanted = *a.Spec.Replicas
	}
	if err := takeUp(c, now, a, obs, fx); err != nil {
		return err.Error()
	}
	c.salvaged.own[a.Service]++
	c.salvaged.wanted[a.Service] = max(c.salvaged.wanted[a.Service], wanted)
	delete(c.salvaged.left, a.ID)
	c.siteEvent(fx, now, wire.EventNormal, "Salvaged", fmt.Sprintf("%s, an instance of %s, runs on worker %s; its application was rebuilt from what the worker holds", a.ID, a.Service, worker), worker)
	return ""
}

func (c *Core) salvagedApp(k skerry.AppKey) bool {
	for s := range c.salvaged.own {
		if s.App == k {
			return true
		}
	}
	return false
}

// endRebuild takes up what workers run once they have had their time, and has services be as many as they were.
func (c *Core) endRebuild(now time.Time, fx *wire.Effects) {
	if !c.rebuilding() || now.Before(c.rebuildDue()) {
		return
	}
	c.salvaged.done = true
	for _, name := range c.Kids.Names() {
		if child := c.Kids.Get(name); child.Settled() {
			c.salvageFrom(now, child, fx)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.salvaged.own), skerry.ServiceKey.Compare) {
		if n := c.salvaged.wanted[k]; n > c.salvaged.own[k] {
			more, _ := c.Apps.Handle(now, apps.Scale{Service: k, Replicas: n, Actor: "rebuilt"})
			fx.Merge(more)
		}
	}
	c.siteEvent(fx, now, wire.EventNormal, "Rebuilt", "the site was rebuilt from what its workers hold; `skerry cluster status` tells what was not recovered", "")
}

// placeRebuilding looks for copies that run of what waits for a place; nothing is placed anew yet.
func (c *Core) placeRebuilding(now time.Time, fx *wire.Effects) {
	for _, id := range sortedIDs(c.waiting) {
		if p := c.places[id]; p != nil && c.adopt(now, p, fx) {
			delete(c.waiting, id)
			c.changed(now, p, fx)
		}
	}
}

// Rebuilt tells what a rebuild has come to, or nil for a site that is not rebuilt.
func (c *Core) Rebuilt() *view.Rebuilt {
	if !c.opt.Rebuild {
		return nil
	}
	r := &view.Rebuilt{Waiting: c.rebuilding()}
	for _, name := range c.Kids.Names() {
		if c.Kids.Get(name).Connected {
			r.Workers++
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.salvaged.own), skerry.ServiceKey.Compare) {
		r.Own = append(r.Own, view.RebuiltService{Service: k, Instances: c.salvaged.own[k], Wanted: c.salvaged.wanted[k]})
	}
	for _, p := range c.places {
		if p.Origin == "root" && p.Worker != "" && !p.Removing {
			r.OfRoot++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.astray)) {
		why, ok := c.salvaged.left[id]
		if !ok {
			why = "on worker " + strings.Join(slices.Sorted(maps.Keys(c.astray[id])), ", ") + ": nobody has asked for it"
		}
		if c.places[id] == nil {
			r.Left = append(r.Left, view.RebuiltLeft{Instance: id, Why: why})
		}
	}
	return r
}
