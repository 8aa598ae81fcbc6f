package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

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

// maxUnwanted bounds what is remembered of removed snapshots: far more than are made at a time.
const maxUnwanted = 10_000

// snapshotBook owns which snapshots are to be removed, each with a record until its files are gone.
type snapshotBook struct {
	gone map[spec.SnapshotID]bool
	// unwanted were removed in this life: one that is still being made is not to be kept.
	unwanted map[spec.SnapshotID]bool
}

func newSnapshotBook() *snapshotBook {
	return &snapshotBook{map[spec.SnapshotID]bool{}, map[spec.SnapshotID]bool{}}
}

// load takes a record of a snapshot that is to be removed.
func (b *snapshotBook) load(value []byte) error {
	var g snapshotGone
	if err := json.Unmarshal(value, &g); err != nil {
		return err
	}
	b.gone[g.ID] = true
	return nil
}

// drop has a snapshot removed.
func (b *snapshotBook) drop(id spec.SnapshotID, fx *wire.Effects) {
	data, err := json.Marshal(snapshotGone{id})
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	b.gone[id] = true
	if len(b.unwanted) >= maxUnwanted {
		clear(b.unwanted)
	}
	b.unwanted[id] = true
	fx.Put(prefixSnapshotGone+string(id), data)
	fx.Actions = append(fx.Actions, RemoveSnapshot{id})
}

// removed takes what came of a removal.
func (b *snapshotBook) removed(m SnapshotRemoved, fx *wire.Effects) {
	if m.Err == "" && b.gone[m.ID] {
		delete(b.gone, m.ID)
		fx.Delete(prefixSnapshotGone + string(m.ID))
	}
}

// review takes up, after a start, the removals that an earlier life did not finish.
func (b *snapshotBook) review(fx *wire.Effects) {
	for _, id := range slices.Sorted(maps.Keys(b.gone)) {
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
