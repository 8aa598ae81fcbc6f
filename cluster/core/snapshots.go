package core

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/volumes"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Messages about snapshots. The server asks workers in between:
//
//	BeginSnapshot ─► noted, room reserved, the worker is to keep it ─ the worker copies ─► EndSnapshot: Ready, or none
//	BeginRestore ─► the volumes have no instance until ─ the worker unpacks ─► EndRestore: they are there, or as before
type (
	// BeginSnapshot begins a snapshot; the result is a SnapshotPlan.
	BeginSnapshot struct {
		ID    spec.SnapshotID
		Claim spec.VolumeClaim
		Actor string
		// Import: it comes as a file, for Worker (or any, if that is empty) and Org. Length is that of the file; 0: nobody knows it.
		Import bool
		Worker string
		Org    string
		Length skerry.Bytes
		// Scheduled: nobody asked for it but the schedule in the manifest.
		Scheduled bool
	}
	// EndSnapshot says what became of it.
	EndSnapshot struct {
		ID   spec.SnapshotID
		Info *spec.Snapshot
		Err  string // not empty: there is none
	}
	// DeleteSnapshot deletes a snapshot.
	DeleteSnapshot struct {
		ID    spec.SnapshotID
		Actor string
	}
	// BeginRestore has the instance of volumes ended, and none started; the result is a RestorePlan.
	BeginRestore struct {
		ID     spec.SnapshotID
		To     spec.VolumeClaim
		Clone  bool // To is new
		Worker string
	}
	// EndRestore says what became of it.
	EndRestore struct {
		RestorePlan
		Actor string
		Took  skerry.Bytes // what volumes without a size took of the disk
		Err   string       // not empty: nothing was changed, or
		Lost  bool         // nobody knows: the worker's answer did not come
	}
	// SnapshotPlan says who is to make a snapshot, and how large it may be; 0: no bound but the disk's.
	SnapshotPlan struct {
		Worker   string
		Most     skerry.Bytes
		MaxPause spec.Duration // that the manifest gives it; 0: nothing is said
	}
	// RestorePlan says from where to where the content of a snapshot goes, and what that may take of the disk; 0: no bound but the disk's.
	RestorePlan struct {
		Snapshot spec.Snapshot
		To       spec.VolumeClaim
		Worker   string
		Most     skerry.Bytes
	}
)

// snapshots takes and restores snapshots of local volumes, as somebody or a schedule asks, within the quotas of organisations.
type snapshots struct {
	*lifecycle
}

// snapshotMessage takes a message about snapshots, if it is one.
func (sn *snapshots) snapshotMessage(now time.Time, msg any, fx *wire.Effects) bool {
	var err error
	switch m := msg.(type) {
	case BeginSnapshot:
		fx.Result, err = sn.beginSnapshot(now, m)
	case EndSnapshot:
		sn.endSnapshot(now, m, fx)
	case DeleteSnapshot:
		err = sn.deleteSnapshot(now, m, fx)
	case EndExport:
		sn.endExport(now, m, fx)
	case BeginRestore:
		fx.Result, err = sn.beginRestore(now, m, fx)
	case EndRestore:
		sn.endRestore(now, m, fx)
	default:
		return false
	}
	fx.Err = err
	return true
}

func noSnapshot(id spec.SnapshotID) error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no snapshot %.100q at this site", string(id)).WithHint("`skerry volume snapshots` lists them")
}

