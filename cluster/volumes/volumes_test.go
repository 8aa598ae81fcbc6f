package volumes

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// shed is a site with one service whose replicas have volumes.
type shed struct {
	at       map[spec.VolumeClaim]string // where instances are that hold the room of their volumes
	replicas map[spec.VolumeClaim]bool
	owned    map[spec.VolumeClaim]bool
	routines map[spec.VolumeClaim]Routine
	kept     map[string]map[spec.VolumeClaim]bool
	reserved map[string]skerry.Bytes
	records  map[string]string
	snaps    map[spec.SnapshotID]string // the worker that keeps each
	claims   *Claims
}

func (s *shed) Keep(worker string, v spec.VolumeClaim, _ string) {
	if s.kept[worker] == nil {
		s.kept[worker] = map[spec.VolumeClaim]bool{}
	}
	s.kept[worker][v] = true
}
func (s *shed) Drop(worker string, v spec.VolumeClaim)                   { delete(s.kept[worker], v) }
func (s *shed) KeepSnapshot(worker string, id spec.SnapshotID, _ []byte) { s.snaps[id] = worker }
func (s *shed) DropSnapshot(worker string, id spec.SnapshotID)           { delete(s.snaps, id) }
func (s *shed) Reserve(worker string, size skerry.Bytes)                 { s.reserved[worker] += size }
func (s *shed) Occupied(v spec.VolumeClaim, worker string) bool          { return s.at[v] == worker }
func (s *shed) Replica(v spec.VolumeClaim) bool                          { return s.replicas[v] }
func (s *shed) Routine(v spec.VolumeClaim) Routine                       { return s.routines[v] }
func (s *shed) Owned(v spec.VolumeClaim) bool                            { return s.owned[v] }
func (s *shed) Write(w wire.Write) {
	if s.records[w.Key] = string(w.Value); w.Value == nil {
		delete(s.records, w.Key)
	}
}

func newShed() *shed {
	s := &shed{map[spec.VolumeClaim]string{}, map[spec.VolumeClaim]bool{}, map[spec.VolumeClaim]bool{}, map[spec.VolumeClaim]Routine{},
		map[string]map[spec.VolumeClaim]bool{}, map[string]skerry.Bytes{}, map[string]string{}, map[spec.SnapshotID]string{}, nil}
	s.claims = New(s)
	return s
}

// settle does what the core does at the end of each step, and holds the books against what workers were told.
func (s *shed) settle(t *testing.T) {
	t.Helper()
	s.claims.Release()
	reserved, faults := s.claims.Audit()
	for name, size := range s.reserved {
		if reserved[name] != size {
			t.Errorf("%d bytes are reserved on %s, the claims say %d", size, name, reserved[name])
		}
	}
	if len(faults) > 0 {
		t.Error(faults)
	}
}

// run has a replica run on a worker.
func (s *shed) run(t *testing.T, v spec.VolumeClaim, worker string) {
	t.Helper()
	s.replicas[v], s.at[v] = true, worker
	s.claims.Place(v, worker, Want{Size: skerry.GiB, Org: "acme", Names: []string{"data"}})
	s.claims.Ran(v, worker)
	s.settle(t)
}

func (s *shed) end(v spec.VolumeClaim) {
	delete(s.at, v)
	delete(s.replicas, v)
	s.claims.Touch()
}

func replica(n int) spec.VolumeClaim {
	return spec.VolumeClaim{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "n", Name: "a"}, Service: "db"}, Ordinal: n}
}

// TestLifeOfAClaim: data stays while its owner wants it, keeps its room while nothing runs, and goes with the owner's word.
func TestLifeOfAClaim(t *testing.T) {
	s, v := newShed(), replica(1)
	s.owned[v] = true
	s.run(t, v, "w1")
	if at := s.claims.At(v); at != "w1" || s.reserved["w1"] != 0 || !s.kept["w1"][v] {
		t.Fatalf("while it runs: data at %q, %d bytes reserved, kept %v; want w1, none by itself, kept", at, s.reserved["w1"], s.kept)
	}
	s.end(v)
	s.settle(t)
	if s.claims.At(v) != "w1" || s.claims.Idle(v) != skerry.GiB || s.reserved["w1"] != skerry.GiB {
		t.Fatalf("scaled down: data at %q, %d bytes reserved; want w1 and 1 GiB", s.claims.At(v), s.reserved["w1"])
	}
	s.run(t, v, "w1")
	if s.claims.Idle(v) != 0 {
		t.Fatalf("it runs again: %d bytes are reserved twice", s.claims.Idle(v))
	}
	s.end(v)
	s.owned = map[spec.VolumeClaim]bool{}
	s.settle(t)
	if s.claims.Known(v) || s.kept["w1"][v] || len(s.records) > 0 || s.reserved["w1"] != 0 {
		t.Fatalf("its owner gave it up: known %v, kept %v, records %v, %d bytes reserved; want none", s.claims.Known(v), s.kept, s.records,
			s.reserved["w1"])
	}
}

