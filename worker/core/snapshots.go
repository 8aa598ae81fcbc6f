package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A snapshot is an item of the desired set of the worker that has it. What is on the disk stays until there is a tombstone; what that says
// is kept as a record until the files are gone, because nobody says it twice.

// snapshotGone is the record of a snapshot that is to be removed.
type snapshotGone struct {
	ID spec.SnapshotID `json:"id"`
}

// Messages and actions about snapshots.
type (
	// RemoveSnapshot removes a snapshot, or what there is of one -> SnapshotRemoved.
	RemoveSnapshot struct{ ID spec.SnapshotID }
	// SnapshotRemoved answers RemoveSnapshot; with an error it is tried again after the next start.
	SnapshotRemoved struct {
		ID  spec.SnapshotID
		Err string
	}
)

const prefixSnapshotGone = "snapshot-gone/"

// volumeBook is what a core knows of local volumes and their snapshots.
type volumeBook struct {
	claims map[spec.VolumeClaim]*volumes
	gone   map[spec.SnapshotID]bool // snapshots that are to be removed
	// unwanted were removed in this life: one that is still being made is not to be kept.
	unwanted map[spec.SnapshotID]bool
	// awaited are the instances that wait for volumes which another one has.
	awaited map[skerry.InstanceID]bool
}

// maxUnwanted bounds what is remembered of removed snapshots: far more than are made at a time.
const maxUnwanted = 10_000

func newVolumeBook() volumeBook {
	return volumeBook{map[spec.VolumeClaim]*volumes{}, map[spec.SnapshotID]bool{}, map[spec.SnapshotID]bool{}, map[skerry.InstanceID]bool{}}
}

// load takes a record, if it is one of these.
func (b *volumeBook) load(key string, value []byte) (is bool, err error) {
	switch {
	case strings.HasPrefix(key, prefixVolumes):
		v := new(volumes)
		if err = json.Unmarshal(value, v); err == nil {
			b.claims[v.VolumeClaim] = v
		}
		return true, err
	case strings.HasPrefix(key, prefixSnapshotGone):
		var g snapshotGone
		if err = json.Unmarshal(value, &g); err == nil {
			b.gone[g.ID] = true
		}
		return true, err
	}
	return false, nil
}

// volumeItem takes what the cluster says of local volumes and snapshots.
func volumeItem(c *Core, key string, gone bool, fx *wire.Effects) {
	if id, ok := spec.ParseSnapshotKey(key); ok && gone {
		data, err := json.Marshal(snapshotGone{id})
		if err != nil {
			panic("records always marshal: " + err.Error())
		}
		c.vols.gone[id] = true
		if len(c.vols.unwanted) >= maxUnwanted {
			clear(c.vols.unwanted)
		}
		c.vols.unwanted[id] = true
		fx.Put(prefixSnapshotGone+string(id), data)
		fx.Actions = append(fx.Actions, RemoveSnapshot{id})
		return
	}
	c.volumeItem(key, gone, fx)
}

// isVolumeItem reports whether a key of the desired set is about local volumes or their snapshots.
func isVolumeItem(key string) bool {
	_, snapshot := spec.ParseSnapshotKey(key)
	return snapshot || strings.HasPrefix(key, "vol/")
}

func snapshotRemoved(c *Core, m SnapshotRemoved, fx *wire.Effects) {
	if m.Err == "" && c.vols.gone[m.ID] {
		delete(c.vols.gone, m.ID)
		fx.Delete(prefixSnapshotGone + string(m.ID))
	}
}

// reviewSnapshots takes up, after a start, the removals that an earlier life did not finish.
func reviewSnapshots(c *Core, fx *wire.Effects) {
	for _, id := range slices.Sorted(maps.Keys(c.vols.gone)) {
		fx.Actions = append(fx.Actions, RemoveSnapshot{id})
	}
}

// Writing is what may write to the local volumes of a replica.
type Writing struct {
	Spec     *spec.ServiceSpec // nil: nothing runs
	Handles  []json.RawMessage // of containers that run
	There    bool              // an instance has the volumes, whether it runs or not
	Starting bool              // a container is on its way, and can be held by nobody yet
	Starts   string            // which containers were started so far: another value, and one was since
}

// Writers gives what may write to the local volumes of a replica.
func Writers(c *Core, v spec.VolumeClaim) (w Writing) {
	for _, id := range c.ledger.ids() {
		i := c.ledger.insts[id]
		if i.A.Service != v.Service || i.A.Ordinal != v.Ordinal {
			continue
		}
		w.There = true
		for _, name := range i.names() {
			k := i.Containers[name]
			w.Starts += fmt.Sprintf("%s/%s/%d ", id, name, k.Attempt)
			w.Starting = w.Starting || k.start
			if k.Running {
				w.Spec = &i.A.Spec
				w.Handles = append(w.Handles, slices.Clone(k.Handle))
			}
		}
	}
	return w
}
