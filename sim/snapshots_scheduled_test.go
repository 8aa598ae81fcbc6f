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
	"skerry.dev/skerry/wire"
)

// A site takes snapshots on the schedule of a service of the root, also while the root is away. What its worker, the quota, a command
// of the service or a restart keeps it from is shown, said once, and made up for, and costs none of those that are there. A changed
// schedule restarts nothing. The schedule ends with its application; the snapshots stay, as does what somebody took.
func TestScheduledSnapshots(t *testing.T) {
	w := newWorld(t, 14)
	w.Audit = true
	w.AddCluster("a")
	for _, name := range []string{"w1", "w2"} {
		w.AddWorker("a", name, facts(8000))
	}
	site, why, answers := w.Clusters["a"], "", true
	w.Machine.Snapshot = func(cluster.TakeSnapshot) (string, bool) { return why, answers }
	w.Run(time.Second)
	scheduled := func(schedule string, keep int) apps.Apply {
		a := kept("1", 1)
		a.App.Spec.Services[0].Snapshots = &spec.Snapshots{Schedule: schedule, Keep: keep}
		return a
	}
	w.must(t, w.Root, scheduled("0 0 1 1 *", 2))
	w.Run(time.Minute)
	claim := spec.VolumeClaim{Service: web("db")}
	first := w.RootCore().Apps.Instances(web("db"))[0]
	w.must(t, w.Root, scheduled("0 * * * *", 2))
	shown := func() *wire.VolumeSchedule {
		for _, v := range w.ClusterCore("a").Volumes() {
			if v.Claim() == claim {
				return v.Scheduled
			}
		}
		return nil
	}
	taken := func() (ids []string) {
		for _, s := range w.ClusterCore("a").Snapshots() {
			if s.Scheduled && s.State == spec.SnapshotReady {
				ids = append(ids, string(s.ID))
			}
		}
		return ids
	}
	said := func(reason string) (n int) {
		for _, e := range w.Events {
			if e.Reason == reason {
				n++
			}
		}
		return n
	}
	atRoot := func() *wire.VolumeSchedule {
		list := w.RootCore().Views().Volumes()
		if len(list) != 1 {
			t.Fatalf("the root shows volumes %+v", list)
		}
		return list[0].Scheduled
	}
	// is waits for what is shown, and looks at what was kept.
	is := func(what string, failing string, keptOf []string) {
		t.Helper()
		s := shown()
		if s == nil || failing == "" && (s.Reason != "" || w.Now.Sub(s.Last) > time.Hour) ||
			!strings.Contains(s.Reason, failing) || s.Kept != len(taken()) {
			t.Fatalf("%s: %+v", what, s)
		}
		if w.Root.Up {
			if far := atRoot(); far == nil || far.OutOfTouch || far.Kept != s.Kept || !far.Last.Equal(s.Last) || !far.Next.Equal(s.Next) ||
				(far.Reason == "") != (s.Reason == "") || strings.Contains(far.Reason, "worker w") {
				t.Fatalf("%s: the root shows %+v, the site %+v", what, far, s)
			}
		}
		for _, id := range keptOf {
			if !slices.Contains(taken(), id) {
				t.Fatalf("%s: snapshot %s is gone; %v are there", what, id, taken())
			}
		}
	}
	w.Run(2 * time.Hour)
	is("two hours", "", nil)
	w.must(t, site, cluster.BeginSnapshot{ID: "manual", Claim: claim, Actor: "t"})
	info := &spec.Snapshot{Size: 100 * skerry.MiB, SHA256: strings.Repeat("0", 64), At: w.Now}
	w.must(t, site, cluster.EndSnapshot{ID: "manual", Info: info})
	w.PowerOff(w.Root)
	before := taken()
	w.Run(3 * time.Hour)
	is("without a root", "", nil)
	old := func(id string) bool { return slices.Contains(before, id) }
	if now := taken(); len(before) != 2 || len(now) != 2 || slices.ContainsFunc(now, old) {
		t.Fatalf("%v, three hours later %v", before, now)
	}
	w.Restart(w.Root, nil)
	if far := atRoot(); far == nil || !far.OutOfTouch {
		t.Errorf("before the site is back the root shows %+v", far)
	}
	w.Run(time.Minute)
	is("the root is back", "", nil)

	before, w.Events = taken(), nil
	at := w.Workers[strings.Fields(w.volumes("db")[0])[0]]
	w.PowerOff(at)
	w.Run(150 * time.Minute)
	is("without the worker", "is not connected", before)
	if n := said("SnapshotFailed"); n < 2 || n > 3 {
		t.Errorf("in two and a half hours without the worker it is said %d times", n)
	}
	w.Restart(at, nil)
	w.Run(time.Hour)
	is("the worker is back", "", nil)

	before, why = taken(), "snapshots.before: flush ended with status 1"
	w.Run(5 * time.Hour)
	is("the command fails", why, before)
	why = ""
	w.Run(time.Hour)
	is("the command works again", "", nil)

	before = taken()
	w.must(t, site, apps.PutOrg{Org: apps.Org{Name: "default", Quota: apps.Quota{Storage: 300 * skerry.MiB}}}) // the manual one, and two
	w.Run(2 * time.Hour)
	is("the quota is used up", "storage", before)
	w.must(t, site, apps.PutOrg{Org: apps.Org{Name: "default"}})
	w.Run(time.Hour)
	is("there is room", "", nil)

	before, answers = taken(), false
	w.Run(time.Hour)
	answers = true
	w.Restart(site, nil)
	w.Run(10 * time.Second)
	is("restarted meanwhile", "restarted meanwhile", before)
	w.Run(2 * time.Minute)
	is("the site is back", "", nil)
	if i := w.RootCore().Apps.Instances(web("db")); len(i) != 1 || i[0].ID != first.ID || w.ready("db") != 1 {
		t.Errorf("another schedule made %d instances, %s in place of %s", len(i), i[0].ID, first.ID)
	}

	before = taken()
	w.must(t, w.Root, deleteApp("db"))
	w.Run(5 * time.Hour)
	list := w.ClusterCore("a").Snapshots()
	if s := shown(); s != nil || atRoot() != nil || !slices.Equal(taken(), before) || len(list) != len(before)+1 || len(w.volumes("db")) != 1 {
		t.Errorf("deleted: %+v, %v, %+v, data at %v", s, taken(), list, w.volumes("db"))
	}
	w.sound(t)
}