// TestRenamedVolume: what a replica had under another name keeps its room, and goes with its owner's word or, if that never said a word of
// it, when somebody deletes it here or the replica's directory goes.
func TestRenamedVolume(t *testing.T) {
	s, v := newShed(), replica(1)
	one := v
	one.Volume = "data"
	place := func(worker string, names ...string) {
		t.Helper()
		w := Want{Org: "acme", Names: names, Sizes: map[string]skerry.Bytes{}}
		for _, name := range names {
			w.Sizes[name] = skerry.GiB
			w.Size += skerry.GiB
		}
		s.replicas[v], s.at[v] = true, worker
		s.claims.Place(v, worker, w)
		s.claims.Ran(v, worker)
		s.settle(t)
	}
	s.owned[v] = true
	place("w1", "data", "log")
	place("w1", "base", "log")
	_, _, w := s.claims.Holder(one)
	if !s.kept["w1"][one] || w.Size != skerry.GiB || s.reserved["w1"] != skerry.GiB || len(s.claims.List()) != 2 {
		t.Fatalf("renamed: kept %v, %s reserved, %v listed", s.kept, s.reserved["w1"], s.claims.List())
	}
	if !s.claims.Loose(one) || s.claims.Besides("acme") != skerry.GiB {
		t.Errorf("nobody owns it: loose %v, %s count besides", s.claims.Loose(one), s.claims.Besides("acme"))
	}
	place("w1", "data", "log")
	if s.claims.Loose(one) || s.reserved["w1"] != skerry.GiB || len(s.claims.List()) != 2 { // base
		t.Errorf("named as before: %s reserved, %v listed", s.reserved["w1"], s.claims.List())
	}
	place("w1", "log")
	s.owned[one] = true
	s.claims.Touch()
	s.settle(t)
	delete(s.owned, one)
	s.claims.Touch()
	s.settle(t)
	if s.claims.Known(one) || s.kept["w1"][one] || s.reserved["w1"] != skerry.GiB {
		t.Errorf("its owner gave it up: kept %v, %s reserved", s.kept, s.reserved["w1"])
	}
	place("w2", "log") // restored there, by hand
	if len(s.claims.List()) != 1 || s.reserved["w1"] != 0 {
		t.Errorf("moved: %v listed, %s reserved", s.claims.List(), s.reserved["w1"])
	}
	place("w2", "data", "log")
	place("w2", "log")
	s.end(v)
	delete(s.owned, v)
	s.claims.Touch()
	s.settle(t)
	if len(s.claims.List()) != 0 || len(s.records) != 0 || s.reserved["w2"] != 0 {
		t.Errorf("all of the replica was given up: %v listed, records %v, %s reserved", s.claims.List(), s.records, s.reserved["w2"])
	}
}

// TestMovedBeforeItRan: what never ran has no data, and its claim moves with it.
func TestMovedBeforeItRan(t *testing.T) {
	s, v := newShed(), replica(1)
	s.replicas[v], s.at[v] = true, "w1"
	s.claims.Place(v, "w1", Want{Size: skerry.GiB})
	s.settle(t)
	if at := s.claims.At(v); at != "" {
		t.Fatalf("data at %q before anything ran", at)
	}
	s.at[v] = "w2"
	s.claims.Place(v, "w2", Want{Size: skerry.GiB})
	s.claims.Ran(v, "w1") // late word of the place before
	s.settle(t)
	if s.claims.At(v) != "" || s.kept["w1"][v] || !s.kept["w2"][v] {
		t.Fatalf("moved: data at %q, kept %v; want none, on w2 alone", s.claims.At(v), s.kept)
	}
	s.end(v)
	s.settle(t)
	if s.claims.Known(v) {
		t.Fatal("the claim of what never ran outlived it")
	}
}

// TestUnownedDataStays: before the owner has said anything of data it is kept, since half of what it says may be on its way.
func TestUnownedDataStays(t *testing.T) {
	s, v := newShed(), replica(1)
	s.run(t, v, "w1")
	s.end(v)
	s.settle(t)
	if s.claims.At(v) != "w1" {
		t.Fatalf("data at %q; want w1, nobody has given it up", s.claims.At(v))
	}
}