func (sn *snapshots) beginSnapshot(now time.Time, msg BeginSnapshot) (SnapshotPlan, error) {
	if sn.volumes.Snapshot(msg.ID) != nil {
		return SnapshotPlan{}, skerry.Errorf(skerry.CodeConflict, "there is a snapshot %s", msg.ID)
	}
	snap := spec.Snapshot{ID: msg.ID, State: spec.SnapshotTaking, At: now, Actor: msg.Actor, Org: msg.Org, Scheduled: msg.Scheduled}
	snap.SetClaim(msg.Claim)
	worker, ran, asked := sn.volumes.Holder(msg.Claim)
	switch {
	case msg.Import:
		if worker = msg.Worker; worker == "" {
			worker = sn.roomiest()
		}
		if worker == "" {
			return SnapshotPlan{}, skerry.Errorf(skerry.CodeUnavailable, "no worker is connected that takes a snapshot").WithHint("`skerry get workers` shows why")
		}
	case !ran:
		return SnapshotPlan{}, skerry.Errorf(skerry.CodeNotFound, "there is no volume %s with data at this site", msg.Claim).WithHint("`skerry get volumes` lists them")
	case sn.volumes.Busy(msg.Claim):
		return SnapshotPlan{}, skerry.Errorf(skerry.CodeConflict, "volume %s is being restored",
			msg.Claim).WithHint("try again when that has ended")
	default:
		snap.Org, snap.Size = asked.Org, asked.Size
	}
	if err := sn.copier(worker); err != nil {
		return SnapshotPlan{}, err
	}
	switch all, taking := sn.volumes.SnapshotsOf(snap.Org); {
	case all >= maxSnapshots:
		return SnapshotPlan{}, skerry.Errorf(skerry.CodeQuota, "organisation %s has %d snapshots at this site, as many as it may have",
			snap.Org, all).
			WithHint("delete some: `skerry volume snapshots` lists them")
	case taking >= maxTaking:
		return SnapshotPlan{}, skerry.Errorf(skerry.CodeConflict,
			"%d snapshots of organisation %s are being taken, as many as may be at a time", taking, snap.Org).
			WithHint("try again when one of them is complete")
	}
	most, err := sn.snapshotRoom(snap.Org)
	if err != nil {
		return SnapshotPlan{}, err
	}
	// What it has in the end is counted then. Until it is complete, what a file may have is taken, or others would be held to the same room.
	switch {
	case most == 0:
	case msg.Length > most:
		return SnapshotPlan{}, skerry.Errorf(skerry.CodeQuota, "the file has %s, and organisation %s may use %s more", msg.Length, snap.Org,
			most).
			WithHint(makeRoom)
	case msg.Import && msg.Length > 0:
		snap.Size, most = msg.Length, msg.Length
	case msg.Import:
		snap.Size = most
	default:
		snap.Size = min(snap.Size, most)
	}
	snap.Worker = skerry.WorkerName(worker)
	sn.volumes.PutSnapshot(snap)
	sn.countBesides(snap.Org)
	return SnapshotPlan{worker, most, sn.maxPause(msg.Claim)}, nil
}

// maxPause is how long the manifest lets the service of volumes stand still.
func (sn *snapshots) maxPause(v spec.VolumeClaim) spec.Duration {
	for _, p := range sn.byApp[v.Service.App] {
		if s := p.target().Spec.Snapshots; s != nil && p.claims() == v && !p.Refused {
			return s.MaxPause
		}
	}
	return 0
}

// roomiest gives the connected worker with the most room on its disk, or "".
func (sn *snapshots) roomiest() (best string) {
	var most skerry.Bytes
	for name, w := range sn.workers {
		if n := w.available().Storage; sn.copier(name) == nil && w.refusing() == "" &&
			(best == "" || n > most || n == most && name < best) {
			best, most = name, n
		}
	}
	return best
}

const makeRoom = "delete snapshots or volumes, try again when those that are being made are complete, or have an admin raise the quota"

// snapshotRoom is how many bytes an organisation may have besides, 0 if there is no bound, by its quota and that of the site.
func (sn *snapshots) snapshotRoom(org string) (most skerry.Bytes, err error) {
	bound := func(limit, used skerry.Bytes, whose string) {
		if limit <= 0 || err != nil {
			return
		}
		left := limit - used
		if left <= 0 {
			err = skerry.Errorf(skerry.CodeQuota, "%s may use %s of storage%s, and %s are used", org, limit, whose, used).WithHint(makeRoom)
			return
		}
		if most == 0 || left < most {
			most = left
		}
	}
	sn.countBesides(org) // the site may have been told of the organisation since the last change
	for _, o := range sn.Apps.Orgs() {
		if o.Name == org {
			bound(o.Quota.Storage, sn.Apps.Usage(org, skerry.AppKey{}).Need.Storage, "")
		}
	}
	bound(sn.admission.Quotas[org].Storage, sn.usedBy(org, "").need.Storage, " at this site")
	return most, err
}

