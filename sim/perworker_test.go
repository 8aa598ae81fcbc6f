package sim

import (
	"testing"
	"time"

	"skerry.dev/skerry/spec"
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
