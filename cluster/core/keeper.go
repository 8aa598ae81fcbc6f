package core

import (
	"encoding/json"
	"maps"
	"slices"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// keepVolumes has a worker keep volumes, with what shows later that this site did.
func (s *sender) keepVolumes(worker string, v spec.VolumeClaim, org string) {
	kept := spec.KeptVolumes{Service: v.Service, Ordinal: v.Ordinal, Volume: v.Volume, Org: org}
	if had, sealed := s.codec.SealedVolumes(s.sealKey(), worker, s.toldToKeep(worker, v.Key())); sealed {
		kept.Given = had.Given
	} else {
		kept.Given = s.nextGiven(worker)
	}
	kept.Seal = s.codec.SealVolumes(s.sealKey(), worker, kept)
	_ = s.Children.Put(worker, v.Key(), s.codec.Marshal(&kept)) // it is small
}

// keepSnapshot does the same with a snapshot, which has its record beside it.
func (s *sender) keepSnapshot(worker string, id spec.SnapshotID, record []byte) {
	kept := spec.KeptSnapshot{Record: record}
	if had, sealed := s.codec.SealedSnapshot(s.sealKey(), worker, s.toldToKeep(worker, id.Key())); sealed {
		kept.Given = had.Given
	} else {
		kept.Given = s.nextGiven(worker)
	}
	kept.Seal = s.codec.SealSnapshot(s.sealKey(), worker, kept)
	_ = s.Children.Put(worker, id.Key(), s.codec.Marshal(&kept)) // it is small
}

func (s *sender) toldToKeep(worker, key string) (value []byte) {
	if child := s.Children.Get(worker); child != nil {
		value, _ = child.Desired.Get(key)
	}
	return value
}

func (s *sender) nextGiven(worker string) spec.Given {
	if s.workers[worker] == nil {
		return spec.Given{}
	}
	k := s.keepCounts[worker]
	k.Serial++
	s.keepCounts[worker], s.counted[worker] = k, true
	return spec.Given{Life: s.life, Serial: k.Serial}
}

// countAgain counts what a worker was given in this life of a store that was set back, and does not know it.
func (s *sender) countAgain(w *worker, given spec.Given) {
	if given.Life == s.life {
		k := s.keepCounts[w.Name]
		k.Serial = max(k.Serial, given.Serial)
		s.keepCounts[w.Name] = k
	}
}

// loadCounts reads the record of what a worker was given. If an older program removed the worker, the next step deletes the record.
func (s *sender) loadCounts(worker string, value []byte) error {
	var k keeps
	if err := json.Unmarshal(value, &k); err != nil {
		return err
	}
	s.keepCounts[worker] = k
	delete(s.counted, worker)
	if s.workers[worker] == nil {
		s.counted[worker] = true // until the worker's own record is read
	}
	return nil
}

// countsOfBefore takes up what the worker's own record says, where there is no record of what it was given yet.
func (s *sender) countsOfBefore(worker string, k keeps) {
	if _, known := s.keepCounts[worker]; known {
		delete(s.counted, worker)
	} else if k != (keeps{}) {
		s.keepCounts[worker], s.counted[worker] = k, true
	}
}

// drop has a worker remove what it keeps.
func (s *sender) drop(worker, key string) {
	s.Children.Delete(worker, key)
	s.counted[worker] = true
}

// saveCounts writes what is remembered of the workers that were given something to keep, or told to remove it, and forgets those that left.
func (s *sender) saveCounts(fx *wire.Effects) {
	for _, name := range slices.Sorted(maps.Keys(s.counted)) {
		k, remembered := s.keepCounts[name]
		switch {
		case !remembered:
		case s.workers[name] == nil:
			delete(s.keepCounts, name)
			fx.Delete(prefixKeeps + name)
		default:
			fx.Put(prefixKeeps+name, mustJSON(k))
		}
	}
	clear(s.counted)
}
