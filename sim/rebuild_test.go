package sim

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
)

// TestRebuiltSite: a cluster whose store is gone begins with the keys that any backup has. What the root placed there and what the site had of
// its own runs on under the same tokens, without a restart; the site's own application is there again, and can be governed.
func TestRebuiltSite(t *testing.T) {
	w := small(t)
	w.Cut(w.Clusters["b"])
	a := w.Clusters["a"]
	w.must(t, a, apps.PutOrg{Org: apps.Org{Name: "default"}})
	w.must(t, a, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	w.must(t, w.Root, app("global", 2))
	w.must(t, a, app("own", 2))
	w.Run(5 * time.Second)
	w.check(t, "global", 2, 4)
	before := map[skerry.InstanceID]skerry.Fence{}
	for _, i := range w.ClusterCore("a").Instances() {
		before[i.ID] = i.Fence
	}
	if len(before) != 4 {
		t.Fatalf("%d instances", len(before))
	}
	started := 0
	w.Machine.Started = func(*spec.Assignment, string, int) { started++ }
	w.restore(a, map[string][]byte{"fabric": a.Store["fabric"]}, func() core {
		return cluster.New(cluster.Options{Name: "a", Incarnation: "a2", Term: 1 << 20, Seed: w.bytes(), Rebuild: true, Admission: cluster.Admission{Trusted: []string{"default"}}})
	})
	w.Restart(a, nil)
	w.Run(10 * time.Second)
	if r := w.ClusterCore("a").Rebuilt(); !r.Waiting || len(r.Local) != 0 {
		t.Errorf("too soon: %+v", r)
	}
	w.Run(time.Minute)
	r := w.ClusterCore("a").Rebuilt()
	if r.Waiting || len(r.Local) != 1 || r.Local[0].Instances != 2 || r.OfRoot != 2 || len(r.Left) != 0 {
		t.Errorf("%+v", r)
	}
	if started != 0 {
		t.Errorf("%d containers were started", started)
	}
	after := w.ClusterCore("a").Instances()
	for _, i := range after {
		if f, ok := before[i.ID]; !ok || i.Fence.Compare(f) <= 0 || i.Restarts != 0 || i.State != skerry.Running {
			t.Errorf("%s: token %v, was %v; %d restarts, %s", i.ID, i.Fence, f, i.Restarts, i.State)
		}
	}
	if len(after) != 4 {
		t.Errorf("%d instances", len(after))
	}
	w.check(t, "global", 2, 4)
	w.must(t, a, apps.Scale{Service: web("own"), Replicas: 3})
	w.must(t, w.Root, apps.Scale{Service: web("global"), Replicas: 1})
	w.Run(time.Minute)
	w.check(t, "global", 1, 4)
	w.must(t, a, apps.Delete{Key: web("own").App})
	w.Run(time.Minute)
	w.check(t, "global", 1, 1)
	if len(w.Faults) > 0 {
		t.Error(w.Faults)
	}
}
