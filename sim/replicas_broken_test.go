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

// TestBrokenWorkerJudgesNoReplica: replicas stay where their data is. One whose worker starts nothing, which the version before did not run
// on either, is updated last, and says nothing about a version: one that is good comes to all others, one that is bad is taken back.
func TestBrokenWorkerJudgesNoReplica(t *testing.T) {
	minute := spec.Duration(time.Minute)
	for what, x := range map[string]struct {
		edit    func(*spec.ServiceSpec)
		restart bool
		least   int // ready at any time
	}{
		"one by one":          {func(*spec.ServiceSpec) {}, false, 2},
		"restarts in between": {func(*spec.ServiceSpec) {}, true, 0},
		"with a canary": {func(s *spec.ServiceSpec) {
			s.Update.Canary = &spec.Canary{Count: 1, For: spec.Duration(30 * time.Second)}
		}, false, 2},
		"in waves":    {func(s *spec.ServiceSpec) { s.Update.Batch = 2 }, false, 2},
		"all at once": {func(s *spec.ServiceSpec) { s.Update.Strategy = "recreate" }, false, 0},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, 5)
			w.Machine.Start = 2 * time.Second
			w.Audit = true
			w.AddCluster("a")
			for _, name := range []string{"w1", "w2", "w3", "w4", "w5"} {
				w.AddWorker("a", name, facts(2000))
			}
			broken, mended := -1, false
			w.Machine.Exit = func(a *spec.Assignment, _ string, _ int) (time.Duration, wire.Exit) {
				if a.Ordinal == broken && !mended {
					return time.Second, wire.Exit{Code: 1}
				} else if a.Spec.Image == "bad:1" {
					return 3 * time.Second, wire.Exit{Code: 7}
				}
				return -1, wire.Exit{}
			}
			apply := func(image string) {
				t.Helper()
				w.must(t, w.Root, app("db", 4, func(s *spec.ServiceSpec) {
					s.Image, s.Resources.CPU, s.Update.Deadline = image, 1500, &minute // one fits on a worker
					s.Volumes = []spec.Volume{{Name: "data", Local: &spec.LocalVolume{Size: skerry.GiB}}}
					s.Mounts = []spec.Mount{{Volume: "data", Path: "/data"}}
					x.edit(s)
				}))
			}
			ready := func() (n map[string]int, all int) {
				n = map[string]int{}
				for _, i := range w.ClusterCore("a").Instances() {
					if p := w.RootCore().Apps.Instance(i.ID); p != nil && skerry.HasCondition(i.Conditions, skerry.Ready) {
						n[p.Spec.Image]++
						all++
					}
				}
				return n, all
			}
			watch := func(what string) {
				t.Helper()
				for n := range 80 {
					w.Run(5 * time.Second)
					if n == 4 && x.restart {
						w.Restart(w.Clusters["a"], nil)
						w.Restart(w.Root, nil)
					}
					if _, all := ready(); all < x.least {
						t.Fatalf("%s: %d are ready after %d steps", what, all, n)
					}
				}
			}
			rollout := func() (*apps.Rollout, *apps.App) {
				a := w.RootCore().Apps.App(web("db").App)
				return a.Rollouts["web"], a
			}
			w.Run(5 * time.Second)
			apply("x:1")
			w.Run(time.Minute)
			for _, i := range w.ClusterCore("a").Instances() {
				if i.Worker == "w2" {
					broken = i.Ordinal
				}
			}
			if n, _ := ready(); n["x:1"] != 4 || broken < 0 {
				t.Fatalf("at first: %v, ordinal %d is on the worker", n, broken)
			}
			w.PowerOff(w.Workers["a/w2"])
			w.Restart(w.Workers["a/w2"], nil)
			w.Run(time.Minute)
			if n, _ := ready(); n["x:1"] != 3 {
				t.Fatalf("one worker is broken: %v", n)
			}

			apply("x:2")
			watch("a good version")
			r, a := rollout()
			if n, _ := ready(); n["x:1"] != 0 || n["x:2"] < 3 || a.Refused["web"] != nil || r.EndedAt.IsZero() {
				why := ""
				if f := a.Refused["web"]; f != nil {
					why = f.Reason
				}
				t.Fatalf("a good version: ready are %v, refused: %q, %+v", n, why, r)
			}
			c := w.RootCore().Apps
			if v := c.View(a, "root", false); x.least < 3 && v.Status == "Ready" || v.Status == view.AppRolledBack {
				t.Errorf("a good version is %s", v.Status)
			}
			apply("bad:1")
			watch("a bad version")
			if n, _ := ready(); n["x:2"] < 3 {
				t.Errorf("a bad version: ready are %v", n)
			}
			if r, a := rollout(); a.Refused["web"] == nil || r.EndedAt.IsZero() {
				t.Errorf("a bad version is not taken back: %+v", r)
			}
			apply("x:3")
			w.Run(5 * time.Second)
			mended = true
			w.Run(10 * time.Minute)
			if n, _ := ready(); n["x:3"] != 4 {
				t.Errorf("the worker is mended: ready are %v", n)
			}
			if len(w.Faults) > 0 {
				t.Error("there are faults:", w.Faults)
			}
		})
	}
}
