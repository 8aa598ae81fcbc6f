package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/cluster/volumes"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// notGiven is why what a worker holds is not taken up.
const notGiven = "it is not shown that this site gave it to that worker; apply its application again"

// rebuilder takes up what workers run and this store has lost, of the site's own applications: all of it in a rebuild, and else what an
// operator names.
type rebuilder struct {
	*lifecycle
	intake  *intake
	rebuild *autonomy.Rebuild
	opt     *Options
	left    map[string]leftovers // by worker
}

// rebuildFrom takes up what a worker runs of the site's own applications, which this store has lost, with what the worker holds of
// it. What is the root's, the root tells itself, and adopt then finds the copy that runs.
func (sv *rebuilder) rebuildFrom(now time.Time, child *members.Child, fx *wire.Effects) {
	orphans, known := child.Desired.Orphans()
	if !known {
		return
	}
	for _, o := range orphans {
		id, ok := strings.CutPrefix(o.Key, "inst/")
		if !ok || sv.places[skerry.InstanceID(id)] != nil || !ofSite(skerry.InstanceID(id)) {
			continue
		}
		value, orphaned, has := child.Observed.Get(o.Key)
		var a spec.Assignment
		var obs wire.Observation
		if !has || orphaned || sv.said(value, &obs) != nil || sv.codec.Unmarshal(o.Value, &a) != nil || string(a.ID) != id {
			continue
		}
		why := notGiven
		if sv.wasGiven(child.Name, o.Value) {
			why = sv.rebuildOne(now, child.Name, &a, &obs, fx)
		}
		if why != "" {
			sv.rebuild.Left(a.ID, "on worker "+child.Name+", of "+a.Service.String()+": "+why)
		}
	}
}

// leftovers are the volumes and snapshots that a worker keeps from before and that are not taken up.
type leftovers struct {
	why   map[string]string // by key: why not
	named int               // of these, in events
}

// namedMost is how many events tell of what one worker keeps and is not taken up: a worker that says it keeps very many would fill the
// site's events. `skerry get orphans` lists all.
const namedMost = 64

const (
	// notShown is why what is kept without this site's seal is not taken up.
	notShown = "it is not shown that this site had a worker keep it there"
	// deletedHere is why what this site has given up is not taken up.
	deletedHere = "this site has had it deleted there"
)

// findKept takes up the volumes and snapshots that a worker keeps and this store does not know: it was lost, or is an older backup. Volumes
// are nobody's until an application of their name comes back; absence removes nothing.
func (sv *rebuilder) findKept(now time.Time, child *members.Child, fx *wire.Effects) {
	keeper := sv.workers[child.Name]
	orphans, known := child.Desired.Orphans()
	if !known || keeper == nil {
		return
	}
	was, left := sv.left[keeper.Name], leftovers{named: sv.left[keeper.Name].named}
	if len(orphans) > 0 {
		left.why = map[string]string{}
	}
	looks := func(key string) bool {
		why, looked := was.why[key]
		if looked {
			left.why[key] = why
		}
		return !looked
	}
	leave := func(key, reason, what, why string) {
		if why == "" {
			return
		}
		if left.why[key] = why; left.named == namedMost {
			return
		}
		left.named++
		text := "worker " + keeper.Name + " keeps " + what + " from before, not taken up: " + why
		if left.named == namedMost {
			text += "; nor are others that it keeps, which are not named"
		}
		sv.siteEvent(fx, now, wire.EventWarning, reason, text+"; `skerry get orphans` lists what is not taken up", keeper.Name)
	}
	count := sv.keepCounts[keeper.Name] // as it was before what is taken up is counted
	for _, held := range orphans {      // in order of their keys: a replica comes before its single volumes
		if claim, ok := spec.ParseVolumeKey(held.Key); ok && looks(held.Key) {
			leave(held.Key, "VolumesLeft", "volumes "+claim.String(), sv.findVolumes(now, keeper, count, claim, held.Value, fx))
		}
	}
	found, orgs := 0, map[string]bool{}
	for _, held := range orphans {
		if id, ok := spec.ParseSnapshotKey(held.Key); ok && looks(held.Key) {
			org, why := sv.findSnapshot(keeper, count, id, held.Value)
			leave(held.Key, "SnapshotsLeft", "snapshot "+string(id), why)
			if why == "" {
				found++
				orgs[org] = true
			}
		}
	}
	for _, org := range slices.Sorted(maps.Keys(orgs)) {
		sv.countBesides(org)
	}
	if found > 0 {
		text := fmt.Sprintf("worker %s keeps %d snapshots that this site's store did not know", keeper.Name, found)
		sv.siteEvent(fx, now, wire.EventWarning, "SnapshotsFound", text+"; `skerry get snapshots` lists them again", keeper.Name)
	}
	sv.left[keeper.Name] = left
	if k := sv.keepCounts[keeper.Name]; k.Searched != sv.life {
		k.Searched = sv.life
		sv.keepCounts[keeper.Name] = k
		// Without a count it is written when something is dropped: nothing that is given up can come back before.
		if k.Serial > 0 {
			sv.counted[keeper.Name] = true
		}
	}
}

