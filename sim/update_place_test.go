package sim

import (
	"strings"
	"testing"
	"time"

	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
)

// updateWaits gives why an update of a service waits, as the root tells it.
func updateWaits(w *World, name string) string {
	core := w.RootCore()
	s := core.Apps.View(core.Apps.App(web(name).App), "root", true).Services[0]
	if s.Rollout == nil {
		return ""
	}
	return s.Rollout.Waits
}

// An instance that must end before its successor starts stays until there is a place for that: its volume cannot leave a worker that is
// cordoned, drained, out of touch or too small for what is wanted now.
func TestUpdateWaitsForAPlace(t *testing.T) {
	for _, c := range []struct {
		name, why string
		block     func(t *testing.T, w *World, site *Node) apps.Apply
		free      func(t *testing.T, w *World, site *Node)
	}{
		{"cordoned", "UpdateWaits", func(t *testing.T, w *World, site *Node) apps.Apply {
			w.must(t, site, cluster.CordonWorker{Name: "w1", Reason: "new fans"})
			return kept("2", 1)
		}, func(t *testing.T, w *World, site *Node) { w.must(t, site, cluster.CordonWorker{Name: "w1"}) }},
		{"drained", "UpdateWaits", func(t *testing.T, w *World, site *Node) apps.Apply {
			w.must(t, site, cluster.DrainWorker{Name: "w1"})
			return kept("2", 1)
		}, func(t *testing.T, w *World, site *Node) { w.must(t, site, cluster.CordonWorker{Name: "w1"}) }},
		{"cordoned and recreated", "UpdateWaits", func(t *testing.T, w *World, site *Node) apps.Apply {
			w.must(t, site, cluster.CordonWorker{Name: "w1", Reason: "new fans"})
			m := kept("2", 1)
			m.App.Spec.Services[0].Update.Strategy = "recreate"
			return m
		}, func(t *testing.T, w *World, site *Node) { w.must(t, site, cluster.CordonWorker{Name: "w1"}) }},
		{"too large", "UpdateWaits", func(t *testing.T, w *World, site *Node) apps.Apply {
			m := kept("2", 1)
			m.App.Spec.Services[0].Resources.CPU = 9000
			return m
		}, nil},
		{"another site", "UpdateWaits", func(t *testing.T, w *World, site *Node) apps.Apply {
			m := kept("2", 1)
			m.App.Spec.Services[0].Placement.Cluster = "b"
			return m
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 21)
			w.Audit = true
			site := w.AddCluster("a")
			w.AddWorker("a", "w1", facts(8000))
			w.Run(time.Second)
			w.must(t, w.Root, kept("1", 1))
			w.Run(10 * time.Second)
			w.AddCluster("b")
			w.AddWorker("b", "w1", facts(16000))
			w.AddWorker("a", "w2", facts(16000))
			w.Run(time.Second)
			before := w.RootCore().Apps.Instances(web("db"))
			if len(before) != 1 || w.ready("db") != 1 {
				t.Fatal(before)
			}
			m := c.block(t, w, site)
			w.must(t, w.Root, m)
			for range 120 {
				w.Run(time.Second)
				if w.ready("db") != 1 {
					t.Fatal("it was ended, and its successor has no place")
				}
			}
			if why := updateWaits(w, "db"); why == "" {
				t.Error("nobody says what the update waits for")
			} else {
				t.Log(why)
			}
			core := w.RootCore()
			if r := core.Apps.View(core.Apps.App(web("db").App), "root", true).Reason; !strings.Contains(r, c.why) {
				t.Errorf("the reason is %q", r)
			}
			if c.free != nil {
				c.free(t, w, site)
			} else {
				m := kept("3", 1)
				w.must(t, w.Root, m)
			}
			w.Run(time.Minute)
			after := core.Apps.Instances(web("db"))
			if len(after) != 1 || after[0].ID == before[0].ID || w.ready("db") != 1 || updateWaits(w, "db") != "" {
				t.Errorf("%d instances, %d ready: the update did not go on: %s", len(after), w.ready("db"), updateWaits(w, "db"))
			}
			if at := w.where(site, "db"); len(at) != 1 || at[0] != "w1" {
				t.Errorf("it runs at %v", at)
			}
			w.sound(t)
		})
	}
}

// What the old one has makes room for the new one: a worker that is full otherwise takes it.
func TestUpdateInPlaceOnAFullWorker(t *testing.T) {
	for _, strategy := range []string{"rolling", "recreate"} {
		t.Run(strategy, func(t *testing.T) {
			w := newWorld(t, 22)
			w.AddCluster("a")
			w.AddWorker("a", "w1", facts(8000))
			w.Run(time.Second)
			version := func(v string) apps.Apply {
				m := kept(v, 1)
				m.App.Spec.Services[0].Resources.CPU = 7900
				m.App.Spec.Services[0].Update.Strategy = strategy
				return m
			}
			w.must(t, w.Root, version("1"))
			w.Run(10 * time.Second)
			w.must(t, w.Root, version("2"))
			w.Run(time.Minute)
			list := w.RootCore().Apps.Instances(web("db"))
			if len(list) != 1 || list[0].Spec.Env["VERSION"] != "2" || w.ready("db") != 1 {
				t.Errorf("%d ready, %+v", w.ready("db"), list)
			}
			w.sound(t)
		})
	}
}

// A service without volumes loses none either, where there may be more than it has replicas: one ends when another has a place.
func TestMissingOnesHaveAPlace(t *testing.T) {
	w := newWorld(t, 23)
	site := w.AddCluster("a")
	w.AddWorker("a", "w1", facts(8000))
	w.Run(time.Second)
	one := 1
	version := func(v string) apps.Apply {
		return app("shop", 2, func(s *spec.ServiceSpec) {
			s.Env = map[string]string{"VERSION": v}
			s.Update.MaxUnavailable = &one
		})
	}
	w.must(t, w.Root, version("1"))
	w.Run(10 * time.Second)
	w.must(t, site, cluster.CordonWorker{Name: "w1", Reason: "new fans"})
	w.must(t, w.Root, version("2"))
	w.Run(time.Minute)
	if n := w.ready("shop"); n != 2 {
		t.Errorf("%d are ready, and no new one has a place", n)
	}
	w.must(t, site, cluster.CordonWorker{Name: "w1"})
	w.Run(time.Minute)
	if n := w.images("shop"); w.ready("shop") != 2 {
		t.Error(n)
	}
}