func (sn *snapshots) endSnapshot(now time.Time, msg EndSnapshot, fx *wire.Effects) {
	snap := sn.volumes.Snapshot(msg.ID)
	if snap == nil || snap.State != spec.SnapshotTaking {
		return // deleted meanwhile: its worker has been told
	}
	org, worker, claim := snap.Org, string(snap.Worker), snap.Claim()
	defer func() { sn.countBesides(org) }()
	if msg.Err != "" {
		sn.volumes.DropSnapshot(msg.ID)
		sn.noSnapshotTaken(now, snap, " on worker "+worker+": "+msg.Err, msg.Err, fx)
		return
	}
	next := *msg.Info
	next.ID, next.Org, next.Worker, next.Actor, next.Scheduled, next.State = snap.ID, snap.Org, snap.Worker, snap.Actor, snap.Scheduled,
		spec.SnapshotReady
	next.Exported = "" // a file that is imported may say otherwise
	next.SetClaim(claim)
	if !plausible(&next) {
		sn.volumes.DropSnapshot(msg.ID)
		if snap.Scheduled {
			sn.noSnapshotTaken(now, snap, ": worker "+worker+" described it implausibly", "worker "+worker+" described it implausibly", fx)
		}
		return
	}
	// Of volumes without a size nobody knew what they would take, and others may have been faster.
	reserved := snap.Size
	snap.Size = 0
	if most, err := sn.snapshotRoom(org); reserved < next.Size && (err != nil || most > 0 && most < next.Size) {
		sn.volumes.DropSnapshot(msg.ID)
		why := fmt.Sprintf("it has %s, for which the quota of %s has no room any more", next.Size, org)
		sn.noSnapshotTaken(now, snap, ": "+why, why, fx)
		return
	}
	sn.volumes.PutSnapshot(next)
	text := fmt.Sprintf("snapshot %s of volume %s is on worker %s, by %s", msg.ID, claim, worker, takenBy(&next))
	sn.snapshotEvent(fx, now, wire.EventNormal, "SnapshotTaken", &next, text)
	if snap.Scheduled {
		sn.retainSnapshots(now, &next, fx)
	}
}

// maxSnapshots bounds the snapshots of one organisation at a site, because empty ones count for nothing in its quota of storage. maxTaking
// bounds those that are made at a time, each of which keeps a processor of its worker busy.
const maxSnapshots, maxTaking = 1000, 4

// plausible reports whether a worker may say that of a snapshot. All of it is stored, and its sizes are reserved.
func plausible(s *spec.Snapshot) bool {
	amount := func(n skerry.Bytes) bool { return n >= 0 && n <= spec.MaxAmount }
	ok := len(s.Volumes) <= maxSnapshotVolumes && len(s.SHA256) == 64 && amount(s.Size) && len(s.How) <= 20
	for _, v := range s.Volumes {
		ok = ok && skerry.CheckName(v.Name) == nil && amount(v.Size)
	}
	return ok
}

// maxSnapshotVolumes bounds what a worker may say of one snapshot.
const maxSnapshotVolumes = 64

func (sn *snapshots) snapshotEvent(fx *wire.Effects, now time.Time, t wire.EventType, reason string, s *spec.Snapshot, text string) {
	fx.Events = append(fx.Events, wire.Event{At: now, Type: t, Reason: reason, Text: text, Org: s.Org, App: s.Claim().Service.App,
		Service: s.Service,
		Worker:  s.Worker, Cluster: skerry.ClusterName(sn.name)})
}

func (sn *snapshots) deleteSnapshot(now time.Time, msg DeleteSnapshot, fx *wire.Effects) error {
	s := sn.volumes.Snapshot(msg.ID)
	if s == nil {
		return noSnapshot(msg.ID)
	}
	if s.State == spec.SnapshotTaking { // its worker is at it, and it counts until that has ended
		return skerry.Errorf(skerry.CodeConflict, "snapshot %s is being taken",
			msg.ID).WithHint("end the command that takes it, or try again when it is complete")
	}
	if sn.volumes.Busy(s.Claim()) {
		return skerry.Errorf(skerry.CodeConflict, "volume %s is being restored", s.Claim()).WithHint("try again when that has ended")
	}
	if _, sending := sn.volumes.Sending(msg.ID); sending {
		return skerry.Errorf(skerry.CodeConflict, "snapshot %s is being sent away", msg.ID).WithHint("try again when that has ended")
	}
	if sn.volumes.Source(msg.ID) {
		return skerry.Errorf(skerry.CodeConflict, "a volume is being cloned from snapshot %s", msg.ID).WithHint("try again when that has ended")
	}
	sn.volumes.DropSnapshot(msg.ID)
	sn.countBesides(s.Org)
	sn.snapshotEvent(fx, now, wire.EventNormal, "SnapshotDeleted", s, "snapshot "+string(msg.ID)+" is deleted, by "+orNobody(msg.Actor))
	return nil
}

