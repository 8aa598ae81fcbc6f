package core

import (
	"maps"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// keeps is what a site remembers of all that it ever gave a worker to keep: volumes and snapshots. A worker may hold on to what it was told
// to remove, or have it again from an older disk, with the site's own seal.
type keeps struct {
	// Serial counts what the worker was given.
	Serial uint64 `json:"serial,omitempty"`
	// Searched is the life of the store in which the worker has listed what it keeps from earlier ones.
	Searched skerry.Incarnation `json:"searched,omitempty"`
}

// gaveUp reports whether a store that does not know what it gave a worker has given it up, rather than lost it.
//
//	given in this life      known ─► deleted ─► not known. A number above the count is of a store that was set back, which has lost it.
//	given in an earlier one lost with that store; but the worker has listed all of that once, and what is not known later was deleted since.
func (k keeps) gaveUp(life skerry.Incarnation, given spec.Given) bool {
	if given.Life == life {
		return given.Serial <= k.Serial
	}
	return k.Searched == life
}

// keepVolumes has a worker keep volumes, with what shows later that this site did.
func (s *sender) keepVolumes(worker string, v spec.VolumeClaim, org string) {
	k := spec.KeptVolumes{Service: v.Service, Ordinal: v.Ordinal, Volume: v.Volume, Org: org}
	if had, sealed := s.codec.SealedVolumes(s.sealKey(), worker, s.toldToKeep(worker, v.Key())); sealed {
		k.Given = had.Given
	} else {
		k.Given = s.nextGiven(worker)
	}
	k.Seal = s.codec.SealVolumes(s.sealKey(), worker, k)
	_ = s.Children.Put(worker, v.Key(), s.codec.Marshal(&k)) // it is small
}

// keepSnapshot does the same with a snapshot, which has its record beside it.
func (s *sender) keepSnapshot(worker string, id spec.SnapshotID, record []byte) {
	k := spec.KeptSnapshot{Record: record}
	if had, sealed := s.codec.SealedSnapshot(s.sealKey(), worker, s.toldToKeep(worker, id.Key())); sealed {
		k.Given = had.Given
	} else {
		k.Given = s.nextGiven(worker)
	}
	k.Seal = s.codec.SealSnapshot(s.sealKey(), worker, k)
	_ = s.Children.Put(worker, id.Key(), s.codec.Marshal(&k)) // it is small
}

func (s *sender) toldToKeep(worker, key string) (value []byte) {
	if child := s.Children.Get(worker); child != nil {
		value, _ = child.Desired.Get(key)
	}
	return value
}

func (s *sender) nextGiven(worker string) spec.Given {
	w := s.workers[worker]
	if w == nil {
		return spec.Given{}
	}
	w.Keeps.Serial++
	s.counted[worker] = true
	return spec.Given{Life: s.life, Serial: w.Keeps.Serial}
}

// countAgain counts what a worker was given in this life of a store that was set back, and does not know it.
func (s *sender) countAgain(w *worker, given spec.Given) {
	if given.Life == s.life {
		w.Keeps.Serial = max(w.Keeps.Serial, given.Serial)
	}
}

// drop has a worker remove what it keeps.
func (s *sender) drop(worker, key string) {
	s.Children.Delete(worker, key)
	s.counted[worker] = true
}

// saveCounts writes what is remembered of the workers that were given something to keep, or told to remove it.
func (s *sender) saveCounts(fx *wire.Effects) {
	for _, name := range slices.Sorted(maps.Keys(s.counted)) {
		if w := s.workers[name]; w != nil && w.Keeps != (keeps{}) {
			s.saveWorker(w, fx)
		}
	}
	clear(s.counted)
}
