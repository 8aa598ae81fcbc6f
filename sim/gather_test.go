package sim

import (
	"testing"
	"time"

	"skerry.dev/skerry/spec"
)

// TestSpreadWaitsForWorkers: after the start of a site, what is to be spread waits for the workers that were there before, and for none of
// them longer than 20 seconds. What is not to be spread does not wait.
func TestSpreadWaitsForWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		back   map[string]time.Duration // when workers come back after the site
		spread bool
		within time.Duration // of the site's start, all are ready
		most   int           // on one worker
	}{
		"workers come one after the other": {map[string]time.Duration{"w1": time.Second, "w2": 3 * time.Second, "w3": 4 * time.Second}, true, 8 * time.Second, 1},
		"one does not come":                {map[string]time.Duration{"w1": time.Second, "w2": 3 * time.Second}, true, 25 * time.Second, 2},
		"another policy":                   {map[string]time.Duration{"w1": time.Second, "w2": 3 * time.Second, "w3": 4 * time.Second}, false, 3 * time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5)
			site := w.AddCluster("a")
			for _, n := range []string{"w1", "w2", "w3"} {
				w.AddWorker("a", n, facts(4000))
			}
			w.Run(15 * time.Second)
			for _, n := range ordered(w.Workers) {
				w.Cut(n)
			}
			w.Kill(site)
			w.must(t, w.Root, app("shop", 3, func(s *spec.ServiceSpec) {
				if c.spread {
					s.Placement.Policy = spec.PolicySpread
				}
			}))
			w.Run(time.Second)
			w.Restart(site, nil)
			for d := time.Duration(0); d < c.within; d += time.Second {
				for n, at := range c.back {
					if at == d {
						w.Heal(w.Workers["a/"+n])
					}
				}
				w.Run(time.Second)
			}
			w.check(t, "shop", 3, 3)
			on := map[string]int{}
			for _, i := range w.ClusterCore("a").Instances() {
				on[string(i.Worker)]++
				if on[string(i.Worker)] > c.most {
					t.Errorf("%s has more than %d", i.Worker, c.most)
				}
			}
		})
	}
}
