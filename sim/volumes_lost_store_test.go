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
	"skerry.dev/skerry/wire"
)

// A site whose store is gone removes no volumes that its workers keep from before. It lists them, with since when it has known of them, and
// has the applications of their names find them again: where the data is, not where there is room.
func TestVolumesOfALostStore(t *testing.T) {
	for _, rebuild := range []bool{true, false} {
		w := newWorld(t, 9)
		w.Audit = true
		a := w.AddCluster("a")
		for _, name := range []string{"w1", "w2", "w3"} {
			w.AddWorker("a", name, facts(8000))
		}
		w.Run(time.Second)
		stateful := func(name string) apps.Apply {
			return app(name, 1, func(s *spec.ServiceSpec) {
				s.Volumes = []spec.Volume{{Name: "data", Local: &spec.LocalVolume{Size: skerry.GiB}}}
				s.Mounts = []spec.Mount{{Volume: "data", Path: "/data"}}
			})
		}
		org := func() {
			w.must(t, a, apps.PutOrg{Org: apps.Org{Name: "default"}})
			w.must(t, a, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
		}
		org()
		names := []string{"runs", "gone", "junk"}
		before := map[string][]string{}
		for _, name := range names {
			w.must(t, a, stateful(name))
		}
		w.Run(10 * time.Second)
		for _, name := range names {
			before[name] = w.volumes(name)
		}
		w.must(t, a, deleteApp("gone"))
		w.must(t, a, deleteApp("junk"))
		w.Run(10 * time.Second)
		lost := w.Now
		w.restore(a, map[string][]byte{"fabric": a.Store["fabric"]}, func() core {
			return cluster.New(cluster.Options{Name: "a", Incarnation: "a2", Term: 1 << 20, Seed: w.bytes(), Rebuild: rebuild,
				Admission: cluster.Admission{Trusted: []string{"default"}}})
		})
		w.Restart(a, nil)
		w.Run(5 * time.Minute)
		listed := func() map[string]view.VolumeView {
			out := map[string]view.VolumeView{}
			for _, v := range w.ClusterCore("a").Volumes() {
				out[v.App] = v
			}
			return out
		}
		for _, name := range names {
			if now := w.volumes(name); len(now) != 1 || !slices.Equal(now, before[name]) {
				t.Errorf("rebuild %v: the data of %s was at %v, and is at %v", rebuild, name, before[name], now)
			}
			v, is := listed()[name]
			if used := rebuild && name == "runs"; used && v.State != view.VolumeUsed {
				t.Errorf("%s runs, and its volume is %s", name, v.State)
			} else if at := "a/" + string(v.Worker) + " 0"; !used && (!is || v.State != view.VolumeOrphan || !v.Since.After(lost) ||
				at != before[name][0] || v.Org != "default") {
				t.Errorf("rebuild %v: %s is listed as %+v", rebuild, name, v)
			}
		}
		if !rebuild {
			org()
		}
		w.Restart(a, nil)
		w.Run(30 * time.Second)
		w.must(t, a, stateful("gone"))
		w.Run(time.Minute)
		i := w.ClusterCore("a").Instances()
		n := slices.IndexFunc(i, func(i wire.Instance) bool { return i.Service == web("gone") })
		if now := w.volumes("gone"); !slices.Equal(now, before["gone"]) || n < 0 || "a/"+string(i[n].Worker)+" 0" != before["gone"][0] {
			t.Errorf("applied again, it is at %v, and its data was at %v", now, before["gone"])
		}
		if v := listed()["gone"]; v.State != view.VolumeUsed || !v.Since.IsZero() {
			t.Errorf("applied again: %+v", v)
		}
		w.must(t, a, apps.DeleteVolume{Claim: spec.VolumeClaim{Service: web("junk")}})
		w.Run(time.Minute)
		if now := w.volumes("junk"); len(now) != 0 {
			t.Errorf("deleted, it is at %v", now)
		}
		if len(w.Faults) > 0 {
			t.Error("there are faults:", w.Faults)
		}
	}
}

// TestManyVolumesOfALostKey names some volumes that are left, and no more, however many a worker says that it keeps.
func TestManyVolumesOfALostKey(t *testing.T) {
	w := newWorld(t, 9)
	site := w.AddCluster("a")
	w.AddWorker("a", "w1", facts(80_000))
	w.Run(time.Second)
	w.must(t, site, apps.PutOrg{Org: apps.Org{Name: "default"}})
	w.must(t, site, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	w.must(t, site, app("db", 70, func(s *spec.ServiceSpec) {
		s.Resources.Memory = 16 * skerry.MiB
		s.Volumes = []spec.Volume{{Name: "data", Local: &spec.LocalVolume{Size: 4 * skerry.MiB}}}
		s.Mounts = []spec.Mount{{Volume: "data", Path: "/data"}}
	}))
	w.Run(time.Minute)
	w.must(t, site, deleteApp("db"))
	w.Run(time.Minute)
	w.restore(site, map[string][]byte{}, func() core {
		return cluster.New(cluster.Options{Name: "a", Incarnation: "a2", Term: 1 << 20, Seed: w.bytes()})
	})
	w.Restart(site, nil)
	w.Run(5 * time.Minute)
	if at := w.volumes("db"); len(at) != 70 {
		t.Errorf("the data is at %d places, want it left at 70", len(at))
	}
	told := w.texts("VolumesLeft")
	if len(told) != 64 || !strings.Contains(told[63], "which are not named") || strings.Contains(told[62], "which are not named") {
		t.Errorf("%d events tell of them, want 64, the last of which says that there are more: %q", len(told), told)
	}
}

// What a site had its workers keep with a key that is lost as well, as an earlier version without seals did, is left alone, and not taken up,
// until an operator has it deleted.
func TestVolumesOfALostKey(t *testing.T) {
	w := newWorld(t, 9)
	site := w.AddCluster("a")
	w.AddWorker("a", "w1", facts(8000))
	w.Run(time.Second)
	w.must(t, site, apps.PutOrg{Org: apps.Org{Name: "default"}})
	w.must(t, site, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	volume := func(s *spec.ServiceSpec) {
		s.Volumes = []spec.Volume{{Name: "data", Local: &spec.LocalVolume{Size: skerry.GiB}}}
		s.Mounts = []spec.Mount{{Volume: "data", Path: "/data"}}
	}
	w.must(t, site, app("db", 1, volume))
	w.Run(10 * time.Second)
	w.must(t, site, deleteApp("db"))
	w.Run(10 * time.Second)
	w.restore(site, map[string][]byte{}, func() core {
		return cluster.New(cluster.Options{Name: "a", Incarnation: "a2", Term: 1 << 20, Seed: w.bytes()})
	})
	w.Restart(site, nil)
	w.Run(5 * time.Minute)
	if at := w.volumes("db"); len(at) != 1 {
		t.Errorf("the data is at %v, want it left where it was", at)
	}
	if list := w.ClusterCore("a").Volumes(); len(list) != 0 {
		t.Errorf("taken up without a seal: %+v", list)
	}
	if told := w.texts("VolumesLeft"); len(told) != 1 {
		t.Errorf("%d events tell of it, want one: %q", len(told), told)
	}
	list, _ := w.ClusterCore("a").Orphans()
	if len(list) != 1 || list[0].Name() != "w1/vol/default/db/web/0" {
		t.Fatalf("orphans: %+v", list)
	}
	w.must(t, site, apps.DecideOrphan{Name: list[0].Name(), Actor: "ann"})
	w.Run(time.Minute)
	if at := w.volumes("db"); len(at) != 0 {
		t.Errorf("deleted by an operator, the data is at %v", at)
	}
	if list, _ := w.ClusterCore("a").Orphans(); len(list) != 0 {
		t.Errorf("deleted, orphans: %+v", list)
	}
}