// reviewSnapshots ends, after a start, what an earlier life was at.
func (sn *snapshots) reviewSnapshots(now time.Time, fx *wire.Effects) {
	for _, s := range sn.volumes.Unfinished() {
		const why = "the cluster's orchestrator was restarted meanwhile"
		sn.noSnapshotTaken(now, &s, ": "+why, why, fx)
	}
	for _, o := range sn.Apps.Orgs() {
		sn.countBesides(o.Name)
	}
	for _, name := range sn.Children.Names() {
		for _, key := range sn.Children.Get(name).Desired.Keys() {
			if id, ok := spec.ParseSnapshotKey(key); ok && sn.volumes.Snapshot(id) == nil {
				sn.Children.Delete(name, key)
			}
		}
	}
}

func (sn *snapshots) beginRestore(now time.Time, msg BeginRestore, fx *wire.Effects) (RestorePlan, error) {
	snap := sn.volumes.Snapshot(msg.ID)
	if snap == nil || snap.State != spec.SnapshotReady {
		return RestorePlan{}, noSnapshot(msg.ID)
	}
	if err := sn.connectedWorker(string(snap.Worker)); err != nil {
		return RestorePlan{}, err
	}
	at, _, asked := sn.volumes.Holder(msg.To)
	switch {
	case msg.Clone && (at != "" || (disks{b: sn.books}).Replica(msg.To)):
		return RestorePlan{}, skerry.Errorf(skerry.CodeConflict, "there is a volume %s",
			msg.To).WithHint("choose another name, or restore the snapshot in its place")
	case at != "" && asked.Org != "" && asked.Org != snap.Org:
		return RestorePlan{}, skerry.Errorf(skerry.CodeConflict, "volume %s belongs to another organisation",
			msg.To).WithHint("clone the snapshot under another name")
	case sn.ofAnother(msg.To.Service.App, snap.Org):
		return RestorePlan{}, skerry.Errorf(skerry.CodeConflict, "namespace %s belongs to another organisation now",
			msg.To.Service.App.Namespace).
			WithHint("export the snapshot, and import it in a namespace of organisation %s", snap.Org)
	case sn.volumes.Busy(msg.To):
		return RestorePlan{}, skerry.Errorf(skerry.CodeConflict, "volume %s is being restored", msg.To).WithHint("try again when that has ended")
	}
	names, _ := snap.Takes()
	if kept := sn.volumes.Former(msg.To, names); len(kept) > 0 { // they are in the directory that goes
		name := view.NewVolumeView(kept[0]).Name
		return RestorePlan{}, skerry.Errorf(skerry.CodeConflict,
			"volume %s is kept beside those of %s, and would go with what the snapshot replaces", name, msg.To).
			WithHint("clone the snapshot under another name, or delete that one: `skerry delete volume %s`", name)
	}
	to := msg.Worker
	if to == "" {
		to = at
	}
	if to == "" {
		to = string(snap.Worker)
	}
	if err := sn.connectedWorker(to); err != nil {
		if msg.Worker == "" {
			err = skerry.Errorf(skerry.CodeUnavailable, "volume %s is on worker %s, which is not connected", msg.To, to).
				WithHint("name another worker (--worker): the volume is there from then on, and %s removes what it has when it is back", to)
		}
		return RestorePlan{}, err
	}
	if err := sn.copier(to); err != nil {
		return RestorePlan{}, err
	}
	most, err := sn.restoreRoom(snap, asked.Size, to, at)
	if err != nil {
		return RestorePlan{}, err
	}
	_, want := snap.Takes()
	more := max(0, want-asked.Size)
	if slices.ContainsFunc(snap.Volumes, func(v spec.SnapshotVolume) bool { return v.Size == 0 }) {
		more += most // what comes without a size is counted when it is there
	}
	sn.volumes.Begin(msg.To, snap.Org, more, snap.ID)
	sn.countBesides(snap.Org)
	for _, id := range sortedIDs(sn.byApp[msg.To.Service.App]) {
		p := sn.places[id]
		if p.claims() == msg.To && p.Worker != "" && !p.Refused && !p.Removing && !p.ended() {
			sn.move(now, p, "its volume is restored from snapshot "+string(msg.ID), false, fx)
		}
	}
	return RestorePlan{*snap, msg.To, to, most}, nil
}