// findVolumes takes up volumes that a worker keeps, or returns why not.
func (sv *rebuilder) findVolumes(now time.Time, w *worker, count keeps, claim spec.VolumeClaim, value []byte,
	fx *wire.Effects) (left string) {
	k, sealed := sv.codec.SealedVolumes(sv.sealKey(), w.Name, value)
	switch {
	case !sealed || k.Claim() != claim:
		return notShown
	case count.gaveUp(sv.life, k.Given):
		return deletedHere
	case !volumes.TakeUp(sv.volumes, now, claim, w.Name, k.Org):
		return "there are others of that name"
	}
	sv.countAgain(w, k.Given)
	sv.countBesides(k.Org)
	sv.siteEvent(fx, now, wire.EventWarning, "VolumesFound", "worker "+w.Name+" keeps volumes "+claim.String()+
		", which this site's store did not know; an application of that name uses them again, and "+
		"`skerry delete volume` deletes them", w.Name)
	return ""
}

// findSnapshot takes up a snapshot that a worker keeps, and gives its organisation, or why not.
func (sv *rebuilder) findSnapshot(w *worker, count keeps, id spec.SnapshotID, value []byte) (org, left string) {
	k, sealed := sv.codec.SealedSnapshot(sv.sealKey(), w.Name, value)
	switch {
	case !sealed:
		return "", notShown
	case count.gaveUp(sv.life, k.Given):
		return "", deletedHere
	}
	if org, left = volumes.TakeUpSnapshot(sv.volumes, id, w.Name, k.Record); left == "" {
		sv.countAgain(w, k.Given)
	}
	return org, left
}

func (sv *rebuilder) rebuildOne(now time.Time, worker string, assigned *spec.Assignment, obs *wire.Observation,
	fx *wire.Effects) (why string) {
	switch app := sv.Apps.App(assigned.Service.App); {
	case assigned.Spec.Mode != spec.ModeService:
		return "only services are taken up, and this is a " + string(assigned.Spec.Mode)
	case obs.State != skerry.Running || obs.Fence != assigned.Fence:
		return "it does not run as it was assigned last"
	case app != nil && !sv.rebuild.Made(assigned.Service.App):
		return "the application is there already, and does not know this instance"
	}
	if sv.Apps.Instance(assigned.ID) != nil {
		return ""
	}
	wanted := 1
	if assigned.Spec.Replicas != nil {
		wanted = *assigned.Spec.Replicas
	}
	if err := sv.takeUp(now, assigned, obs, fx); err != nil {
		return err.Error()
	}
	sv.rebuild.Took(assigned.Service, assigned.ID, wanted)
	sv.siteEvent(fx, now, wire.EventNormal, "Salvaged",
		fmt.Sprintf("%s, an instance of %s, runs on worker %s; its application was rebuilt from what the worker holds", assigned.ID,
			assigned.Service, worker), worker)
	return ""
}

// rootAway reports whether there is a root, and it is not connected.
func (sv *rebuilder) rootAway() bool { return !sv.opt.Standalone && !sv.Up.Connected }

// endRebuild takes up what workers run once they have had their time, and has services be as many as they were.
func (sv *rebuilder) endRebuild(now time.Time, fx *wire.Effects) {
	if !sv.rebuild.End(now, sv.rootAway()) {
		return
	}
	for _, name := range sv.Children.Names() {
		if child := sv.Children.Get(name); child.Settled() {
			sv.rebuildFrom(now, child, fx)
		}
	}
	for _, r := range sv.rebuild.Services() {
		if r.Wanted > r.Instances {
			more, _ := sv.Apps.Handle(now, apps.Scale{Service: r.Service, Replicas: r.Wanted, Actor: "rebuilt"})
			fx.Merge(more)
		}
	}
	sv.siteEvent(fx, now, wire.EventNormal, "Rebuilt",
		"the site was rebuilt from what its workers hold; `skerry cluster status` shows what was not recovered", "")
}

// takeUp makes what runs an instance of an application of the site's own again.
func (sv *rebuilder) takeUp(now time.Time, a *spec.Assignment, obs *wire.Observation, fx *wire.Effects) error {
	spec := a.Spec
	i := &apps.Instance{Instance: wire.Instance{ID: a.ID, Service: a.Service, Org: a.Org, Ordinal: a.Ordinal, Gen: a.Gen, Revision: a.Revision,
		State: skerry.Running, Phase: obs.Phase, Fence: a.Fence, CreatedAt: now}, Spec: &spec, Holder: Self, Restart: a.Restart}
	if err := sv.Apps.Rebuild(now, i, a.Digest, fx); err != nil {
		return err
	}
	// Tokens that are minted from now on must be above those that are out there.
	sv.above(max(a.Fence.RootEpoch, a.Fence.Sequence))
	sv.saveSeq(fx)
	sv.intake.acceptLocal(now, i, fx)
	return nil
}
