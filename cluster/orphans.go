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
func (sv *salvager) orphans() (list []orphan) {
	for _, id := range slices.Sorted(maps.Keys(sv.astray)) {
		if sv.places[id] != nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(sv.astray[id])) {
			k := sv.Kids.Get(name)
			if k == nil {
				continue
			}
			var x orphan
			key := wire.AssignmentKey(id)
			value, orphaned, ok := k.Observed.Get(key)
			if !ok || orphaned || sv.codec.Unmarshal(value, &x.obs) != nil {
				continue
			}
			var held *spec.Assignment
			sealed := false
			left, _ := k.Desired.Orphans()
			for _, o := range left {
				if o.Key == key && sv.codec.Unmarshal(o.Value, &x.a) == nil && x.a.ID == id {
					held, sealed = &x.a, sv.wasGiven(name, o.Value)
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
func (sv *salvager) decideOrphan(now time.Time, m apps.DecideOrphan, fx *wire.Effects) {
	done := false
	for _, x := range sv.orphans() {
		if x.Instance != m.ID {
			continue
		}
		worker := string(x.Worker)
		switch {
		case !m.Adopt || done: // of two copies one is adopted
			sv.Kids.Delete(worker, wire.AssignmentKey(m.ID))
			sv.siteEvent(fx, now, wire.EventNormal, "OrphanEnded", fmt.Sprintf("%s on worker %s, which this site's store did not know, is ended by %s", m.ID, worker, cmp.Or(m.Actor, "the system")), worker)
		case x.Problem != "":
			fx.Err = skerry.Errorf(skerry.CodeConflict, "%s on worker %s cannot be adopted: %s", m.ID, worker, x.Problem).WithHint("`skerry delete orphan` ends it; it is no part of an application")
			return
		default:
			if err := sv.takeUp(now, &x.a, &x.obs, fx); err != nil {
				fx.Err = skerry.Errorf(skerry.CodeConflict, "%s on worker %s cannot be adopted: %w", m.ID, worker, err)
				return
			}
			sv.siteEvent(fx, now, wire.EventNormal, "OrphanAdopted", fmt.Sprintf("%s on worker %s is an instance of %s again, adopted by %s", m.ID, worker, x.Service, cmp.Or(m.Actor, "the system")), worker)
		}
		done = true
	}
	if !done {
		fx.Err = view.NoOrphan(m.ID, sv.places[m.ID] != nil)
	}
}

// takeUp makes what runs an instance of an application of the site's own again.
func (sv *salvager) takeUp(now time.Time, a *spec.Assignment, obs *wire.Observation, fx *wire.Effects) error {
	spec := a.Spec
	i := &apps.Instance{Instance: wire.Instance{ID: a.ID, Service: a.Service, Org: a.Org, Ordinal: a.Ordinal, Gen: a.Gen, Revision: a.Revision,
		State: skerry.Running, Phase: obs.Phase, Fence: a.Fence, CreatedAt: now}, Spec: &spec, Holder: Self, Restart: a.Restart}
	if err := sv.Apps.Salvage(now, i, a.Digest, fx); err != nil {
		return err
	}
	// Tokens that are minted from now on must be above those that are out there.
	sv.above(max(a.Fence.RootEpoch, a.Fence.Sequence))
	sv.saveSeq(fx)
	sv.intake.acceptOwn(now, i, fx)
	return nil
}

// Orphans lists what workers run and this site's store does not know.
func (s *Server) Orphans(ctx context.Context) ([]view.Orphan, error) {
	return tier.View(ctx, s.Role, (*Core).Orphans)
}

// Orphans lists what workers run and the store does not know.
func (c *Core) Orphans() (out []view.Orphan, err error) {
	for _, x := range c.salvager.orphans() {
		out = append(out, x.Orphan)
	}
	return out, nil
}
