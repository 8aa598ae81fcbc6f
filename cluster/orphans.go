package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// orphan is one with what a worker holds of it.
type orphan struct {
	view.Orphan
	a   spec.Assignment
	obs wire.Observation
}

// orphans lists what workers run and this store does not know.
func orphans(c *Core) (list []orphan) {
	for _, id := range slices.Sorted(maps.Keys(c.astray)) {
		if c.places[id] != nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.astray[id])) {
			k := c.Kids.Get(name)
			if k == nil {
				continue
			}
			var x orphan
			key := wire.AssignmentKey(id)
			value, orphaned, ok := k.Observed.Get(key)
			if !ok || orphaned || c.codec.Unmarshal(value, &x.obs) != nil {
				continue
			}
			var held *spec.Assignment
			sealed := false
			left, _ := k.Desired.Orphans()
			for _, o := range left {
				if o.Key == key && c.codec.Unmarshal(o.Value, &x.a) == nil && x.a.ID == id {
					held, sealed = &x.a, c.wasGiven(name, o.Value)
				}
			}
			x.Orphan = view.NewOrphan(id, held, &x.obs)
			x.Worker = skerry.WorkerName(name)
			switch {
			case x.Problem != "":
			case !ofSite(id):
				x.Problem = "it is the root's, which adopts or ends it there"
			case !sealed:
				x.Problem = notGiven
			}
			list = append(list, x)
		}
	}
	return list
}

// decideOrphan adopts or ends an orphan, on every worker that has it.
func decideOrphan(c *Core, now time.Time, m apps.DecideOrphan, fx *wire.Effects) {
	done := false
	for _, x := range orphans(c) {
		if x.Instance != m.ID {
			continue
		}
		worker := string(x.Worker)
		switch {
		case !m.Adopt || done: // of two copies one is adopted
			c.Kids.Delete(worker, wire.AssignmentKey(m.ID))
			c.siteEvent(fx, now, wire.EventNormal, "OrphanEnded", fmt.Sprintf("%s on worker %s, which this site's store did not know, is ended by %s", m.ID, worker, cmp.Or(m.Actor, "the system")), worker)
		case x.Problem != "":
			fx.Err = skerry.Errorf(skerry.CodeConflict, "%s on worker %s cannot be adopted: %s", m.ID, worker, x.Problem).WithHint("`skerry delete orphan` ends it; it is no part of an application")
			return
		default:
			if err := takeUp(c, now, &x.a, &x.obs, fx); err != nil {
				fx.Err = skerry.Errorf(skerry.CodeConflict, "%s on worker %s cannot be adopted: %w", m.ID, worker, err)
				return
			}
			c.siteEvent(fx, now, wire.EventNormal, "OrphanAdopted", fmt.Sprintf("%s on worker %s is an instance of %s again, adopted by %s", m.ID, worker, x.Service, cmp.Or(m.Actor, "the system")), worker)
		}
		done = true
	}
	if !done {
		fx.Err = view.NoOrphan(m.ID, c.places[m.ID] != nil)
	}
}

// takeUp makes what runs an instance of an application of the site's own again.
func takeUp(c *Core, now time.Time, a *spec.Assignment, obs *wire.Observation, fx *wire.Effects) error {
	spec := a.Spec
	i := &apps.Instance{Instance: wire.Instance{ID: a.ID, Service: a.Service, Org: a.Org, Ordinal: a.Ordinal, Gen: a.Gen, Revision: a.Revision,
		State: skerry.Running, Phase: obs.Phase, Fence: a.Fence, CreatedAt: now}, Spec: &spec, Holder: Self, Restart: a.Restart}
	if err := c.Apps.Salvage(now, i, a.Digest, fx); err != nil {
		return err
	}
	// Tokens that are minted from now on must be above those that are out there.
	c.above(max(a.Fence.RootEpoch, a.Fence.Sequence))
	c.saveSeq(fx)
	c.intake.acceptOwn(now, i, fx)
	return nil
}

// Orphans lists what workers run and this site's store does not know.
func (s *Server) Orphans(ctx context.Context) ([]view.Orphan, error) {
	return tier.View(ctx, s.Role, Orphans)
}

// Orphans lists what workers run and the store does not know.
func Orphans(c *Core) (out []view.Orphan, err error) {
	for _, x := range orphans(c) {
		out = append(out, x.Orphan)
	}
	return out, nil
}
