package sim

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
)

// Each snapshot of a schedule is sent away, once, and so many stay there. A place that refuses it, an answer that never
// comes, a worker that is away and old objects that cannot be deleted are shown at both tiers, and made up for as far as
// there are snapshots left.
func TestExportedSnapshots(t *testing.T) {
	w := newWorld(t, 15)
	w.Audit = true
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(8000))
	site, refused, left, answers := w.Clusters["a"], "", "", true
	there, sent := map[string]bool{}, map[string]int{} // objects, and how often each was sent
	w.Machine.Export = func(q cluster.ExportSnapshot, end *cluster.EndExport) bool {
		if end.Err = refused; refused != "" || !answers {
			return answers
		}
		there[end.Object.Key], sent[end.Object.Key] = true, sent[end.Object.Key]+1
		if end.Left = left; left != "" {
			end.Gone = nil
		}
		for _, o := range end.Gone {
			delete(there, o.Key)
		}
		return true
	}
	w.Run(time.Second)
	a := kept("1", 1)
	a.App.Spec.Services[0].Snapshots = &spec.Snapshots{Schedule: "0 * * * *", Keep: 2, Export: &spec.SnapshotExport{To: "offsite", Keep: 3}}
	w.must(t, w.Root, a)
	said := func(reason string) (n int) {
		for _, e := range w.Events {
			if e.Reason == reason {
				n++
			}
		}
		return n
	}
	// is holds what both tiers show against what is there.
	is := func(what, failing string) {
		t.Helper()
		list, far := w.ClusterCore("a").Volumes(), w.RootCore().Views().Volumes()
		if len(list) != 1 || len(far) != 1 || list[0].Scheduled == nil || far[0].Scheduled == nil || far[0].Scheduled.Export == nil {
			t.Fatalf("%s: %+v, at the root %+v", what, list, far)
		}
		e, f := list[0].Scheduled.Export, far[0].Scheduled.Export
		if e == nil || e.To != "offsite" || e.Keep != 3 || e.Kept != len(there) || (failing == "") != (e.Reason == "") ||
			!strings.Contains(e.Reason, failing) {
			t.Fatalf("%s: %+v, and there are %v", what, e, slices.Sorted(maps.Keys(there)))
		}
		if f.Kept != e.Kept || !f.Last.Equal(e.Last) || (f.Reason == "") != (e.Reason == "") || strings.Contains(f.Reason, "worker w") {
			t.Fatalf("%s: the root shows %+v, the site %+v", what, f, e)
		}
		for id, n := range sent {
			if n != 1 {
				t.Fatalf("%s: %s was sent %d times", what, id, n)
			}
		}
		for _, s := range w.ClusterCore("a").Snapshots() {
			if (s.Exported != "") != (sent[string(s.ID)] > 0) {
				t.Fatalf("%s: %s is exported to %q, and was sent %d times", what, s.ID, s.Exported, sent[string(s.ID)])
			}
		}
	}
	w.Run(90 * time.Minute)
	is("the first", "")
	w.Run(5 * time.Hour)
	if is("six", ""); len(there) != 3 || len(sent) < 6 {
		t.Fatalf("%d are there, and %d were sent", len(there), len(sent))
	}

	before := maps.Clone(there)
	refused, w.Events = "access to s3://backups is denied", nil
	w.Run(5 * time.Hour)
	if is("refused", refused); !maps.Equal(there, before) || said("SnapshotExportFailed") != 1 || said("SnapshotTaken") < 4 {
		t.Errorf("%d failures and %d snapshots are told, and %v are there, before %v",
			said("SnapshotExportFailed"), said("SnapshotTaken"), there, before)
	}
	refused = ""
	w.Run(time.Hour)
	is("taken again", "")
	for _, s := range w.ClusterCore("a").Snapshots() {
		if !there[string(s.ID)] {
			t.Errorf("%s was not made up for", s.ID)
		}
	}

	answers = false
	w.Run(time.Hour)
	answers = true
	w.Restart(site, nil)
	w.Run(2 * time.Minute)
	is("restarted meanwhile", "")

	at := w.Workers["a/w1"]
	refused = "broken off"
	w.Run(time.Hour)
	w.PowerOff(at)
	w.Run(2 * time.Hour)
	is("without the worker", "is not connected")
	refused = ""
	w.Restart(at, nil)
	w.Run(90 * time.Minute)
	is("the worker is back", "")

	left = "access to s3://backups is denied"
	w.Run(2 * time.Hour)
	if is("old ones stay", left); len(there) <= 3 {
		t.Errorf("%v are there", there)
	}
	left = ""
	w.Run(time.Hour)
	if is("old ones go", ""); len(there) != 3 {
		t.Errorf("%v are there", there)
	}

	before = maps.Clone(there)
	w.must(t, w.Root, deleteApp("db"))
	w.Run(5 * time.Hour)
	if !maps.Equal(there, before) {
		t.Errorf("deleted: %v are there, before %v", there, before)
	}
	w.sound(t)
}
