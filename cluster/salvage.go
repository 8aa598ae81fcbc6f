package cluster

import (
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

// notGiven is why what a worker holds is not taken up.
const notGiven = "it is not shown that this site gave it to that worker; apply its application again"

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
		if !has || orphaned || c.said(value, &obs) != nil || c.codec.Unmarshal(o.Value, &a) != nil || string(a.ID) != id {
			continue
		}
		why := notGiven
		if c.wasGiven(child.Name, o.Value) {
			why = c.salvageOne(now, child.Name, &a, &obs, fx)
		}
		if why != "" {
			c.rebuild.Left(a.ID, "on worker "+child.Name+", of "+a.Service.String()+": "+why)
		}
	}
}

func (c *Core) salvageOne(now time.Time, worker string, a *spec.Assignment, obs *wire.Observation, fx *wire.Effects) (why string) {
	switch app := c.Apps.App(a.Service.App); {
	case a.Spec.Mode != spec.ModeService:
		return "only services are taken up, and this is a " + string(a.Spec.Mode)
	case obs.State != skerry.Running || obs.Fence != a.Fence:
		return "it does not run as it was assigned last"
	case app != nil && !c.rebuild.Made(a.Service.App):
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
	c.rebuild.Took(a.Service, a.ID, wanted)
	c.siteEvent(fx, now, wire.EventNormal, "Salvaged", fmt.Sprintf("%s, an instance of %s, runs on worker %s; its application was rebuilt from what the worker holds", a.ID, a.Service, worker), worker)
	return ""
}

// rootAway reports whether there is a root, and it is not connected.
func (c *Core) rootAway() bool { return !c.opt.Standalone && !c.Up.Connected }

// endRebuild takes up what workers run once they have had their time, and has services be as many as they were.
func (c *Core) endRebuild(now time.Time, fx *wire.Effects) {
	if !c.rebuild.End(now, c.rootAway()) {
		return
	}
	for _, name := range c.Kids.Names() {
		if child := c.Kids.Get(name); child.Settled() {
			c.salvageFrom(now, child, fx)
		}
	}
	for _, r := range c.rebuild.Services() {
		if r.Wanted > r.Instances {
			more, _ := c.Apps.Handle(now, apps.Scale{Service: r.Service, Replicas: r.Wanted, Actor: "rebuilt"})
			fx.Merge(more)
		}
	}
	c.siteEvent(fx, now, wire.EventNormal, "Rebuilt", "the site was rebuilt from what its workers hold; `skerry cluster status` tells what was not recovered", "")
}

// Rebuilt tells what a rebuild has come to, or nil for a site that is not rebuilt.
func (c *Core) Rebuilt() *view.Rebuilt {
	if !c.opt.Rebuild {
		return nil
	}
	r := &view.Rebuilt{Waiting: c.rebuild.Waits()}
	for _, name := range c.Kids.Names() {
		if c.Kids.Get(name).Connected {
			r.Workers++
		}
	}
	r.Own = c.rebuild.Services()
	for _, p := range c.places {
		if p.Origin == "root" && p.Worker != "" && !p.Removing {
			r.OfRoot++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.astray)) {
		why := c.rebuild.Why(id)
		if why == "" {
			why = "on worker " + strings.Join(slices.Sorted(maps.Keys(c.astray[id])), ", ") + ": nobody has asked for it"
		}
		if c.places[id] == nil {
			r.Left = append(r.Left, view.RebuiltLeft{Instance: id, Why: why})
		}
	}
	return r
}