// TestRecords: claims are the same after a start, byte for byte, and a worker's removal gives up its own alone.
func TestRecords(t *testing.T) {
	s := newShed()
	s.owned[replica(1)] = true
	s.run(t, replica(1), "w1")
	s.run(t, replica(2), "w2")
	const want = `{"service":{"app":{"namespace":"n","name":"a"},"service":"db"},"ordinal":1,"worker":"w1","ran":true,"owned":true,"size":"1Gi","org":"acme","names":["data"]}`
	if got := s.records[Prefix+replica(1).Key()]; got != want {
		t.Errorf("the record is %s, want %s", got, want)
	}
	again := newShed()
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		if !strings.HasPrefix(key, Prefix) {
			t.Errorf("a record %s", key)
		}
		if err := again.claims.Load([]byte(s.records[key])); err != nil {
			t.Fatal(err)
		}
	}
	again.at, again.replicas, again.owned = s.at, s.replicas, s.owned
	again.claims.Start()
	again.settle(t)
	if !maps.Equal(again.records, s.records) {
		t.Errorf("after a start %v, before %v", again.records, s.records)
	}
	for _, x := range []struct {
		n      int
		worker string
		wanted bool
	}{{1, "w1", true}, {1, "w2", false}, {3, "w1", false}} {
		if got := again.claims.Wanted(replica(x.n), x.worker); got != x.wanted {
			t.Errorf("replica %d at %s: wanted %v, want %v", x.n, x.worker, got, x.wanted)
		}
	}
	if gone := again.claims.Forget("w1"); !slices.Equal(gone, []Gone{{replica(1), true}}) || again.claims.At(replica(2)) != "w2" {
		t.Errorf("forgetting w1 gave up %v, and left replica 2 at %q", gone, again.claims.At(replica(2)))
	}
	if again.claims.Load([]byte("{")) == nil {
		t.Error("a broken record is read")
	}
}

// TestAuditFindsWhatIsWrong in the books.
func TestAuditFindsWhatIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(k *claim){
		"claimed nowhere":            func(k *claim) { k.Worker = "" },
		"is listed as":               func(k *claim) { k.Ordinal++ },
		"bytes are reserved on w1; ": func(k *claim) { k.idle = 1 },
	} {
		s, v := newShed(), replica(1)
		s.run(t, v, "w1")
		spoil(s.claims.all[v])
		if _, faults := s.claims.Audit(); !strings.Contains(strings.Join(faults, "\n"), name) {
			t.Errorf("%v, want %q", faults, name)
		}
	}
}

// A volume never becomes smaller: what it has above its manifest is reserved, and counts for its organisation, whether
// it became so by a new manifest or by a snapshot.
func TestLargerThanItsManifest(t *testing.T) {
	s, v := newShed(), replica(0)
	s.run(t, v, "w1")
	less := Want{Size: 100 * skerry.MiB, Org: "acme", Names: []string{"data"}}
	s.claims.Place(v, "w1", less)
	s.settle(t)
	const more = skerry.GiB - 100*skerry.MiB
	if s.reserved["w1"] != more || s.claims.Besides("acme") != more {
		t.Errorf("made smaller in the manifest: %s are reserved, %s counted", s.reserved["w1"], s.claims.Besides("acme"))
	}
	again := New(s)
	for _, record := range s.records {
		if err := again.Load([]byte(record)); err != nil {
			t.Fatal(err)
		}
	}
	if n := again.Besides("acme"); n != more {
		t.Errorf("after a start %s are counted", n)
	}
	s.claims.Place(v, "w1", Want{Size: 2 * skerry.GiB, Org: "acme", Names: []string{"data"}})
	s.settle(t)
	if s.reserved["w1"] != 0 || s.claims.Besides("acme") != 0 {
		t.Errorf("larger in the manifest: %s are reserved, %s counted", s.reserved["w1"], s.claims.Besides("acme"))
	}
	s.claims.Begin(v, "acme", 3*skerry.GiB, "one")
	if n := s.claims.Besides("acme"); n != 3*skerry.GiB || s.claims.Restoring("acme") != 1 || s.claims.Restoring("other") != 0 {
		t.Errorf("while it is restored %s are counted", n)
	}
	s.claims.End(v)
	s.claims.Restored(v, "w1", Want{Size: 5 * skerry.GiB, Org: "acme", Names: []string{"data"}}, 7)
	s.claims.Place(v, "w1", less)
	s.settle(t)
	if n := s.claims.Besides("acme"); n != 5*skerry.GiB-100*skerry.MiB || s.reserved["w1"] != n {
		t.Errorf("restored from a larger one: %s are reserved, %s counted", s.reserved["w1"], n)
	}
	s.at[v] = "w2"
	s.claims.Place(v, "w2", less)
	s.settle(t)
	if s.reserved["w1"] != 0 || s.reserved["w2"] != 0 || s.claims.Besides("acme") != 0 {
		t.Errorf("elsewhere, where nothing of it is: %v are reserved, %s counted", s.reserved, s.claims.Besides("acme"))
	}
	s.owned[v] = true
	s.claims.Touch()
	s.settle(t)
	s.end(v)
	delete(s.owned, v)
	if orgs := s.claims.Release(); len(orgs) != 1 || orgs[0] != "acme" || len(s.claims.Release()) != 0 {
		t.Errorf("given up: of %q", orgs)
	}
}
