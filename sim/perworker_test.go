package sim

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// TestPerWorkerIsReadyWhenAllAre looks at a service of one instance per worker from before its site has heard of it.
func TestPerWorkerIsReadyWhenAllAre(t *testing.T) {
	w := New(5)
	w.Machine.Start = 2 * time.Second
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(2000))
	w.AddWorker("a", "w2", facts(2000))
	w.Run(5 * time.Second)
	w.must(t, w.Root, app("probe", 1, func(s *spec.ServiceSpec) { s.Mode, s.Replicas = spec.ModePerWorker, nil }))
	for range 100 {
		v := w.RootCore().Apps.View(w.RootCore().Apps.App(web("probe").App), "root", true)
		if v.Status == "Ready" {
			if s := v.Services[0]; s.Ready != 2 || s.Want != 2 {
				t.Fatalf("the application is Ready with %d of %d, of 2", s.Ready, s.Want)
			}
			return
		}
		w.Run(100 * time.Millisecond)
	}
	t.Error("it did not become ready")
}

// TestPerWorkerIsUpdatedInTurn: a site exchanges a service of one instance per worker on as many workers at a time as may be missing, goes
// on when the new version has been ready for its time, passes over workers that are away, and stops where the new one restarts or has no
// room. What waits for its turn serves, through a restart of the site, until another version comes.
func TestPerWorkerIsUpdatedInTurn(t *testing.T) {
	for _, owner := range []string{"root", "site"} {
		w := New(5)
		w.Machine.Start = 2 * time.Second
		w.Audit = true
		w.AddCluster("a")
		for _, name := range []string{"w1", "w2", "w3", "w4", "w5"} {
			w.AddWorker("a", name, facts(2000))
		}
		w.Run(5 * time.Second)
		at := w.Root
		if owner == "site" {
			at = w.Clusters["a"]
			w.must(t, at, apps.PutOrg{Org: apps.Org{Name: "default"}})
			w.must(t, at, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
		}
		w.Machine.Exit = func(a *spec.Assignment, name string, _ int) (time.Duration, wire.Exit) {
			if a.Spec.Image == "bad:1" {
				return 3 * time.Second, wire.Exit{Code: 7}
			}
			return -1, wire.Exit{}
		}
		version := func(image string, edit ...func(*spec.ServiceSpec)) apps.Apply {
			return app("probe", 1, append(edit, func(s *spec.ServiceSpec) { s.Mode, s.Replicas, s.Image = spec.ModePerWorker, nil, image })...)
		}
		// ready counts the copies that are ready, by image.
		images := map[string]string{} // by revision
		ready := func() map[string]int {
			c := controller(at)
			m := &c.App(web("probe").App).Manifest.Spec.Services[0]
			images[m.Revision()] = m.Image
			out := map[string]int{}
			for _, i := range w.ClusterCore("a").Instances() {
				if skerry.HasCondition(i.Conditions, skerry.Ready) {
					out[images[i.Revision]]++
				}
			}
			return out
		}
		status := func() view.AppView {
			c := controller(at)
			return c.View(c.App(web("probe").App), owner, false)
		}
		workers := 5 // in touch
		// watch lets time pass, and holds the update to what it promises.
		watch := func(what string, d time.Duration, least int) {
			t.Helper()
			for end := w.Now.Add(d); w.Now.Before(end); w.Run(200 * time.Millisecond) {
				all := 0
				for _, n := range ready() {
					all += n
				}
				if all < least {
					t.Fatalf("%s, %s: %v are ready, want %d at least", owner, what, ready(), least)
				}
				if s := status().Services[0]; status().Status == "Ready" && (len(ready()) > 1 || s.Want != workers) {
					t.Fatalf("%s, %s: Ready with %d of %d, and %v", owner, what, s.Ready, s.Want, ready())
				}
			}
		}
		end := func(what, image string, n int) {
			t.Helper()
			if got := ready(); got[image] != n || n == 5 && len(got) != 1 {
				t.Fatalf("%s, %s: %v are ready, want %d of %s", owner, what, got, n, image)
			}
		}
		w.must(t, at, version("x:1"))
		w.Run(30 * time.Second)
		end("first", "x:1", 5)
		w.must(t, at, version("x:2"))
		watch("updated", 20*time.Second, 4)
		if n := ready()["x:2"]; n == 0 || n > 2 {
			t.Errorf("%s: %d are exchanged after 20 seconds", owner, n)
		}
		w.Restart(w.Clusters["a"], nil)
		w.Run(5 * time.Second)
		watch("after a restart of the site", 2*time.Minute, 4)
		end("updated", "x:2", 5)
		if s := status(); s.Status != "Ready" {
			t.Errorf("%s: updated and %s: %+v", owner, s.Status, s.Services)
		}
		w.must(t, at, version("bad:1"))
		w.Run(2 * time.Second)
		watch("a bad one", 5*time.Minute, 4)
		end("a bad one", "x:2", 5)
		if s := status(); s.Status != view.AppRolledBack {
			t.Errorf("%s: a bad one, and it is %s: %+v", owner, s.Status, s.Services)
		}
		w.must(t, at, version("x:3", func(s *spec.ServiceSpec) { two := 2; s.Update.MaxUnavailable = &two }))
		w.PowerOff(w.Workers["a/w4"])
		workers = 4
		w.Run(time.Minute)
		watch("one is away", 2*time.Minute, 4)
		end("one is away", "x:3", 4)
		w.Restart(w.Workers["a/w4"], nil)
		workers = 5
		w.Run(time.Minute)
		end("it is back", "x:3", 5)
		w.must(t, at, version("x:4", func(s *spec.ServiceSpec) { s.Resources.Memory = 900 * skerry.GiB }))
		watch("one without room", 5*time.Minute, 4)
		end("one without room", "x:3", 4)
		w.must(t, at, version("x:5"))
		watch("and another one", 5*time.Minute, 4)
		end("and another one", "x:5", 5)
		w.must(t, at, version("bad:1"))
		w.Run(10 * time.Second)
		w.must(t, at, deleteApp("probe"))
		w.Run(time.Minute)
		if got := w.ClusterCore("a").Instances(); len(got) != 0 {
			t.Errorf("%s: deleted during an update, and %d are left", owner, len(got))
		}
	}
}
