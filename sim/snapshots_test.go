package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// A snapshot follows its site: it is noted before its worker makes it, counts as storage, and is forgotten when nobody knows whether it was
// finished. While one is restored its volumes have no instance; then they are where it was unpacked. The worker that had them before, back
// after that, removes what it has, and no two instances had the volumes at once.
func TestRestoredElsewhere(t *testing.T) {
	w := newWorld(t, 12)
	w.Audit = true
	w.AddCluster("a")
	for _, name := range []string{"w1", "w2", "w3"} {
		w.AddWorker("a", name, facts(8000))
	}
	site := w.Clusters["a"]
	w.Run(time.Second)
	w.must(t, w.Root, kept("1", 1))
	w.Run(10 * time.Second)
	claim := spec.VolumeClaim{Service: web("db")}
	data := w.volumes("db")
	if len(data) != 1 || w.ready("db") != 1 {
		t.Fatalf("data at %v, %d ready", data, w.ready("db"))
	}
	at, _, _ := strings.Cut(data[0], " ")
	first := strings.TrimPrefix(at, "a/")
	snapshots := func() []spec.Snapshot {
		list := w.ClusterCore("a").Snapshots()
		return list
	}
	kept := func(worker string) (out []string) {
		for _, key := range w.ClusterCore("a").Children.Get(worker).Desired.Keys() {
			if _, ok := spec.ParseSnapshotKey(key); ok {
				out = append(out, key)
			}
		}
		return out
	}
	refused := func(msg any, code skerry.Code) {
		t.Helper()
		if err, _ := w.Do(site, msg).(error); err == nil || skerry.AsError(err).Code != code {
			t.Errorf("%T: %v, want %s", msg, err, code)
		}
	}
	end := func(id spec.SnapshotID) cluster.EndSnapshot {
		return cluster.EndSnapshot{ID: id, Info: &spec.Snapshot{Size: 100 * skerry.MiB, SHA256: strings.Repeat("0", 64), Volumes: []spec.SnapshotVolume{{Name: "data", Size: skerry.GiB}}}}
	}

	other := spec.VolumeClaim{Service: web("db"), Ordinal: 7}
	refused(cluster.BeginSnapshot{ID: "s0", Claim: other}, skerry.CodeNotFound)
	plan, _ := w.Do(site, cluster.BeginSnapshot{ID: "s1", Claim: claim, Actor: "t"}).(cluster.SnapshotPlan)
	if list := snapshots(); plan.Worker != first || len(list) != 1 || list[0].State != spec.SnapshotTaking || list[0].Size != skerry.GiB || len(kept(first)) != 1 {
		t.Fatalf("begun at %+v: %+v", plan, list)
	}
	refused(cluster.BeginSnapshot{ID: "s1", Claim: claim}, skerry.CodeConflict)
	w.Restart(site, nil)
	w.Run(time.Minute)
	if list := snapshots(); len(list) != 0 || len(kept(first)) != 0 {
		t.Fatalf("the site was restarted meanwhile: %+v, %v", list, kept(first))
	}
	w.must(t, site, end("s1")) // too late
	if list := snapshots(); len(list) != 0 {
		t.Fatalf("what was forgotten is listed: %+v", list)
	}
	w.must(t, site, cluster.BeginSnapshot{ID: "s2", Claim: claim})
	w.must(t, site, end("s2"))
	// One that came as a file, for a worker that is not the one with the volumes.
	others := slices.DeleteFunc([]string{"w1", "w2", "w3"}, func(n string) bool { return n == first })
	w.must(t, site, cluster.BeginSnapshot{ID: "s3", Claim: claim, Import: true, Worker: others[0], Org: "default"})
	w.must(t, site, end("s3"))
	w.Restart(site, nil)
	w.Run(time.Minute)
	if list := snapshots(); len(list) != 2 || list[0].State != spec.SnapshotReady || list[0].Org != "default" || len(kept(first)) != 1 || len(kept(others[0])) != 1 {
		t.Fatalf("snapshots after a restart: %+v", list)
	}

	w.PowerOff(w.Workers[at])
	w.Run(10 * time.Minute)
	refused(cluster.BeginRestore{ID: "s2", To: claim, Worker: others[1]}, skerry.CodeUnavailable) // where it is
	refused(cluster.BeginRestore{ID: "s3", To: claim}, skerry.CodeUnavailable)                    // to where
	refused(cluster.BeginRestore{ID: "s9", To: claim}, skerry.CodeNotFound)
	restore, ok := w.Do(site, cluster.BeginRestore{ID: "s3", To: claim, Worker: others[1]}).(cluster.RestorePlan)
	if !ok || restore.Worker != others[1] || string(restore.Snapshot.Worker) != others[0] {
		t.Fatalf("it is restored by %+v", restore)
	}
	refused(cluster.BeginRestore{ID: "s3", To: claim, Worker: others[0]}, skerry.CodeConflict)
	refused(cluster.BeginSnapshot{ID: "s4", Claim: claim}, skerry.CodeConflict)
	w.Run(10 * time.Minute)
	if now := w.volumes("db"); w.ready("db") != 0 || !slices.Equal(now, data) {
		t.Fatalf("while it is restored, data is at %v and %d are ready", now, w.ready("db"))
	}
	w.must(t, site, cluster.EndRestore{RestorePlan: restore, Actor: "t"})
	w.Run(time.Minute)
	want := []string{"a/" + others[1] + " 0"}
	if i := w.RootCore().Apps.Instances(web("db")); w.ready("db") != 1 || len(i) != 1 {
		t.Fatalf("%d of %d are ready", w.ready("db"), len(i))
	}
	w.Restart(w.Workers[at], nil)
	w.Run(time.Minute)
	if now := w.volumes("db"); !slices.Equal(now, want) || w.ready("db") != 1 {
		t.Fatalf("the machine is back: data at %v, want %v; %d ready", now, want, w.ready("db"))
	}

	// In its place, and without success: it runs on with what it had.
	restore, ok = w.Do(site, cluster.BeginRestore{ID: "s3", To: claim}).(cluster.RestorePlan)
	if !ok || restore.Worker != others[1] {
		t.Fatalf("it is restored by %+v", restore)
	}
	w.Run(time.Minute)
	if w.ready("db") != 0 {
		t.Error("it runs while it is restored")
	}
	w.must(t, site, cluster.EndRestore{RestorePlan: restore, Err: "damaged"})
	w.Run(time.Minute)
	if now := w.volumes("db"); !slices.Equal(now, want) || w.ready("db") != 1 {
		t.Fatalf("not restored: data at %v, want %v; %d ready", now, want, w.ready("db"))
	}

	// A clone belongs to nobody until its application comes, and can be deleted here.
	clone := spec.VolumeClaim{Service: web("copy")}
	refused(cluster.BeginRestore{ID: "s3", To: claim, Clone: true}, skerry.CodeConflict)
	restore, ok = w.Do(site, cluster.BeginRestore{ID: "s3", To: clone, Clone: true}).(cluster.RestorePlan)
	if !ok || restore.Worker != others[0] {
		t.Fatalf("it is cloned by %+v", restore)
	}
	w.must(t, site, cluster.EndRestore{RestorePlan: restore})
	w.Run(time.Minute)
	w.Restart(site, nil)
	w.Run(time.Minute)
	views := w.ClusterCore("a").Volumes()
	i := slices.IndexFunc(views, func(v view.VolumeView) bool { return v.Claim() == clone })
	if i < 0 || string(views[i].Worker) != others[0] || views[i].State != view.VolumeKept || views[i].Size != skerry.GiB || views[i].Org != "default" {
		t.Fatalf("volumes: %+v", views)
	}
	w.must(t, site, apps.DeleteVolume{Claim: clone})
	w.Run(time.Minute)
	if views := w.ClusterCore("a").Volumes(); len(views) != 1 {
		t.Errorf("the clone is deleted: %+v", views)
	}

	w.must(t, site, cluster.DeleteSnapshot{ID: "s3", Actor: "t"})
	refused(cluster.DeleteSnapshot{ID: "s3"}, skerry.CodeNotFound)
	w.PowerOff(w.Workers[at])
	w.Run(10 * time.Minute)
	w.must(t, site, cluster.RemoveWorker{Name: first})
	w.Run(time.Minute)
	if list := snapshots(); len(list) != 0 || len(kept(others[0])) != 0 {
		t.Errorf("snapshots are left: %+v", list)
	}
	w.sound(t)
}
