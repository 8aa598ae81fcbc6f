package sim

import (
	"maps"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
)

// TestOrphanKeepsItsVolumes: a root that was restored from before an update of a database wants the instance of then, on the worker where that of
// now runs on as an orphan. It waits, and says for whom, until somebody ends the orphan: never two have the volumes. Nothing but that is said of the orphan.
func TestOrphanKeepsItsVolumes(t *testing.T) {
	w := small(t)
	w.must(t, w.Root, kept("1", 1))
	w.Run(time.Minute)
	backup := maps.Clone(w.Root.Store)
	w.must(t, w.Root, kept("2", 1))
	w.Run(time.Minute)
	w.restore(w.Root, backup, func() core {
		return root.New(root.Options{Incarnation: "r2", Epoch: 2, Seed: w.bytes()})
	})
	w.Restart(w.Root, nil)
	for _, power := range []bool{false, true} {
		if power {
			for _, n := range ordered(w.Workers) {
				w.PowerOff(n)
				w.Restart(n, nil)
			}
		}
		w.Run(time.Minute)
		list := w.RootCore().Views().Orphans()
		if len(list) != 1 || !list[0].Ready {
			t.Fatalf("power cut %v: orphans: %+v", power, list)
		}
		i := w.RootCore().Apps.Instances(web("db"))[0]
		if i.IsReady() || !strings.Contains(i.Reason, "local volumes") || !strings.Contains(i.Reason, string(list[0].Instance)) {
			t.Errorf("power cut %v: the instance that the root wants is %s, ready %v: %q", power, i.State, i.IsReady(), i.Reason)
		}
	}
	list := w.RootCore().Views().Orphans()
	w.Events = nil
	w.must(t, w.Root, apps.DecideOrphan{Name: string(list[0].Instance)})
	w.Run(time.Minute)
	if n := w.ready("db"); n != 1 {
		t.Errorf("%d are ready after the orphan was ended", n)
	}
	for _, e := range w.Events {
		if e.Reason == "UnknownInstance" {
			t.Errorf("of an orphan that was ended it is said: %s", e.Text)
		}
	}
	w.sound(t)
}

// TestAdoptedOrphanKeepsItsVolumes: adopted, it is the replica whose volumes it has. The instance that waited for it goes, and no replica is added.
func TestAdoptedOrphanKeepsItsVolumes(t *testing.T) {
	w := small(t)
	as := func(life skerry.Incarnation, epoch uint64) func() core {
		return func() core {
			return root.New(root.Options{Incarnation: life, Epoch: epoch, Seed: w.bytes(), SealKey: []byte("kept beside the store")})
		}
	}
	w.restore(w.Root, w.Root.Store, as("r1", 1))
	w.Restart(w.Root, nil)
	w.Run(time.Second)
	w.must(t, w.Root, kept("1", 1))
	w.Run(time.Minute)
	backup := maps.Clone(w.Root.Store)
	w.must(t, w.Root, kept("2", 1))
	w.Run(time.Minute)
	w.restore(w.Root, backup, as("r2", 2))
	w.Restart(w.Root, nil)
	w.Run(time.Minute)
	list := w.RootCore().Views().Orphans()
	if len(list) != 1 {
		t.Fatalf("orphans: %+v", list)
	}
	started := 0
	w.Machine.Started = func(*spec.Assignment, string, int) { started++ }
	w.must(t, w.Root, apps.DecideOrphan{Name: string(list[0].Instance), Adopt: true})
	w.Run(time.Minute)
	left := w.RootCore().Apps.Instances(web("db"))
	if len(left) != 1 || left[0].ID != list[0].Instance || !left[0].IsReady() || started != 0 {
		t.Errorf("%d instances, the first is %+v; %d containers were started", len(left), left[0].Instance, started)
	}
	if n := *w.RootCore().Apps.App(web("db").App).Manifest.Spec.Service("web").Replicas; n != 1 {
		t.Errorf("it has %d replicas", n)
	}
	w.sound(t)
}

// TestOrphanOfRestoredSiteKeepsItsVolumes is the same for an application of a site's own, whose store is restored.
func TestOrphanOfRestoredSiteKeepsItsVolumes(t *testing.T) {
	w := small(t)
	w.Cut(w.Clusters["b"])
	a := w.Clusters["a"]
	w.must(t, a, apps.PutOrg{Org: apps.Org{Name: "default"}})
	w.must(t, a, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	w.must(t, a, kept("1", 1))
	w.Run(time.Minute)
	backup := maps.Clone(a.Store)
	w.must(t, a, kept("2", 1))
	w.Run(time.Minute)
	w.restore(a, backup, func() core {
		return cluster.New(cluster.Options{Name: "a", Incarnation: "a2", Term: 2, Seed: w.bytes(), Admission: cluster.Admission{Trusted: []string{"default"}}})
	})
	w.Restart(a, nil)
	w.Run(time.Minute)
	list, err := w.ClusterCore("a").Orphans()
	if err != nil || len(list) != 1 {
		t.Fatalf("orphans: %+v, %v", list, err)
	}
	if i := w.ClusterCore("a").Instances()[0]; !strings.Contains(i.Reason, string(list[0].Instance)) {
		t.Errorf("the instance that the site wants is %s: %q", i.State, i.Reason)
	}
	w.must(t, a, apps.DecideOrphan{Name: string(list[0].Instance), Adopt: true})
	w.Run(time.Minute)
	if now := w.ClusterCore("a").Instances(); len(now) != 1 || now[0].ID != list[0].Instance || now[0].State != skerry.Running || now[0].Restarts != 0 {
		t.Errorf("after the orphan was adopted: %+v", now)
	}
	w.sound(t)
}
