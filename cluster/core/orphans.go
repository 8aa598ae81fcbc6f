package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// orphan is one with what a worker holds of it.
type orphan struct {
	view.Orphan
	key string // in its worker's desired set
	a   spec.Assignment
	obs wire.Observation
}

// orphans lists what workers run and keep, and this store does not know or take up.
func (sv *rebuilder) orphans() (list []orphan) {
	for _, id := range slices.Sorted(maps.Keys(sv.orphan)) {
		if sv.places[id] != nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(sv.orphan[id])) {
			child := sv.Children.Get(name)
			if child == nil {
				continue
			}
			found := orphan{key: wire.AssignmentKey(id)}
			key := found.key
			value, orphaned, ok := child.Observed.Get(key)
			if !ok || orphaned || sv.codec.Unmarshal(value, &found.obs) != nil {
				continue
			}
			var held *spec.Assignment
			sealed := false
			left, _ := child.Desired.Orphans()
			for _, o := range left {
				if o.Key == key && sv.codec.Unmarshal(o.Value, &found.a) == nil && found.a.ID == id {
					held, sealed = &found.a, sv.wasGiven(name, o.Value)
				}
			}
			found.Orphan = view.NewOrphan(id, held, &found.obs)
			found.Worker = skerry.WorkerName(name)
			switch {
			case found.Problem != "":
			case !ofSite(id):
				found.Problem = "it is the root's, which adopts or ends it there"
			case !sealed:
				found.Problem = notGiven
			}
			list = append(list, found)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sv.left)) {
		child := sv.Children.Get(name)
		if child == nil || !child.Connected {
			continue
		}
		left, _ := child.Desired.Orphans()
		for _, held := range left {
			if why := sv.left[name].why[held.Key]; why != "" {
				found := orphan{key: held.Key}
				found.Kept, found.Worker, found.Problem = name+"/"+held.Key, skerry.WorkerName(name), why
				if claim, ok := spec.ParseVolumeKey(held.Key); ok {
					found.Service = claim.Service
				}
				list = append(list, found)
			}
		}
	}
	return list
}

// decideOrphan adopts or ends an orphan, on every worker that has it, or deletes what a worker keeps.
func (sv *rebuilder) decideOrphan(now time.Time, msg apps.DecideOrphan, fx *wire.Effects) {
	done := false
	actor := cmp.Or(msg.Actor, "the system")
	all := sv.orphans()
	for _, x := range all {
		if x.Name() != msg.Name {
			continue
		}
		worker := string(x.Worker)
		switch {
		case !msg.Adopt && x.Kept != "":
			if why := sv.inUse(all, worker, x.key); why != "" {
				fx.Err = skerry.Errorf(skerry.CodeConflict, "%s is not deleted: %s", x.Kept, why)
				return
			}
			sv.Children.Delete(worker, x.key)
			delete(sv.left[worker].why, x.key) // kept nevertheless, it is named again
			sv.siteEvent(fx, now, wire.EventNormal, "OrphanDeleted",
				fmt.Sprintf("%s, which worker %s kept and this site did not take up, is deleted by %s", x.key, worker, actor), worker)
		case !msg.Adopt || done: // of two copies one is adopted
			sv.Children.Delete(worker, x.key)
			sv.siteEvent(fx, now, wire.EventNormal, "OrphanEnded",
				fmt.Sprintf("%s on worker %s, which this site's store did not know, is ended by %s", x.Instance, worker, actor), worker)
		case x.Problem != "":
			fx.Err = skerry.Errorf(skerry.CodeConflict, "%s on worker %s cannot be adopted: %s", x.Name(), worker, x.Problem).
				WithHint("`skerry delete orphan` ends or deletes it; it is no part of an application")
			return
		default:
			if err := sv.takeUp(now, &x.a, &x.obs, fx); err != nil {
				fx.Err = skerry.Errorf(skerry.CodeConflict, "%s on worker %s cannot be adopted: %w", x.Instance, worker, err)
				return
			}
			sv.siteEvent(fx, now, wire.EventNormal, "OrphanAdopted",
				fmt.Sprintf("%s on worker %s is an instance of %s again, adopted by %s", x.Instance, worker, x.Service, actor), worker)
		}
		done = true
	}
	if !done {
		fx.Err = view.NoOrphan(msg.Name, sv.places[skerry.InstanceID(msg.Name)] != nil)
	}
}

// inUse says why volumes that a worker keeps, and that are not taken up, may not be deleted: the files are those of others, too.
func (sv *rebuilder) inUse(all []orphan, worker, key string) string {
	claim, ok := spec.ParseVolumeKey(key)
	if !ok {
		return "" // snapshots are read by nothing that does not know them
	}
	whole := claim.Whole()
	for _, known := range sv.volumes.List() {
		apart := known.Volume == "" && len(known.Names) > 0 && claim.Volume != "" && !slices.Contains(known.Names, claim.Volume)
		if known.Whole() == whole && known.Worker == worker && !apart && (known.Volume == "" || claim.Volume == "") {
			return "this site knows volumes " + known.String() + " there"
		}
	}
	if (disks{b: sv.books}).Occupied(whole, worker) {
		return "an instance there uses it"
	}
	for _, x := range all {
		has := x.a.Service == whole.Service && x.a.Ordinal == whole.Ordinal && x.a.Spec.KeepsData()
		if has && x.Instance != "" && string(x.Worker) == worker {
			return "orphan " + string(x.Instance) + " uses it"
		}
	}
	return ""
}
