package sim

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/fleet"
)

// TestRepairedSite: whichever record a site's store has lost, but for where its instances are, the site goes on after a repair: what runs is not started anew, and in the end
// runs as often as was asked for.
func TestRepairedSite(t *testing.T) {
	t.Parallel()
	settled := func(seed uint64) *World {
		w := New(seed)
		w.UseNetwork()
		w.AddCluster("a")
		w.AddWorker("a", "w1", facts(2000))
		w.AddWorker("a", "w2", facts(2000))
		w.Run(5 * time.Second)
		w.must(t, w.Root, app("shop", 3))
		w.Run(30 * time.Second)
		w.check(t, "shop", 3, 3)
		return w
	}
	running := func(w *World) (out []*task) {
		for _, n := range w.Workers {
			for _, k := range n.tasks {
				if k.running {
					out = append(out, k)
				}
			}
		}
		return out
	}
	for _, lost := range slices.Sorted(maps.Keys(settled(1).Clusters["a"].Store)) {
		if strings.HasPrefix(lost, "place/") {
			continue // skerry repair says to start with --rebuild then, which e2e TestRebuild does
		}
		w := settled(1)
		site, before := w.Clusters["a"], running(w)
		w.crash(site, false)
		delete(site.Store, lost)
		maps.DeleteFunc(site.Store, func(k string, _ []byte) bool { return strings.HasPrefix(k, fleet.DesiredRecords) })
		site.repairs++
		w.boot(site)
		for range 180 {
			w.Run(time.Second)
			for _, k := range before {
				if !slices.Contains(running(w), k) {
					t.Errorf("%s is lost: %s was ended", lost, k.id)
					before = nil
				}
			}
		}
		w.check(t, "shop", 3, 3)
	}
}
