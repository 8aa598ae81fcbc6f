package core

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/volumes"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// siteA gives a life of site a, whose store knows no more than an organisation.
func siteA(now time.Time, life skerry.Incarnation, secret byte) *Core {
	c := New(Options{Name: "a", Incarnation: life, Term: 1, Admission: Admission{Trusted: []string{"acme"}}, Secret: [32]byte{secret}})
	c.Start(now)
	c.Step(now, apps.PutOrg{Org: apps.Org{Name: "acme"}})
	return c
}

// holding gives the set of a worker that an earlier life of the site had keep items.
func holding(t *testing.T, now time.Time, items map[string][]byte) *reconcile.Replica {
	t.Helper()
	told := reconcile.NewSource(members.Desired, "s/", "a1", reconcile.Options{})
	held := reconcile.NewReplica(members.Desired, "r/", reconcile.Options{})
	for key, value := range items {
		if _, err := told.Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
	told.Connect(now, held.State())
	for _, m := range told.Next(now) {
		held.Apply(m)
	}
	return held
}

// keptSnapshots has site a make snapshots on worker w: two that are ready, one of them of a schedule, and one that is not. It gives their
// records and what the worker holds of them.
func keptSnapshots(t *testing.T, now time.Time) (ready []spec.Snapshot, items map[string][]byte) {
	t.Helper()
	site, held := siteA(now, "a1", 1), reconcile.NewReplica(members.Desired, "r/", reconcile.Options{})
	runs := reconcile.NewSource(members.Observed, "o/", "w1", reconcile.Options{})
	exchange(site, now, runs, held)
	for _, id := range []spec.SnapshotID{"asked", "nightly", "unfinished"} {
		msgs := []any{BeginSnapshot{ID: id, Claim: spec.VolumeClaim{Service: key("acme", "shop"), Ordinal: 1}, Import: true, Org: "acme",
			Worker: "w", Actor: "ann", Scheduled: id == "nightly"}}
		if id != "unfinished" {
			msgs = append(msgs, EndSnapshot{ID: id, Info: &spec.Snapshot{SHA256: strings.Repeat("0", 64), At: now, Size: 1000,
				How: spec.SnapshotIdle, Volumes: []spec.SnapshotVolume{{Name: "data", Size: skerry.GiB}}}})
		}
		for _, m := range msgs {
			if fx := site.Step(now, m); fx.Err != nil {
				t.Fatal(fx.Err)
			}
		}
	}
	site.Step(now, ChildDown{Name: "w"})
	exchange(site, now, runs, held)
	items = map[string][]byte{}
	for key, value := range held.All() {
		if _, ok := spec.ParseSnapshotKey(key); ok {
			items[key] = value
		}
	}
	ready = site.Snapshots()[:2]
	if len(items) != 3 || len(site.Snapshots()) != 3 || ready[1].ID != "nightly" {
		t.Fatalf("%d items, %+v", len(items), site.Snapshots())
	}
	return ready, items
}

func told(fx wire.Effects, reason string) (texts []string) {
	for _, e := range fx.Events {
		if e.Reason == reason {
			texts = append(texts, e.Text)
		}
	}
	return texts
}

// TestSnapshotsOfALostStore: a site whose store is lost lists the snapshots again that it had its workers keep, as they were, counts them,
// and remembers and deletes them like others. One that may not be complete stays on its worker, and an event says so.
func TestSnapshotsOfALostStore(t *testing.T) {
	now := time.Unix(1_700_000_000, 0).UTC()
	ready, items := keptSnapshots(t, now)
	site, held := siteA(now, "a2", 1), holding(t, now, items)
	runs := reconcile.NewSource(members.Observed, "o/", "w1", reconcile.Options{})
	fx := exchange(site, now, runs, held)
	if list := site.Snapshots(); !reflect.DeepEqual(list, ready) {
		t.Fatalf("it lists %+v, want %+v", list, ready)
	}
	if used := site.Apps.Usage("acme", skerry.AppKey{}).Need.Storage; used != 2000 {
		t.Errorf("%s are counted", used)
	}
	if texts := told(fx, "SnapshotsFound"); len(texts) != 1 || !strings.Contains(texts[0], "2 snapshots") {
		t.Errorf("events about what was found: %q", texts)
	}
	if texts := told(fx, "SnapshotsLeft"); len(texts) != 1 || !strings.Contains(texts[0], "unfinished from before") ||
		!strings.Contains(texts[0], "complete") {
		t.Errorf("events about what was left: %q", texts)
	}
	if _, orphan, ok := held.Get(spec.SnapshotID("unfinished").Key()); !ok || !orphan {
		t.Error("the unfinished one was removed")
	}

	again := New(Options{Name: "a", Incarnation: "a2", Term: 2, Secret: [32]byte{1}})
	for _, w := range fx.Writes {
		if strings.HasPrefix(w.Key, volumes.SnapshotPrefix) {
			if err := again.Load(w.Key, w.Value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if list := again.Snapshots(); !reflect.DeepEqual(list, ready) {
		t.Errorf("after a restart it lists %+v", list)
	}
	if fx := site.Step(now, DeleteSnapshot{ID: "asked"}); fx.Err != nil {
		t.Fatal(fx.Err)
	}
	site.Step(now, ChildDown{Name: "w"})
	exchange(site, now, runs, held)
	if _, _, ok := held.Get(spec.SnapshotID("asked").Key()); ok || len(site.Snapshots()) != 1 {
		t.Errorf("it was deleted, and its worker keeps it: %v; %+v", ok, site.Snapshots())
	}
}

// TestMadeUpSnapshots: a site takes up nothing that a worker has made up, changed or got elsewhere, nor what an earlier version had it keep
// without a seal. That stays where it is, and volumes are taken up however many such snapshots there are.
func TestMadeUpSnapshots(t *testing.T) {
	now := time.Unix(1_700_000_000, 0).UTC()
	ready, items := keptSnapshots(t, now)
	asked, codec := spec.SnapshotID("asked").Key(), wire.New()
	seal := siteA(now, "a1", 1).lifecycle.sealKey()
	honest := items[asked]
	kept, sealed := codec.SealedSnapshot(seal, "w", honest)
	if !sealed || kept.Life != "a1" || kept.Serial == 0 {
		t.Fatalf("the snapshot of the site itself is sealed: %v, %+v", sealed, kept.Given)
	}
	changed, renumbered, others := kept, kept, kept
	changed.Record = bytes.Replace(kept.Record, []byte("acme"), []byte("evil"), 1)
	renumbered.Serial++
	others.Seal = codec.SealSnapshot(seal, "other", kept)
	for what, made := range map[string]struct {
		key    string
		value  []byte
		secret byte // of the site
	}{
		"changed":                   {asked, codec.Marshal(&changed), 1},
		"without a seal":            {asked, codec.Marshal(&spec.KeptSnapshot{Record: kept.Record}), 1},
		"with another number":       {asked, codec.Marshal(&renumbered), 1},
		"of an older version":       {asked, codec.Marshal(string(ready[0].ID)), 1},
		"of another site":           {asked, honest, 2},
		"of another worker":         {asked, codec.Marshal(&others), 1},
		"under the name of another": {spec.SnapshotID("others").Key(), honest, 1},
		"with nothing but its name": {asked, nil, 1},
	} {
		site, held := siteA(now, "a2", made.secret), holding(t, now, map[string][]byte{made.key: made.value})
		fx := exchange(site, now, reconcile.NewSource(members.Observed, "o/", "w1", reconcile.Options{}), held)
		if list := site.Snapshots(); len(list) != 0 {
			t.Errorf("%s: taken up as %+v", what, list)
		}
		if texts := told(fx, "SnapshotsLeft"); len(texts) != 1 {
			t.Errorf("%s: %d events say so: %q", what, len(texts), texts)
		}
		if _, _, ok := held.Get(made.key); !ok {
			t.Errorf("%s: removed", what)
		}
	}

	many := map[string][]byte{}
	for n := range 2 * namedMost {
		id := spec.SnapshotID(fmt.Sprint("old", n))
		many[id.Key()] = codec.Marshal(string(id))
	}
	site := siteA(now, "a2", 1)
	k := spec.KeptVolumes{Service: key("acme", "shop"), Org: "acme"}
	k.Seal = codec.SealVolumes(site.lifecycle.sealKey(), "w", k)
	many[k.Claim().Key()] = codec.Marshal(&k)
	fx := exchange(site, now, reconcile.NewSource(members.Observed, "o/", "w1", reconcile.Options{}), holding(t, now, many))
	if list := site.Volumes(); len(list) != 1 {
		t.Errorf("beside many snapshots %d volumes are listed", len(list))
	}
	if texts := told(fx, "SnapshotsLeft"); len(texts) != namedMost || !strings.Contains(texts[namedMost-1], "which are not named;") {
		t.Errorf("%d events: %q", len(texts), texts[max(0, len(texts)-1):])
	}
}
