package core

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/volumes"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// keptSite is a site with its store, and worker w, which keeps volumes and snapshots for it.
type keptSite struct {
	*testing.T
	*Core
	now   time.Time
	store map[string][]byte
}

func newKeptSite(t *testing.T, life skerry.Incarnation, store map[string][]byte) *keptSite {
	t.Helper()
	site := &keptSite{T: t, now: time.Unix(1_700_000_000, 0).UTC(), store: maps.Clone(store)}
	if site.store == nil {
		site.store = map[string][]byte{}
	}
	site.Core = New(Options{Name: "a", Incarnation: life, Term: 1, Admission: Admission{Trusted: []string{"acme"}}, Secret: [32]byte{1}})
	for key, value := range site.store {
		if err := site.Load(key, value); err != nil {
			t.Fatal(err)
		}
	}
	site.save(site.Start(site.now))
	site.do(apps.PutOrg{Org: apps.Org{Name: "acme"}})
	return site
}

func (s *keptSite) save(fx wire.Effects) {
	for _, w := range fx.Writes {
		if s.store[w.Key] = w.Value; w.Value == nil {
			delete(s.store, w.Key)
		}
	}
}

func (s *keptSite) do(msg any) {
	s.Helper()
	fx := s.Step(s.now, msg)
	if fx.Err != nil {
		s.Fatal(fx.Err)
	}
	s.save(fx)
}

// connect has worker w, which holds something, say all it has to say, and gives what the site tells of it.
func (s *keptSite) connect(held *reconcile.Replica) wire.Effects {
	s.do(ChildDown{Name: "w"})
	fx := exchange(s.Core, s.now, reconcile.NewSource("observed", "o/", "w1", reconcile.Options{}), held)
	s.save(fx)
	return fx
}

// keep makes volumes and a snapshot of one name, and gives what the worker holds of them.
func (s *keptSite) keep(name string, held *reconcile.Replica) (stolen map[string][]byte) {
	s.Helper()
	v := spec.VolumeClaim{Service: key("acme", name)}
	s.volumes.Restored(v, "w", volumes.Want{Org: "acme", Size: skerry.GiB, Names: []string{"data"}}, 0)
	s.do(BeginSnapshot{ID: spec.SnapshotID(name), Claim: v, Import: true, Org: "acme", Worker: "w"})
	s.do(EndSnapshot{ID: spec.SnapshotID(name), Info: &spec.Snapshot{At: s.now, Size: 1000, How: spec.SnapshotIdle,
		SHA256: strings.Repeat("0", 64), Volumes: []spec.SnapshotVolume{{Name: "data", Size: skerry.GiB}}}})
	s.connect(held)
	stolen = map[string][]byte{}
	for _, k := range []string{v.Key(), spec.SnapshotID(name).Key()} {
		value, _, _ := held.Get(k)
		if stolen[k] = value; value == nil {
			s.Fatalf("the worker does not have %s", k)
		}
	}
	return stolen
}

func (s *keptSite) remove(name string) {
	s.Helper()
	s.do(apps.DeleteVolume{Claim: spec.VolumeClaim{Service: key("acme", name)}})
	s.do(DeleteSnapshot{ID: spec.SnapshotID(name)})
}

// expect compares what the site lists, and its events.
func (s *keptSite) expect(when string, fx wire.Effects, listed, left int) {
	s.Helper()
	if v, n := s.Volumes(), s.Snapshots(); len(v) != listed || len(n) != listed {
		s.Errorf("%s: %d volumes and %d snapshots are listed, want %d of each", when, len(v), len(n), listed)
	}
	if v, n := told(fx, "VolumesLeft"), told(fx, "SnapshotsLeft"); len(v) != left || len(n) != left {
		s.Errorf("%s: events about what was left: %q, %q; want %d of each", when, v, n, left)
	}
}

