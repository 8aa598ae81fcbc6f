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

// stranger tells of an instance that a site runs and this store does not know: it was restored from an older backup. It
// is left alone until somebody names it or an operator ends it, and of one that is ending nothing is said.
func stranger(c *Core, now time.Time, site string, o *wire.Observation, fx *wire.Effects) {
	if o.Phase != skerry.PhaseStopping && !o.State.Final() {
		c.named(now, site, "UnknownInstance", "cluster "+site+" runs "+wire.Short(string(o.ID))+
			", which this store does not know; it is left running", fx)
	}
}

// strangersNamed is how many events tell of what one site has on a connection and the root does not know, of each kind: a site that says it
// has very many would fill the events, the store and the log.
const strangersNamed = 64

// unknownAt gives the counts of what a site said on this connection of what the root does not know.
func (c *Core) unknownAt(site string) map[string]int {
	count := c.strangers[site]
	if count == nil {
		count = map[string]int{}
		for _, key := range c.Children.Get(site).Desired.Keys() {
			if app, ok := wire.ParseAmendedKey(key); ok && c.Apps.App(app) == nil {
				count[answered]++
			}
		}
		c.strangers[site] = count
	}
	return count
}

// named tells of something at a site that the root does not know, unless many were told of on this connection.
func (c *Core) named(now time.Time, site, reason, text string, fx *wire.Effects) {
	count := c.unknownAt(site)
	if count[reason] >= strangersNamed {
		return
	}
	if count[reason]++; count[reason] == strangersNamed {
		text += "; others are not named"
	}
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: reason, Cluster: skerry.ClusterName(site), Text: text})
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