// ofAnother reports whether an application is another organisation's, as far as the site knows: a snapshot may be older than its namespace.
func (sn *snapshots) ofAnother(app skerry.AppKey, org string) bool {
	if o := sn.Apps.OrgOf(app.Namespace); o != "" && o != org {
		return true
	}
	for _, p := range sn.byApp[app] {
		if p.A.Org != "" && p.A.Org != org {
			return true
		}
	}
	return false
}

// restoreRoom checks that an organisation may have the volumes of a snapshot on a worker, in place of those of a size
// that are at another or the same one ("": new ones), and returns how much volumes without a size may take; 0: no
// bound. Where a snapshot was imported, somebody wrote its sizes by hand, perhaps.
func (sn *snapshots) restoreRoom(snap *spec.Snapshot, size skerry.Bytes, to, at string) (most skerry.Bytes, err error) {
	if sn.volumes.Restoring(snap.Org) >= maxTaking {
		return 0, skerry.Errorf(skerry.CodeConflict, "%d volumes of organisation %s are being restored, as many as may be at a time", maxTaking,
			snap.Org).
			WithHint("try again when one of them is complete")
	}
	if at == "" && sn.volumes.LooseOf(snap.Org) >= maxSnapshots {
		return 0, skerry.Errorf(skerry.CodeQuota, "organisation %s has %d volumes at this site that no application uses, as many as it may have", snap.Org, maxSnapshots).
			WithHint("delete some: `skerry get volumes` lists them")
	}
	_, want := snap.Takes()
	more := max(0, want-size)
	if more > 0 || at == "" || snap.How == spec.SnapshotImported {
		if most, err = sn.snapshotRoom(snap.Org); err != nil {
			return 0, err
		}
		if most > 0 && more > most {
			return 0, skerry.Errorf(skerry.CodeQuota, "the volumes of snapshot %s have a size of %s, and organisation %s may use %s more", snap.ID,
				want, snap.Org, most).
				WithHint(makeRoom)
		}
		if most > 0 {
			most = max(1, most-more)
		}
	}
	if to != at {
		more = want
	}
	if left := sn.workers[to].available().Storage; more > 0 && more > left {
		return 0, skerry.Errorf(skerry.CodeConflict, "the volumes of snapshot %s have a size of %s, and worker %s has %s left", snap.ID, want,
			to, max(0, left)).
			WithHint("name another worker (--worker), or make room on this one")
	}
	return most, nil
}

func (sn *snapshots) endRestore(now time.Time, end EndRestore, fx *wire.Effects) {
	sn.volumes.End(end.To)
	sn.volumes.Look()
	defer sn.countBesides(end.Snapshot.Org)
	for _, id := range sortedIDs(sn.byApp[end.To.Service.App]) {
		if p := sn.places[id]; p.claims() == end.To {
			p.again = time.Time{}
		}
	}
	sn.retry()
	s := &end.Snapshot
	at, _, _ := sn.volumes.Holder(end.To)
	if end.Lost && at == end.Worker { // elsewhere it would not count
		sn.snapshotEvent(fx, now, wire.EventWarning, "RestoreUnknown", s, "volume "+end.To.String()+
			" has what snapshot "+string(s.ID)+" has, or what it had before: the answer of worker "+end.Worker+" is lost: "+end.Err)
		return
	}
	if end.Err != "" {
		sn.snapshotEvent(fx, now, wire.EventWarning, "VolumeNotRestored", s, "volume "+end.To.String()+" is not restored: "+end.Err)
		return
	}
	names, size := s.Takes()
	sn.volumes.Restored(end.To, end.Worker, volumes.Want{Size: size, Org: s.Org, Names: names}, max(0, end.Took))
	text := []string{"volume", end.To.String(), "on worker", end.Worker, "has what snapshot", string(s.ID), "has, of",
		s.At.UTC().Format(time.RFC3339) + ",", "by", orNobody(end.Actor)}
	sn.snapshotEvent(fx, now, wire.EventNormal, "VolumeRestored", s, strings.Join(text, " "))
}

