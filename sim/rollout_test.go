package sim

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// images counts the instances that are to run, per image.
func (w *World) images(name string) map[string]int {
	out := map[string]int{}
	for _, i := range w.RootCore().Apps.Instances(web(name)) {
		if i.Live() {
			out[i.Spec.Image]++
		}
	}
	return out
}

// A version that breaks is taken back at both sites, also when the root dies meanwhile, and those that serve are never fewer
// than the manifest allows.
func TestBadVersionIsTakenBack(t *testing.T) {
	for _, how := range []string{"exits", "probes"} {
		t.Run(how, func(t *testing.T) {
			w := small(t)
			bad := "web:2"
			if how == "exits" {
				w.Machine.Exit = func(a *spec.Assignment, _ string, _ int) (time.Duration, wire.Exit) {
					if a.Spec.Image == bad {
						return 3 * time.Second, wire.Exit{Code: 1}
					}
					return -1, wire.Exit{}
				}
			} else {
				w.Machine.Probe = func(a *spec.Assignment, _ worker.ProbeKind, _ int) bool { return a.Spec.Image != bad }
			}
			deadline := spec.Duration(30 * time.Second)
			version := func(image string) func(*spec.ServiceSpec) {
				return func(s *spec.ServiceSpec) {
					s.Image = image
					s.Probes.Readiness = probe(time.Second, 1)
					s.Update = spec.UpdateSpec{Canary: &spec.Canary{Percent: 25, For: spec.Duration(20 * time.Second)}, Batch: 2, Rollback: spec.RollbackAutomatic, Deadline: &deadline}
				}
			}
			w.must(t, w.Root, app("shop", 4, version("web:1")))
			w.Run(5 * time.Second)
			w.check(t, "shop", 4, 4)
			w.must(t, w.Root, app("shop", 4, version(bad)))
			for n := range 90 {
				w.Run(time.Second)
				if got := w.images("shop"); got[bad] > 1 {
					t.Fatalf("%d instances of a bad version", got[bad])
				}
				if n == 4 {
					w.Restart(w.Root, nil)
				}
				if ready := w.ready("shop"); ready < 4 && n > 10 {
					t.Fatalf("%d are ready", ready)
				}
			}
			w.check(t, "shop", 4, 4)
			if got := w.images("shop"); got["web:1"] != 4 {
				t.Error(got)
			}
			core := w.RootCore()
			v := core.Apps.View(core.Apps.App(web("shop").App), "root", true).Services[0].Rollout
			if v == nil || v.Refused == nil || !strings.Contains(v.Refused.Reason, map[string]string{"exits": "failed 3 times", "probes": "not ready for 30s"}[how]) {
				t.Fatalf("%+v", v)
			}
			// A good one goes through, wave by wave.
			w.must(t, w.Root, app("shop", 4, version("web:3")))
			for range 120 {
				w.Run(time.Second)
				if ready := w.ready("shop"); ready < 4 {
					t.Fatalf("%d are ready", ready)
				}
			}
			if got := w.images("shop"); got["web:3"] != 4 {
				t.Error(got)
			}
			w.check(t, "shop", 4, 4)
			w.sound(t)
		})
	}
}
