package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
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
func orphans(c *Core) (list []orphan) {
	for _, name := range c.Children.Names() {
		k := c.Children.Get(name)
		left, _ := k.Desired.Orphans()
		var keys []string
		for key := range k.Observed.All() {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			id, ok := strings.CutPrefix(key, "inst/")
			if !ok || c.Apps.Instance(skerry.InstanceID(id)) != nil {
				continue
			}
			if _, wanted := k.Desired.Get(key); wanted {
				continue
			}
			x := orphan{}
			if x.obs, ok = c.observation(k, skerry.InstanceID(id)); !ok {
				continue
			}
			var held *spec.Assignment
			sealed := false
			for _, o := range left {
				if o.Key == key && c.codec.Unmarshal(o.Value, &x.a) == nil && string(x.a.ID) == id {
					held, sealed = &x.a, c.codec.Sealed(c.opt.SealKey, name, o.Value)
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

// stranger tells of an instance that a site runs and this store does not know: it was restored from an older backup. It is left alone until somebody
// names it or an operator ends it, and of one that is ending nothing is said.
func stranger(now time.Time, site string, o *wire.Observation, fx *wire.Effects) {
	if o.Phase != skerry.PhaseStopping && !o.State.Final() {
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "UnknownInstance", Cluster: skerry.ClusterName(site),
			Text: "cluster " + site + " runs " + string(o.ID) + ", which this store does not know; it is left running"})
	}
}

// decideOrphan adopts or ends an orphan, at every site that has it.
func decideOrphan(c *Core, now time.Time, m apps.DecideOrphan, fx *wire.Effects) {
	done := false
	tell := func(site, reason, text string) {
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventNormal, Reason: reason, Text: text, Cluster: skerry.ClusterName(site)})
	}
	for _, x := range orphans(c) {
		if x.Instance != m.ID {
			continue
		}
		site := string(x.Cluster)
		switch {
		case !m.Adopt || done: // of two copies one is adopted
			c.Children.Delete(site, wire.AssignmentKey(m.ID))
			tell(site, "OrphanEnded", fmt.Sprintf("%s at cluster %s, which this store did not know, is ended by %s", m.ID, site, cmp.Or(m.Actor, "the system")))
		case x.Problem != "":
			fx.Err = skerry.Errorf(skerry.CodeConflict, "%s at cluster %s cannot be adopted: %s", m.ID, site, x.Problem).WithHint("`skerry delete orphan` ends it; it is no part of an application")
			return
		default:
			spec := x.a.Spec
			i := &apps.Instance{Instance: wire.Instance{ID: m.ID, Service: x.a.Service, Org: x.a.Org, Ordinal: x.a.Ordinal, Gen: x.a.Gen, Revision: x.a.Revision,
				State: skerry.Running, Phase: x.obs.Phase, Cluster: x.Cluster, Fence: x.a.Fence, CreatedAt: now},
				Spec: &spec, Holder: site, Restart: x.a.Restart}
			if err := c.Apps.Rebuild(now, i, x.a.Digest, fx); err != nil {
				fx.Err = skerry.Errorf(skerry.CodeConflict, "%s at cluster %s cannot be adopted: %w", m.ID, site, err)
				return
			}
			c.track(i)
			c.assign(now, i, fx)
			c.reobserve(now, i, fx)
			tell(site, "OrphanAdopted", fmt.Sprintf("%s at cluster %s is an instance of %s again, adopted by %s", m.ID, site, x.Service, cmp.Or(m.Actor, "the system")))
		}
		done = true
	}
	if !done {
		fx.Err = view.NoOrphan(m.ID, c.Apps.Instance(m.ID) != nil)
	}
}

// Orphans lists what sites run and the store does not know.
func (c *Views) Orphans() (out []view.Orphan) {
	for _, x := range orphans((*Core)(c)) {
		out = append(out, x.Orphan)
	}
	return out
}
