package cluster

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry/cluster/uplink"
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
func takeScheduled(c *Core, now time.Time, fx *wire.Effects) {
	if at := c.volumes.NextLook(); at.IsZero() || at.After(now) {
		return
	}
	due := c.volumes.Due(now)
	sendScheduled(c, now, fx)
	if len(due) == 0 {
		return
	}
	orgs, workers := c.volumes.Underway()
	for _, v := range due {
		worker, _, w := c.volumes.Holder(v)
		if c.volumes.Busy(v) || workers[worker] > 0 || orgs[w.Org] >= maxTaking-1 {
			continue
		}
		m := BeginSnapshot{ID: scheduledID(v, now), Claim: v, Scheduled: true}
		plan, err := beginSnapshot(c, now, m)
		if err != nil {
			s := &spec.Snapshot{Org: w.Org, Scheduled: true}
			s.SetClaim(v)
			noSnapshotTaken(c, now, s, ": "+err.Error(), err.Error(), fx)
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
func noSnapshotTaken(c *Core, now time.Time, s *spec.Snapshot, text, reason string, fx *wire.Effects) {
	if s.Scheduled && !c.volumes.Missed(s.Claim(), now, reason) {
		return
	}
	by := ""
	if s.Scheduled {
		by = ", of its schedule"
	}
	snapshotEvent(c, fx, now, wire.EventWarning, "SnapshotFailed", s, "no snapshot of volume "+s.Claim().String()+by+text)
}

// retainSnapshots deletes what a schedule keeps no longer, now that there is a newer one.
func retainSnapshots(c *Core, now time.Time, s *spec.Snapshot, fx *wire.Effects) {
	for _, old := range c.volumes.Taken(s.Claim(), s.ID, now) {
		c.volumes.DropSnapshot(old.ID)
		text := fmt.Sprintf("snapshot %s is deleted: its schedule has newer ones, up to %s", old.ID, s.ID)
		snapshotEvent(c, fx, now, wire.EventNormal, "SnapshotDeleted", &old, text)
	}
}

// reportSchedules has the root learn what the schedules of volumes of its applications have come to.
func reportSchedules(c *Core) {
	if c.opt.Standalone || !c.volumes.Changed() {
		return
	}
	list := c.volumes.Routines()
	for _, key := range c.Up.Observed.Keys() {
		if v, ok := spec.ParseVolumeKey(key); ok && list[v] == nil {
			c.Up.Observed.Delete(key)
		}
	}
	for _, v := range slices.SortedFunc(maps.Keys(list), spec.VolumeClaim.Compare) {
		if _, _, owned := c.Up.Desired.Get(v.Key()); owned {
			s := *list[v]
			worker, _, _ := c.volumes.Holder(v)
			s.Reason = uplink.Redact(c.workers, s.Reason, worker)
			if s.Export != nil {
				s.Export.Reason = uplink.Redact(c.workers, s.Export.Reason, worker)
			}
			_, _ = c.Up.Observed.Put(v.Key(), c.codec.Marshal(&s)) // it is small
		}
	}
}

// takenBy says who asked for a snapshot.
func takenBy(s *spec.Snapshot) string {
	if s.Scheduled {
		return "its schedule"
	}
	return orNobody(s.Actor)
}
