package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// orphan is one with what its site holds of it.
type orphan struct {
	view.Orphan
	a   spec.Assignment
	obs wire.Observation
}

// orphans lists what sites run of the root's and this store does not know.
func orphans(core *Core) (list []orphan) {
	for _, name := range core.Children.Names() {
		child := core.Children.Get(name)
		left, _ := child.Desired.Orphans()
		var keys []string
		for key := range child.Observed.All() {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			id, ok := strings.CutPrefix(key, "inst/")
			if !ok || core.Apps.Instance(skerry.InstanceID(id)) != nil {
				continue
			}
			if child.Desired.Has(key) {
				continue
			}
			x := orphan{}
			if x.obs, ok = core.observation(child, skerry.InstanceID(id)); !ok {
				continue
			}
			var held *spec.Assignment
			sealed := false
			for _, o := range left {
				if o.Key == key && core.codec.Unmarshal(o.Value, &x.a) == nil && string(x.a.ID) == id {
					held, sealed = &x.a, core.codec.Sealed(core.opt.SealKey, name, o.Value)
				}
			}
			x.Orphan = view.NewOrphan(skerry.InstanceID(id), held, &x.obs)
			x.Cluster = skerry.ClusterName(name)
			if x.Problem == "" && !sealed { // adopted, it may be placed at other sites
				x.Problem = "it is not shown that this root gave it to that site; apply its application again"
			}
			list = append(list, x)
		}
	}
	return list
}

// decideOrphans ends what a site has of an earlier life of its set and what is somewhere else now. What this store does not know
// runs on.
func (c *Core) decideOrphans(child *members.Child) {
	var elsewhere []string
	for key := range child.Desired.EachOrphan { // after each message of the site, and most it has are its own
		id, ok := strings.CutPrefix(key, "inst/")
		i := c.Apps.Instance(skerry.InstanceID(id))
		if !ok || i == nil || c.failover.next[i.ID] == child.Name || c.failover.left[i.ID] == child.Name {
			continue // unknown, or a copy whose fate is decided elsewhere
		}
		if i.Holder != child.Name {
			elsewhere = append(elsewhere, key)
		}
	}
	slices.Sort(elsewhere)
	for _, key := range elsewhere {
		c.Children.Delete(child.Name, key)
	}
}

// decideOrphan adopts or ends an orphan, at every site that has it.
func decideOrphan(core *Core, now time.Time, msg apps.DecideOrphan, fx *wire.Effects) {
	done := false
	tell := func(site, reason, text string) {
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventNormal, Reason: reason, Text: text, Cluster: skerry.ClusterName(site)})
	}
	for _, found := range orphans(core) {
		if found.Name() != msg.Name {
			continue
		}
		site := string(found.Cluster)
		switch {
		case !msg.Adopt || done: // of two copies one is adopted
			core.Children.Delete(site, wire.AssignmentKey(found.Instance))
			tell(site, "OrphanEnded", fmt.Sprintf("%s at cluster %s, which this store did not know, is ended by %s", msg.Name, site,
				cmp.Or(msg.Actor, "the system")))
		case found.Problem != "":
			fx.Err = skerry.Errorf(skerry.CodeConflict, "%s at cluster %s cannot be adopted: %s", msg.Name, site, found.Problem).WithHint("`skerry delete orphan` ends it; it is no part of an application")
			return
		default:
			spec := found.a.Spec
			i := &apps.Instance{Instance: wire.Instance{ID: found.Instance, Service: found.a.Service, Org: found.a.Org, Ordinal: found.a.Ordinal,
				Gen: found.a.Gen, Revision: found.a.Revision,
				State: skerry.Running, Phase: found.obs.Phase, Cluster: found.Cluster, Fence: found.a.Fence, CreatedAt: now},
				Spec: &spec, Holder: site, Restart: found.a.Restart}
			if err := core.Apps.Rebuild(now, i, found.a.Digest, fx); err != nil {
				fx.Err = skerry.Errorf(skerry.CodeConflict, "%s at cluster %s cannot be adopted: %w", msg.Name, site, err)
				return
			}
			core.track(i)
			core.assign(now, i, fx)
			core.reobserve(now, i, fx)
			tell(site, "OrphanAdopted", fmt.Sprintf("%s at cluster %s is an instance of %s again, adopted by %s", msg.Name, site, found.Service,
				cmp.Or(msg.Actor, "the system")))
		}
		done = true
	}
	if !done {
		fx.Err = view.NoOrphan(msg.Name, core.Apps.Instance(skerry.InstanceID(msg.Name)) != nil)
	}
}

// Orphans lists what sites run and the store does not know.
func (c *Views) Orphans() (out []view.Orphan) {
	for _, x := range orphans((*Core)(c)) {
		out = append(out, x.Orphan)
	}
	return out
}
