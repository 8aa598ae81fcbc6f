package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/cluster/volumes"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// ExportSnapshot asks the server to send a snapshot away, because its schedule says so; EndExport says what came of it.
type ExportSnapshot struct{ volumes.Export }

// EndExport says what became of it.
type EndExport struct {
	Snapshot spec.Snapshot
	Object   volumes.Object
	Where    string // the object, for people
	Err      string // not empty: it is not there, or not whole
	Gone     []volumes.Object
	Left     string // why others of the old ones still are there
}

// maxSending bounds how many are sent at a time, each of which takes 50 MiB of memory.
const maxSending = 2

// sendScheduled begins to send away what is due.
func (sn *snapshots) sendScheduled(now time.Time, fx *wire.Effects) {
	for _, e := range sn.volumes.DueExports(now) {
		if n, _ := sn.volumes.Sending(""); n >= maxSending || sn.volumes.Busy(e.Snapshot.Claim()) {
			continue // it waits for that, and is looked at again
		}
		if err := sn.connectedWorker(string(e.Snapshot.Worker)); err != nil {
			sn.endExport(now, EndExport{Snapshot: e.Snapshot, Err: err.Error()}, fx)
			continue
		}
		sn.volumes.Send(e.Snapshot.ID)
		fx.Actions = append(fx.Actions, ExportSnapshot{e})
	}
}

func (sn *snapshots) endExport(now time.Time, m EndExport, fx *wire.Effects) {
	s := &m.Snapshot
	claim := s.Claim()
	if m.Err != "" {
		if sn.volumes.Unsent(s, now, m.Err) {
			text := fmt.Sprintf("snapshot %s of volume %s is not sent away: %s", s.ID, claim, m.Err)
			sn.snapshotEvent(fx, now, wire.EventWarning, "SnapshotExportFailed", s, text)
		}
		return
	}
	forgotten := sn.volumes.Sent(s, m.Object, m.Where, m.Gone, now, m.Left)
	text := fmt.Sprintf("snapshot %s of volume %s is in %s", s.ID, claim, m.Where)
	sn.snapshotEvent(fx, now, wire.EventNormal, "SnapshotExported", s, text)
	if m.Left != "" {
		text = fmt.Sprintf("old snapshots of volume %s stay in S3: %s", claim, m.Left)
		for _, o := range forgotten {
			text += fmt.Sprintf("; %s is one too many to remember, and stays for good", o.Where)
		}
		sn.snapshotEvent(fx, now, wire.EventWarning, "SnapshotExportFailed", s, text)
	}
}

// reportSchedules has the root learn what the schedules of volumes of its applications have come to.
func (sn *snapshots) reportSchedules(standalone bool) {
	if standalone || !sn.volumes.Changed() {
		return
	}
	list := sn.volumes.Routines()
	for _, key := range sn.Up.Observed.Keys() {
		if v, ok := spec.ParseVolumeKey(key); ok && list[v] == nil {
			sn.Up.Observed.Delete(key)
		}
	}
	for _, v := range slices.SortedFunc(maps.Keys(list), spec.VolumeClaim.Compare) {
		if _, _, owned := sn.Up.Desired.Get(v.Key()); owned {
			s := *list[v]
			worker, _, _ := sn.volumes.Holder(v)
			s.Reason = uplink.Redact(sn.workers, s.Reason, worker)
			if s.Export != nil {
				s.Export.Reason = uplink.Redact(sn.workers, s.Export.Reason, worker)
			}
			_, _ = sn.Up.Observed.Put(v.Key(), sn.codec.Marshal(&s)) // it is small
		}
	}
}