func emptyReplica() *reconcile.Replica {
	return reconcile.NewReplica("desired", "r/", reconcile.Options{})
}

// givenAndDeleted is a site that gave its worker something, deleted it, and gave it something else, so that the tombstones have gone which
// would have the worker remove it again; and what the worker held of it.
func givenAndDeleted(t *testing.T) (site *keptSite, stolen map[string][]byte) {
	t.Helper()
	site = newKeptSite(t, "a1", nil)
	held := emptyReplica()
	site.connect(held)
	stolen = site.keep("shop", held)
	site.remove("shop")
	site.connect(held)
	if len(site.Volumes())+len(site.Snapshots())+held.Len() != 0 {
		t.Fatalf("it was deleted, and there are %+v, %+v, %d items at the worker", site.Volumes(), site.Snapshots(), held.Len())
	}
	site.keep("other", held)
	return site, stolen
}

// TestDeletedDoesNotComeBack: a worker that holds on to what it was told to remove, or is restored from an older disk, has the site's own
// seal for it. It is not taken up again, whether the site gave it in this life of its store, in one before, or before there were lives in
// seals.
func TestDeletedDoesNotComeBack(t *testing.T) {
	first, stolen := givenAndDeleted(t)
	replayed := holding(t, first.now, stolen)
	first.expect("in the same life", first.connect(replayed), 1, 1)
	first.expect("told again", first.connect(replayed), 1, 0)
	if _, orphan, _ := replayed.Get(spec.SnapshotID("shop").Key()); !orphan {
		t.Error("what was left was removed")
	}
	again := newKeptSite(t, "a1", first.store)
	again.expect("after a restart", again.connect(holding(t, again.now, stolen)), 1, 1)

	// A store that was lost takes up what it finds, once; what it has deleted since does not come back either.
	for what, items := range map[string]map[string][]byte{"of an earlier life": stolen, "without a life": unnumbered(t, first, stolen)} {
		lost := newKeptSite(t, "a2", nil)
		held := holding(t, lost.now, items)
		lost.expect(what+", found", lost.connect(held), 1, 0)
		lost.remove("shop")
		lost.connect(held)
		lost.keep("other", held)
		lost.expect(what+", deleted", lost.connect(holding(t, lost.now, items)), 1, 1)
		again := newKeptSite(t, "a2", lost.store)
		again.expect(what+", deleted, after a restart", again.connect(holding(t, again.now, items)), 1, 1)
	}
}

// TestOlderProgramsDoNotLoseWhatWasGiven: a site remembers what it gave though an older program had its store meanwhile, which
// leaves records alone that it does not know. A field that it does not know would have it refuse the store.
func TestOlderProgramsDoNotLoseWhatWasGiven(t *testing.T) {
	first, stolen := givenAndDeleted(t)
	var fields map[string]any
	if err := json.Unmarshal(first.store[prefixWorker+"w"], &fields); err != nil {
		t.Fatal(err)
	}
	known := []string{"agent", "carrier", "drain", "facts", "hold", "name", "peer"} // by the program of 2026-11-24
	for name := range fields {
		if !slices.Contains(known, name) {
			t.Errorf("the worker's record has %q, which an older program would lose: %s", name, first.store[prefixWorker+"w"])
		}
	}
	count := first.store[prefixKeeps+"w"]
	if count == nil {
		t.Fatal("nothing tells what the worker was given")
	}

	// Between these two programs there was one that wrote the count into the worker's record.
	inWorker := maps.Clone(first.store)
	delete(inWorker, prefixKeeps+"w")
	fields["keeps"] = json.RawMessage(count)
	inWorker[prefixWorker+"w"] = mustJSON(fields)
	site := newKeptSite(t, "a1", inWorker)
	site.expect("counted in the worker's record", site.connect(holding(t, site.now, stolen)), 1, 1)
	if got := site.store[prefixKeeps+"w"]; !bytes.Equal(got, count) {
		t.Errorf("the count has a record of its own: got %q, want %q", got, count)
	}

	// An older program removed the worker, and not the count.
	removed := maps.Clone(first.store)
	delete(removed, prefixWorker+"w")
	site = newKeptSite(t, "a1", removed)
	if _, left := site.store[prefixKeeps+"w"]; left {
		t.Error("the count of a worker that was removed stays")
	}
	first.do(ChildDown{Name: "w"})
	first.do(RemoveWorker{Name: "w"})
	if _, left := first.store[prefixKeeps+"w"]; left {
		t.Error("a worker was removed, and its count stays")
	}
}

