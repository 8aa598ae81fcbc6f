package sim

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// turns is a site whose workers run a perWorker service, which is updated.
type turns struct {
	*World
	t      *testing.T
	images map[string]string // by revision
}

// newTurns has a version 1 serve on each of some workers.
func newTurns(t *testing.T, workers int) *turns {
	w := &turns{New(5), t, map[string]string{}}
	w.Machine.Start = 2 * time.Second
	w.Audit = true
	w.AddCluster("a")
	for n := range workers {
		f := facts(2000)
		f.Labels = map[string]string{"n": strconv.Itoa(n + 1), "all": "yes"}
		w.AddWorker("a", "w"+strconv.Itoa(n+1), f)
	}
	w.Machine.Exit = func(a *spec.Assignment, _ string, _ int) (time.Duration, wire.Exit) {
		switch a.Spec.Image {
		case "bad:1":
			return 3 * time.Second, wire.Exit{Code: 7}
		case "once:1":
			return time.Second, wire.Exit{}
		}
		return -1, wire.Exit{}
	}
	w.Run(5 * time.Second)
	w.apply("x:1")
	w.Run(30 * time.Second)
	w.serve("at first", map[string]int{"x:1": workers})
	return w
}

func (w *turns) apply(image string, edit ...func(*spec.ServiceSpec)) {
	w.t.Helper()
	w.must(w.t, w.Root, app("probe", 1, append(edit, func(s *spec.ServiceSpec) {
		s.Mode, s.Replicas, s.Image = spec.ModePerWorker, nil, image
	})...))
	m := &w.RootCore().Apps.App(web("probe").App).Manifest.Spec.Services[0]
	w.images[m.Revision()] = image
}

// serve says of how many copies which version is to be ready.
func (w *turns) serve(what string, want map[string]int) {
	w.t.Helper()
	got := map[string]int{}
	for _, i := range w.ClusterCore("a").Instances() {
		if skerry.HasCondition(i.Conditions, skerry.Ready) {
			got[w.images[i.Revision]]++
		}
	}
	if !maps.Equal(got, want) {
		w.t.Errorf("%s: ready are %v, want %v", what, got, want)
	}
}

func (w *turns) status(want string) {
	w.t.Helper()
	c := w.RootCore().Apps
	if v := c.View(c.App(web("probe").App), "root", false); v.Status != want {
		w.t.Errorf("it is %s, want %s: %+v", v.Status, want, v.Services[0])
	}
}

// A version that finds no room takes one worker's copy, however often its site starts anew and however often it is tried.
func TestPerWorkerRestartsTakeNoFurtherCopies(t *testing.T) {
	w := newTurns(t, 4)
	large := func(s *spec.ServiceSpec) { s.Resources.Memory = 900 * skerry.GiB }
	for n, image := range []string{"large:1", "large:2", "large:3"} {
		w.apply(image, large)
		w.Run(time.Minute)
		w.serve("after update "+strconv.Itoa(n+1), map[string]int{"x:1": 3})
		w.Restart(w.Clusters["a"], nil)
		w.Run(time.Minute)
		w.serve("after its restart", map[string]int{"x:1": 3})
	}
	w.apply("x:2")
	w.Run(3 * time.Minute)
	w.serve("one with room", map[string]int{"x:2": 4})
	w.status("Ready")
}

// A version that takes its worker down with it goes no further, and goes on when the worker is forgotten.
func TestPerWorkerStopsWhereAWorkerIsLost(t *testing.T) {
	w := newTurns(t, 4)
	w.apply("x:2")
	w.Run(4 * time.Second)
	w.PowerOff(w.Workers["a/w1"])
	w.Run(5 * time.Minute)
	w.serve("its first worker is lost", map[string]int{"x:1": 3})
	w.must(t, w.Clusters["a"], cluster.RemoveWorker{Name: "w1"})
	w.Run(3 * time.Minute)
	w.serve("that worker is forgotten", map[string]int{"x:2": 3})
	w.status("Ready")
}

// Workers that a version is not for, that are cordoned or that have left hold up nothing; those that it is not for come last.
func TestPerWorkerLeavesWorkers(t *testing.T) {
	w := newTurns(t, 4)
	for _, n := range []string{"1", "4"} { // the first, which would be next, and the last
		w.apply("only:"+n, func(s *spec.ServiceSpec) { s.Placement.Labels = map[string]string{"n": n} })
		w.Run(5 * time.Second)
		w.serve("another selector", map[string]int{"only:" + n: 1, "x:1": 3})
		w.Run(time.Minute)
		w.serve("another selector, later", map[string]int{"only:" + n: 1})
		w.status("Ready")
		w.apply("x:1")
		w.Run(2 * time.Minute)
		w.serve("back", map[string]int{"x:1": 4})
	}
	w.apply("nowhere:1", func(s *spec.ServiceSpec) { s.Placement.Labels = map[string]string{"n": "none"} })
	w.Run(time.Minute)
	w.serve("a selector of none", map[string]int{})
	w.apply("x:1")
	w.Run(2 * time.Minute)
	w.must(t, w.Clusters["a"], cluster.CordonWorker{Name: "w1", Reason: "repair"})
	w.apply("x:2")
	w.Run(20 * time.Second)
	w.serve("one is cordoned", map[string]int{"x:1": 2, "x:2": 2})
	w.Run(2 * time.Minute)
	w.serve("one is cordoned, later", map[string]int{"x:2": 3})
	w.status("Ready")
	w.must(t, w.Clusters["a"], cluster.CordonWorker{Name: "w1"})
	w.Run(time.Minute)
	w.serve("it takes something again", map[string]int{"x:2": 4})
	w.apply("large:1", func(s *spec.ServiceSpec) { s.Resources.Memory = 900 * skerry.GiB })
	w.Run(time.Minute)
	w.serve("no room", map[string]int{"x:2": 3})
	w.apply("x:3", func(s *spec.ServiceSpec) { s.Placement.Labels = map[string]string{"n": "2"} })
	w.Run(2 * time.Minute)
	w.serve("not for the one whose turn it was", map[string]int{"x:3": 1})
	w.status("Ready")
}

// A copy that has done its work stands for one that is ready.
func TestPerWorkerThatEnds(t *testing.T) {
	w := newTurns(t, 3)
	w.apply("once:1", func(s *spec.ServiceSpec) { s.Restart.Policy = "onFailure" })
	w.Run(2 * time.Minute)
	w.serve("it has ended", map[string]int{})
	ended := 0
	for _, i := range w.ClusterCore("a").Instances() {
		if i.State == skerry.Terminated && w.images[i.Revision] == "once:1" {
			ended++
		}
	}
	if ended != 3 {
		t.Errorf("it has ended on %d workers of 3", ended)
	}
	w.apply("x:2")
	w.Run(3 * time.Minute)
	w.serve("updated", map[string]int{"x:2": 3})
}

// The clock of a site is set back while a copy is watched.
func TestPerWorkerUnderAClockSetBack(t *testing.T) {
	w := newTurns(t, 3)
	w.apply("x:2")
	w.Run(8 * time.Second)
	w.serve("the first one is watched", map[string]int{"x:1": 2, "x:2": 1})
	w.Clusters["a"].skew = -26 * time.Hour
	w.Run(2 * time.Minute)
	w.serve("later", map[string]int{"x:2": 3})
}
