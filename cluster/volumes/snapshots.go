package volumes

import (
	"encoding/json"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// SnapshotPrefix is that of the keys of the records of snapshots.
const SnapshotPrefix = "snapshot/"

// SnapshotRecord gives a new value of the type that a record of a snapshot is read into.
func SnapshotRecord() any { return new(spec.Snapshot) }

// LoadSnapshot takes a record.
func (c *Claims) LoadSnapshot(value []byte) error {
	s := new(spec.Snapshot)
	err := json.Unmarshal(value, s)
	if err == nil {
		c.snaps[s.ID] = s
	}
	return err
}

// PutSnapshot notes a snapshot, and has its worker keep it.
func (c *Claims) PutSnapshot(s spec.Snapshot) {
	c.snaps[s.ID] = &s
	c.changed = c.changed || s.Scheduled
	c.site.Write(wire.Write{Key: SnapshotPrefix + string(s.ID), Value: keepSnapshot(c, &s)})
}

func keepSnapshot(c *Claims, s *spec.Snapshot) (record []byte) {
	record, err := json.Marshal(s)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	c.site.KeepSnapshot(string(s.Worker), s.ID, record)
	return record
}

// TakeUpSnapshot notes a snapshot of which this store does not know, by the record that its worker keeps beside it. It returns the
// organisation of the snapshot, or why it is not taken up.
func TakeUpSnapshot(c *Claims, id spec.SnapshotID, worker string, record []byte) (org, left string) {
	var s spec.Snapshot
	switch err := json.Unmarshal(record, &s); {
	case err != nil:
		return "", "its record cannot be read: " + err.Error()
	case s.ID != id || string(s.Worker) != worker:
		return "", "its record is that of another one"
	case c.snaps[id] != nil:
		return "", "there is another one of that name"
	case s.State != spec.SnapshotReady:
		return "", "nobody knows whether it was complete"
	}
	c.PutSnapshot(s)
	return s.Org, ""
}

// DropSnapshot has a snapshot removed.
func (c *Claims) DropSnapshot(id spec.SnapshotID) {
	if s := c.snaps[id]; s != nil {
		c.site.DropSnapshot(string(s.Worker), id)
		c.forgetSnapshot(id)
	}
}

func (c *Claims) forgetSnapshot(id spec.SnapshotID) {
	delete(c.snaps, id)
	c.changed = true
	c.site.Write(wire.Write{Key: SnapshotPrefix + string(id)})
}

// Snapshot gives a snapshot, or nil.
func (c *Claims) Snapshot(id spec.SnapshotID) *spec.Snapshot { return c.snaps[id] }

// Snapshots lists all, sorted.
func (c *Claims) Snapshots() []spec.Snapshot {
	out := make([]spec.Snapshot, 0, len(c.snaps))
	for _, s := range c.snaps {
		out = append(out, *s)
	}
	spec.SortSnapshots(out)
	return out
}

// SnapshotsOf counts the snapshots of an organisation, and those of them that are being made.
func (c *Claims) SnapshotsOf(org string) (all, taking int) {
	for _, s := range c.snaps {
		if s.Org != org {
			continue
		}
		all++
		if s.State == spec.SnapshotTaking {
			taking++
		}
	}
	return all, taking
}

// Besides is what an organisation has on disks that no instance asks for: its snapshots, volumes that were made of them and are nobody's
// yet, or are being made, and what volumes have above what an instance asks for.
func (c *Claims) Besides(org string) (sum skerry.Bytes) {
	for _, s := range c.snaps {
		if s.Org == org {
			sum += s.Size
		}
	}
	for v, k := range c.all {
		switch {
		case k.Org != org:
		case c.again(k):
		case c.Loose(v) && !c.site.Replica(v):
			sum += k.size() + k.Took
		default:
			sum += k.size() - k.Size
		}
	}
	for _, r := range c.busy {
		if r.org == org {
			sum += r.more
		}
	}
	return sum
}

// LooseOf counts the volumes of an organisation that were made of snapshots and are nobody's yet.
func (c *Claims) LooseOf(org string) (n int) {
	for v, k := range c.all {
		if k.Org == org && c.Loose(v) {
			n++
		}
	}
	return n
}

// Unfinished ends, after a start, what an earlier life was at, and gives it: nobody knows whether it was finished.
func (c *Claims) Unfinished() (out []spec.Snapshot) {
	for _, s := range c.Snapshots() {
		if s.State != spec.SnapshotReady {
			c.DropSnapshot(s.ID)
			out = append(out, s)
		} else {
			keepSnapshot(c, &s)
		}
	}
	return out
}

// restoring is what volumes that are being restored take of a disk, above what they have, whose they are, and of which snapshot.
type restoring struct {
	org  string
	more skerry.Bytes
	from spec.SnapshotID
}

// Begin notes that volumes of an organisation are being restored from a snapshot, for which they take so much more: until End they have no
// instance, and the snapshot stays.
func (c *Claims) Begin(v spec.VolumeClaim, org string, more skerry.Bytes, from spec.SnapshotID) {
	c.busy[v] = restoring{org, more, from}
}

// Source reports whether volumes are being restored from a snapshot.
func (c *Claims) Source(id spec.SnapshotID) bool {
	for _, r := range c.busy {
		if r.from == id {
			return true
		}
	}
	return false
}

// End notes that volumes are no longer being restored.
func (c *Claims) End(v spec.VolumeClaim) { delete(c.busy, v) }

// Busy reports whether volumes are being restored.
func (c *Claims) Busy(v spec.VolumeClaim) bool { _, busy := c.busy[v]; return busy }

// Restoring counts the volumes of an organisation that are being restored.
func (c *Claims) Restoring(org string) (n int) {
	for _, r := range c.busy {
		if r.org == org {
			n++
		}
	}
	return n
}

// Restored notes that a worker has data for volumes, which may be new, and what that took of the disk besides the size of w. Where another
// worker had them, it removes what it has.
func (c *Claims) Restored(v spec.VolumeClaim, worker string, w Want, took skerry.Bytes) {
	made := c.all[v] == nil
	if !made {
		c.all[v].Names = nil // all that was there is gone, and no volume of it is kept for itself
	}
	c.Place(v, worker, w)
	k := c.all[v]
	k.Ran, k.Made, k.Had, k.Took = true, k.Made || made, 0, took
	c.note(k)
}

// Loose reports whether volumes were made here by hand and belong to no application yet.
func (c *Claims) Loose(v spec.VolumeClaim) bool {
	k := c.all[v]
	return k != nil && k.Made && !k.Owned && !c.site.Owned(v) && !c.again(k)
}

// Remove has a worker remove volumes that belong to nobody.
func (c *Claims) Remove(v spec.VolumeClaim) {
	if k := c.all[v]; k != nil {
		if v.Volume == "" {
			c.dropFormer(v)
		}
		c.reserve(k, 0)
		c.site.Drop(k.Worker, v)
		delete(c.all, v)
		c.changed = true
		c.site.Write(wire.Write{Key: Prefix + v.Key()})
	}
}

// Holder gives the worker that is to keep volumes, with data or without, and what they are; "": none.
func (c *Claims) Holder(v spec.VolumeClaim) (worker string, ran bool, w Want) {
	if k := c.all[v]; k != nil {
		return k.Worker, k.Ran, Want{Size: k.size(), Org: k.Org, Names: k.Names}
	}
	return "", false, Want{}
}