// TestSetBackStore: a store that was set back without a new life, as by a copy of its disk, has lost what it gave since, and takes it up.
func TestSetBackStore(t *testing.T) {
	first := newKeptSite(t, "a1", nil)
	held := emptyReplica()
	first.connect(held)
	first.keep("kept", held)
	before := maps.Clone(first.store)
	later := first.keep("later", held)

	back := newKeptSite(t, "a1", before)
	back.expect("set back", back.connect(held), 2, 0)
	back.remove("later")
	back.connect(held)
	back.expect("deleted since", back.connect(holding(t, back.now, later)), 1, 1)
}

// unnumbered gives what a site of an earlier version gave, whose seals say nothing of a life.
func unnumbered(t *testing.T, s *keptSite, items map[string][]byte) map[string][]byte {
	out, codec, seal := map[string][]byte{}, wire.New(), s.lifecycle.sealKey()
	for k, value := range items {
		if id, ok := spec.ParseSnapshotKey(k); ok {
			var kept spec.KeptSnapshot
			if err := codec.Unmarshal(value, &kept); err != nil {
				t.Fatal(id, err)
			}
			kept.Given = spec.Given{}
			kept.Seal = codec.SealSnapshot(seal, "w", kept)
			out[k] = codec.Marshal(&kept)
			continue
		}
		var kept spec.KeptVolumes
		if err := codec.Unmarshal(value, &kept); err != nil {
			t.Fatal(k, err)
		}
		kept.Given = spec.Given{}
		kept.Seal = codec.SealVolumes(seal, "w", kept)
		out[k] = codec.Marshal(&kept)
	}
	return out
}

