package sim

import (
	"maps"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// TestOrphansOfRestoredRoot: what a root restored from an older backup does not know is listed; one instance is ended, the other adopted, which brings
// its application back without a restart, and is governed from then on.
func TestOrphansOfRestoredRoot(t *testing.T) {
	w := small(t)
	as := func(life skerry.Incarnation, epoch uint64) func() core {
		return func() core {
			return root.New(root.Options{Incarnation: life, Epoch: epoch, Seed: w.bytes(), SealKey: []byte("kept beside the store")})
		}
	}
	w.restore(w.Root, w.Root.Store, as("r1", 1))
	w.Restart(w.Root, nil)
	w.Run(time.Second)
	w.must(t, w.Root, app("old", 2))
	w.Run(time.Second)
	backup := maps.Clone(w.Root.Store)
	w.must(t, w.Root, app("new", 2))
	w.must(t, w.Root, apps.Scale{Service: web("old"), Replicas: 3})
	w.Run(5 * time.Second)
	w.restore(w.Root, backup, as("r2", 2))
	w.Restart(w.Root, nil)
	w.Run(time.Minute)
	list := func() []view.Orphan {
		t.Helper()
		out := w.RootCore().Views().Orphans()
		for _, o := range out {
			if o.Problem != "" || o.State != skerry.Running || !o.Ready || o.Cluster == "" || o.Worker != "" {
				t.Errorf("%+v", o)
			}
		}
		return out
	}
	var of []skerry.InstanceID
	more := skerry.InstanceID("")
	for _, o := range list() {
		if o.Service == web("old") {
			more = o.Instance
		} else {
			of = append(of, o.Instance)
		}
	}
	if len(of) != 2 || more == "" {
		t.Fatalf("orphans %v and %q", of, more)
	}
	started := 0
	w.Machine.Started = func(*spec.Assignment, string, int) { started++ }
	w.must(t, w.Root, apps.DecideOrphan{Name: string(of[0])})
	w.must(t, w.Root, apps.DecideOrphan{Name: string(of[1]), Adopt: true})
	w.must(t, w.Root, apps.DecideOrphan{Name: string(more), Adopt: true})
	w.Run(time.Minute)
	if left := list(); len(left) != 0 || started != 0 {
		t.Errorf("%v are left, and %d containers were started", left, started)
	}
	w.check(t, "new", 1, 4)
	w.check(t, "old", 3, 4)
	for _, id := range []skerry.InstanceID{of[0], of[1], "nobody-r1"} {
		if err, _ := w.Do(w.Root, apps.DecideOrphan{Name: string(id), Adopt: true}).(error); err == nil {
			t.Errorf("%s is adopted again", id)
		}
	}
	w.must(t, w.Root, apps.Delete{Key: web("new").App})
	w.Run(time.Minute)
	w.check(t, "old", 3, 3)
	if len(w.Faults) > 0 {
		t.Error(w.Faults)
	}
}

// TestOrphansOfRestoredSite is the same for the applications of a site's own.
func TestOrphansOfRestoredSite(t *testing.T) {
	w := small(t)
	w.Cut(w.Clusters["b"])
	a := w.Clusters["a"]
	w.must(t, a, apps.PutOrg{Org: apps.Org{Name: "default"}})
	w.must(t, a, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	w.must(t, a, app("old", 1))
	w.Run(5 * time.Second)
	backup := maps.Clone(a.Store)
	w.must(t, a, app("new", 2))
	w.Run(5 * time.Second)
	w.restore(a, backup, func() core {
		return cluster.New(cluster.Options{Name: "a", Incarnation: "a2", Term: 2, Seed: w.bytes(), Admission: cluster.Admission{Trusted: []string{"default"}}})
	})
	w.Restart(a, nil)
	w.Run(time.Minute)
	list, err := w.ClusterCore("a").Orphans()
	if err != nil || len(list) != 2 || list[0].Service != web("new") || list[0].Worker == "" || list[0].Problem != "" {
		t.Fatalf("%+v, %v", list, err)
	}
	started := 0
	w.Machine.Started = func(*spec.Assignment, string, int) { started++ }
	w.must(t, a, apps.DecideOrphan{Name: string(list[0].Instance)})
	w.must(t, a, apps.DecideOrphan{Name: string(list[1].Instance), Adopt: true, Actor: "ann"})
	w.Run(time.Minute)
	if left, _ := w.ClusterCore("a").Orphans(); len(left) != 0 || started != 0 {
		t.Errorf("%v are left, and %d containers were started", left, started)
	}
	after := w.ClusterCore("a").Instances()
	if len(after) != 2 {
		t.Errorf("%+v", after)
	}
	for _, i := range after {
		if i.ID == list[0].Instance || i.Restarts != 0 || i.State != skerry.Running {
			t.Errorf("%+v", i)
		}
	}
	w.must(t, a, apps.Scale{Service: web("new"), Replicas: 0})
	w.Run(time.Minute)
	if n := len(w.ClusterCore("a").Instances()); n != 1 {
		t.Errorf("%d instances", n)
	}
	if len(w.Faults) > 0 {
		t.Error(w.Faults)
	}
}