// deleteVolume deletes volumes about which the site decides.
func (sn *snapshots) deleteVolume(now time.Time, m apps.DeleteVolume, fx *wire.Effects) {
	if sn.volumes.Loose(m.Claim) && !(disks{b: sn.books}).Replica(m.Claim) && !sn.volumes.Busy(m.Claim) {
		_, _, w := sn.volumes.Holder(m.Claim)
		sn.volumes.Remove(m.Claim)
		sn.countBesides(w.Org)
		return
	}
	if sn.Apps.Claimed(m.Claim) == "" && sn.volumes.Known(m.Claim) {
		fx.Err = apps.VolumeOfRoot(m.Claim)
		return
	}
	*fx, _ = sn.Apps.Handle(now, m)
}

// TakeSnapshot asks the server to have a worker copy volumes, because a schedule says so; EndSnapshot says what came of it. Between
// two lives nobody does: the next one gives such a snapshot up, and tries again.
type TakeSnapshot struct {
	ID    spec.SnapshotID
	Claim spec.VolumeClaim
	Plan  SnapshotPlan
}

// takeScheduled begins the snapshots that are due. A worker makes one at a time, and an organisation's share leaves room for somebody
// who asks for one; the others wait their turn.
func (sn *snapshots) takeScheduled(now time.Time, fx *wire.Effects) {
	if at := sn.volumes.NextLook(); at.IsZero() || at.After(now) {
		return
	}
	due := sn.volumes.Due(now)
	sn.sendScheduled(now, fx)
	if len(due) == 0 {
		return
	}
	orgs, workers := sn.volumes.Underway()
	for _, v := range due {
		worker, _, w := sn.volumes.Holder(v)
		if sn.volumes.Busy(v) || workers[worker] > 0 || orgs[w.Org] >= maxTaking-1 {
			continue
		}
		m := BeginSnapshot{ID: scheduledID(v, now), Claim: v, Scheduled: true}
		plan, err := sn.beginSnapshot(now, m)
		if err != nil {
			s := &spec.Snapshot{Org: w.Org, Scheduled: true}
			s.SetClaim(v)
			sn.noSnapshotTaken(now, s, ": "+err.Error(), err.Error(), fx)
			continue
		}
		orgs[w.Org]++
		workers[worker]++
		fx.Actions = append(fx.Actions, TakeSnapshot{ID: m.ID, Claim: v, Plan: plan})
	}
}

// scheduledID gives the id of a snapshot of a schedule: its time, and what tells it from those of volumes of other namespaces.
func scheduledID(v spec.VolumeClaim, now time.Time) spec.SnapshotID {
	sum := sha256.Sum256([]byte(v.Key() + " " + strconv.FormatInt(now.UnixNano(), 10)))
	return spec.NewSnapshotID(v, now.UTC().Format("20060102t150405")+"-"+strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:6]))
}

// noSnapshotTaken says that there is no snapshot. A schedule tries again, and does not say it again until it has another time.
func (sn *snapshots) noSnapshotTaken(now time.Time, s *spec.Snapshot, text, reason string, fx *wire.Effects) {
	if s.Scheduled && !sn.volumes.Missed(s.Claim(), now, reason) {
		return
	}
	by := ""
	if s.Scheduled {
		by = ", of its schedule"
	}
	sn.snapshotEvent(fx, now, wire.EventWarning, "SnapshotFailed", s, "no snapshot of volume "+s.Claim().String()+by+text)
}

// retainSnapshots deletes what a schedule keeps no longer, now that there is a newer one.
func (sn *snapshots) retainSnapshots(now time.Time, s *spec.Snapshot, fx *wire.Effects) {
	for _, old := range sn.volumes.Taken(s.Claim(), s.ID, now) {
		sn.volumes.DropSnapshot(old.ID)
		text := fmt.Sprintf("snapshot %s is deleted: its schedule has newer ones, up to %s", old.ID, s.ID)
		sn.snapshotEvent(fx, now, wire.EventNormal, "SnapshotDeleted", &old, text)
	}
}

// takenBy says who asked for a snapshot.
func takenBy(s *spec.Snapshot) string {
	if s.Scheduled {
		return "its schedule"
	}
	return orNobody(s.Actor)
}
