package sim

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/decide/members"
)

// TestRepaired: whichever record the store of a site or root has lost, but for those of instances, what runs is not started anew
// after a repair, and a site in the end runs as many as were asked for.
func TestRepaired(t *testing.T) {
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
	for _, name := range []string{"a", "root"} {
		first := upper(settled(1), name)
		for _, lost := range slices.Sorted(maps.Keys(first.Store)) {
			if strings.HasPrefix(lost, "place/") || strings.HasPrefix(lost, "inst/") {
				// For a site, skerry repair says to start with --rebuild then, which e2e TestRebuild does. A root replaces the instance.
				continue
			}
			w := settled(1)
			n, before := upper(w, name), running(w)
			w.crash(n, false)
			delete(n.Store, lost)
			maps.DeleteFunc(n.Store, func(k string, _ []byte) bool { return strings.HasPrefix(k, members.DesiredRecords) })
			n.repairs++
			w.boot(n)
			for range 180 {
				w.Run(time.Second)
				for _, k := range before {
					if !slices.Contains(running(w), k) {
						t.Errorf("%s has lost %s: %s was ended", name, lost, k.id)
						before = nil
					}
				}
			}
			if name != "root" { // what it no longer knows is shown there as not requested
				w.check(t, "shop", 3, 3)
			}
		}
	}
}

// upper gives a node that is no worker.
func upper(w *World, name string) *Node {
	if name == "root" {
		return w.Root
	}
	return w.Clusters[name]
}
