package sim

import (
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// While a version takes the place of another one, the numbers of a root and of its sites stay those that are wanted, and an application
// that serves as it should is not called degraded.
func TestNumbersDuringUpdates(t *testing.T) {
	w := small(t)
	w.Machine.Exit = func(a *spec.Assignment, _ string, _ int) (time.Duration, wire.Exit) {
		if a.Spec.Mode == spec.ModeJob {
			return time.Second, wire.Exit{}
		}
		return -1, wire.Exit{}
	}
	each := func(image string) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Mode, s.Replicas, s.Image = spec.ModePerWorker, nil, image }
	}
	w.must(t, w.Root, app("shop", 2))
	w.must(t, w.Root, app("probe", 1, each("x:1")))
	w.must(t, w.Root, app("load", 1, func(s *spec.ServiceSpec) { s.Mode, s.Replicas, s.Job = spec.ModeJob, nil, &spec.JobSpec{} }))
	w.Run(time.Minute)
	w.must(t, w.Root, app("shop", 2, func(s *spec.ServiceSpec) { s.Image = "x:2" }))
	w.must(t, w.Root, app("probe", 1, each("x:2")))
	atRoot := func(name string) view.AppView {
		core := w.RootCore()
		return core.Apps.View(core.Apps.App(web(name).App), "root", true)
	}
	sites, mixed := []string{"a", "b"}, 0
	for range 400 {
		w.Run(100 * time.Millisecond)
		shop, probe := atRoot("shop"), atRoot("probe")
		if s := probe.Services[0]; s.Want > 4 || s.UpToDate > 4 {
			t.Fatalf("%d of %d copies are ready, %d up to date, on 4 workers", s.Ready, s.Want, s.UpToDate)
		}
		if s := shop.Services[0]; s.Ready >= s.Want && shop.Status != "Ready" && shop.Status != "Progressing" {
			t.Fatalf("%d of %d are ready: %s", s.Ready, s.Want, shop.Status)
		}
		for _, site := range sites {
			for _, v := range w.ClusterCore(site).AppViews(false) {
				s := v.Services[0]
				if v.Key == web("probe").App && s.Want > 2 {
					t.Fatalf("site %s wants %d copies on 2 workers", site, s.Want)
				}
				if v.Key == web("load").App && (s.Want != 0 || v.Status != "Completed") {
					t.Fatalf("site %s wants %d of a job that is done: %s", site, s.Want, v.Status)
				}
				if s.UpToDate < s.Instances {
					mixed++
				}
			}
		}
	}
	if mixed == 0 {
		t.Error("no site ever had instances of two versions")
	}
	for _, name := range []string{"shop", "probe"} {
		if v := atRoot(name); v.Status != "Ready" || v.Services[0].UpToDate != v.Services[0].Want {
			t.Errorf("%s is %s in the end, %d of %d up to date", name, v.Status, v.Services[0].UpToDate, v.Services[0].Want)
		}
	}
}