// TestLeftIsDeleted: an operator lists what a worker keeps and the site does not take up, and has it deleted, each by its name and with an
// event that says by whom. What the site knows there is not touched.
func TestLeftIsDeleted(t *testing.T) {
	first := newKeptSite(t, "a1", nil)
	held := emptyReplica()
	first.connect(held)
	unsealed := first.keep("unsealed", held)
	for k, value := range unsealed {
		unsealed[k] = append(value[:len(value)-1:len(value)-1], value[len(value)-1]^1) // no longer as it was sealed
	}
	unsealed["vol/acme/kept/web/0:data"], unsealed["vol/acme/kept/web/0:old"] = nil, nil

	site := newKeptSite(t, "a2", nil)
	worker := holding(t, site.now, unsealed)
	site.connect(worker)
	site.keep("kept", worker)
	site.connect(worker)
	names := func() (out []string) {
		list, err := site.Orphans()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			if out = append(out, o.Name()); o.Instance != "" || o.Worker != "w" || o.Problem == "" {
				t.Errorf("%s is listed as %+v", o.Name(), o)
			}
		}
		return out
	}
	want := []string{"w/snap/unsealed", "w/vol/acme/kept/web/0:data", "w/vol/acme/kept/web/0:old", "w/vol/acme/unsealed/web/0"}
	if got := names(); !slices.Equal(got, want) {
		t.Fatalf("%q are listed, want %q", got, want)
	}
	refused := func(msg apps.DecideOrphan, code skerry.Code, text string) {
		t.Helper()
		fx := site.Step(site.now, msg)
		if err := skerry.AsError(fx.Err); fx.Err == nil || err.Code != code || !strings.Contains(err.Message, text) {
			t.Errorf("%+v: %v; want %s, %q", msg, fx.Err, code, text)
		}
	}
	refused(apps.DecideOrphan{Name: want[0], Adopt: true}, skerry.CodeConflict, notShown)
	refused(apps.DecideOrphan{Name: want[1]}, skerry.CodeConflict, "knows volumes acme/kept/web/0")
	for _, name := range []string{"w/snap/kept", "w/vol/acme/kept/web/0", "x/snap/unsealed", "w/inst/x", "snap/unsealed", "w/"} {
		refused(apps.DecideOrphan{Name: name}, skerry.CodeNotFound, name)
	}
	for _, name := range []string{want[0], want[2], want[3]} {
		fx := site.Step(site.now, apps.DecideOrphan{Name: name, Actor: "ann"})
		site.save(fx)
		if texts := told(fx, "OrphanDeleted"); fx.Err != nil || len(texts) != 1 || !strings.HasSuffix(texts[0], "by ann") {
			t.Fatalf("%s: %v, events %q", name, fx.Err, texts)
		}
	}
	site.connect(worker)
	if got := names(); !slices.Equal(got, want[1:2]) {
		t.Errorf("%q are left", got)
	}
	var keys []string
	for k := range worker.All() {
		keys = append(keys, k)
	}
	if left := []string{"snap/kept", "vol/acme/kept/web/0", "vol/acme/kept/web/0:data"}; !slices.Equal(keys, left) {
		t.Errorf("the worker has %q, want %q", keys, left)
	}
	site.expect("what was known", wire.Effects{}, 1, 0)
	// A worker that keeps it nevertheless has it listed, and named, again.
	fx := site.connect(holding(t, site.now, unsealed))
	if got := names(); len(told(fx, "SnapshotsLeft")) != 1 || !slices.Contains(got, want[0]) {
		t.Errorf("kept nevertheless: %q, events %q", got, told(fx, "SnapshotsLeft"))
	}
}

// TestLeftInUse: volumes that an orphan or an instance on its way out has are not deleted.
func TestLeftInUse(t *testing.T) {
	now, codec := time.Unix(1_700_000_000, 0).UTC(), wire.New()
	site := newKeptSite(t, "a2", nil)
	a := spec.Assignment{ID: "db-cabcdefgh", Service: key("acme", "db"), Spec: spec.ServiceSpec{Name: "web", Mode: spec.ModeService,
		Volumes: []spec.Volume{{Name: "data", Local: &spec.LocalVolume{}}}}}
	v := spec.VolumeClaim{Service: a.Service}
	held := holding(t, now, map[string][]byte{v.Key(): nil, wire.AssignmentKey(a.ID): codec.Marshal(&a)})
	runs := reconcile.NewSource("observed", "o/", "w1", reconcile.Options{})
	if _, err := runs.Put(wire.AssignmentKey(a.ID), codec.Marshal(&wire.Observation{ID: a.ID, State: skerry.Running})); err != nil {
		t.Fatal(err)
	}
	exchange(site.Core, now, runs, held)
	name := "w/" + v.Key()
	fx := site.Step(now, apps.DecideOrphan{Name: name})
	if fx.Err == nil || !strings.Contains(fx.Err.Error(), "orphan db-cabcdefgh uses it") {
		t.Errorf("beside an orphan that has it: %v", fx.Err)
	}
	if fx := site.Step(now, apps.DecideOrphan{Name: string(a.ID)}); fx.Err != nil {
		t.Fatal(fx.Err)
	}
	runs.Delete(wire.AssignmentKey(a.ID))
	site.Step(now, ChildDown{Name: "w"})
	exchange(site.Core, now, runs, held)
	if fx := site.Step(now, apps.DecideOrphan{Name: name}); fx.Err != nil {
		t.Errorf("when the orphan has ended: %v", fx.Err)
	}
}
