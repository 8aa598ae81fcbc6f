package cluster

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

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
