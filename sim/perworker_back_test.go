package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// shown gives how a service is shown at the root.
func (w *turns) shown() (string, view.ServiceView) {
	c := w.RootCore().Apps
	v := c.View(c.App(web("probe").App), "root", false)
	return v.Status, v.Services[0]
}

// begins counts how often copies of a version have begun, by site and worker.
func (w *turns) begins() map[string]int {
	out := map[string]int{}
	was := w.Machine.Exit
	w.Machine.Exit = func(a *spec.Assignment, name string, n int) (time.Duration, wire.Exit) {
		out[a.Spec.Image]++
		return was(a, name, n)
	}
	return out
}

// rolledBack says that a version was taken back, why, and that nothing of it is left.
func (w *turns) rolledBack(what, why string, copies int) {
	w.t.Helper()
	status, s := w.shown()
	if status != view.AppRolledBack || s.Rollout == nil || s.Rollout.Refused == nil || !strings.Contains(s.Rollout.Refused.Reason, why) {
		w.t.Errorf("%s: %s, %+v; want a version that was taken back: %s", what, status, s.Rollout, why)
	}
	if s.Ready != copies || s.UpToDate != copies || s.Instances != copies {
		w.t.Errorf("%s: shown are %d ready and %d up to date of %d, want %d", what, s.Ready, s.UpToDate, s.Instances, copies)
	}
	w.serve(what, map[string]int{"x:1": copies})
}

// A version that is bad ends one copy, whatever is bad about it. It is taken back, and the copies that it had not come to have run all
// the time.
func TestPerWorkerIsTakenBack(t *testing.T) {
	for _, c := range []struct {
		image, why string
		edit       func(*spec.ServiceSpec)
	}{
		{"bad:1", "failed 3 times", func(*spec.ServiceSpec) {}},
		{"deaf:1", "was not ready for 1m", func(s *spec.ServiceSpec) { s.Probes.Readiness = probe(time.Second, 1) }},
		{"large:1", "was not ready for 1m", func(s *spec.ServiceSpec) { s.Resources.Memory = 900 * skerry.GiB }},
	} {
		for _, restart := range []string{"", "root", "site"} {
			t.Run(c.image+restart, func(t *testing.T) {
				w := newTurns(t, 4)
				w.Machine.Probe = func(a *spec.Assignment, _ worker.ProbeKind, _ int) bool { return a.Spec.Image != "deaf:1" }
				begun := w.begins()
				minute := spec.Duration(time.Minute)
				w.apply(c.image, c.edit, func(s *spec.ServiceSpec) { s.Update.Deadline = &minute })
				for n := range 60 {
					w.Run(5 * time.Second)
					if n == 1 && restart == "root" {
						w.Restart(w.Root, nil)
					} else if n == 1 && restart == "site" {
						w.Restart(w.Clusters["a"], nil)
					}
					if status, s := w.shown(); s.Ready < 3 && n != 1 || status == "Ready" {
						t.Fatalf("%s with %d ready", status, s.Ready)
					}
				}
				w.rolledBack("at the end", c.why, 4)
				if begun["x:1"] != 1 {
					t.Errorf("%d copies of the version before began, want the one that had ended: %v", begun["x:1"], begun)
				}
				w.apply("x:2", func(s *spec.ServiceSpec) { s.Update.Deadline = &minute })
				w.Run(3 * time.Minute)
				w.serve("a good one", map[string]int{"x:2": 4})
				w.status("Ready")
			})
		}
	}
}

// With rollback: off a bad version stays where it came to, and goes no further.
func TestPerWorkerStaysWithoutRollback(t *testing.T) {
	w := newTurns(t, 4)
	w.apply("bad:1", func(s *spec.ServiceSpec) { s.Update.Rollback = spec.RollbackOff })
	w.Run(20 * time.Minute)
	w.serve("without rollback", map[string]int{"x:1": 3})
	if status, s := w.shown(); status != "Degraded" || !s.Rollout.Failing || s.Ready != 3 || s.UpToDate != 1 || s.Instances != 4 {
		t.Errorf("want 3 of 4 ready, and a failing rollout: %s: %+v, %+v", status, s, s.Rollout)
	}
}

// The first copies are watched for the time of the canary, through a restart of the site; a pause there is kept, and so is one in the
// middle.
func TestPerWorkerCanaryAndPause(t *testing.T) {
	w := newTurns(t, 5)
	two := 2
	w.apply("x:2", func(s *spec.ServiceSpec) {
		s.Update.MaxUnavailable, s.Update.Canary = &two, &spec.Canary{Count: 1, For: spec.Duration(time.Minute)}
	})
	w.Run(55 * time.Second)
	w.serve("the canary is watched", map[string]int{"x:1": 4, "x:2": 1})
	if status, s := w.shown(); status != "Progressing" || s.Rollout.Phase != view.RolloutCanary || s.Ready != 5 || s.UpToDate != 1 {
		t.Errorf("want a canary beside four others: %s: %+v, %+v", status, s, s.Rollout)
	}
	w.must(t, w.Root, apps.Pause{Service: web("probe"), Actor: "ann"})
	w.Run(5 * time.Minute)
	w.serve("paused", map[string]int{"x:1": 4, "x:2": 1})
	if status, s := w.shown(); status != "Progressing" || s.Rollout.Phase != view.RolloutPaused {
		t.Errorf("want a pause: %s: %+v", status, s.Rollout)
	}
	w.must(t, w.Root, apps.Resume{Service: web("probe")})
	w.Run(5 * time.Second)
	w.serve("resumed, two at a time", map[string]int{"x:1": 2, "x:2": 3})
	w.must(t, w.Root, apps.Pause{Service: web("probe"), Actor: "ann"})
	w.Restart(w.Clusters["a"], nil)
	w.Run(20 * time.Minute)
	w.serve("paused in the middle", map[string]int{"x:1": 2, "x:2": 3})
	w.must(t, w.Root, apps.Resume{Service: web("probe")})
	w.Run(2 * time.Minute)
	w.serve("resumed", map[string]int{"x:2": 5})
	w.status("Ready")
	w.apply("bad:1") // what crashes while it is paused is taken back all the same
	w.Run(4 * time.Second)
	w.must(t, w.Root, apps.Pause{Service: web("probe"), Actor: "ann"})
	w.Run(2 * time.Minute)
	w.serve("taken back", map[string]int{"x:2": 5})
	w.status(view.AppRolledBack)
}

// Who goes back in the middle of an update has the copies that it had not come to run on.
func TestPerWorkerUndoInTheMiddle(t *testing.T) {
	w := newTurns(t, 6)
	w.apply("x:2")
	w.Run(30 * time.Second)
	_, s := w.shown()
	if s.UpToDate < 2 || s.UpToDate > 4 {
		t.Fatalf("%d are up to date", s.UpToDate)
	}
	begun := w.begins()
	w.must(t, w.Root, apps.Undo{Service: web("probe")})
	w.Run(3 * time.Minute)
	w.serve("undone", map[string]int{"x:1": 6})
	w.status("Ready")
	if begun["x:1"] != s.UpToDate {
		t.Errorf("%d copies began, want those that had ended: %d", begun["x:1"], s.UpToDate)
	}
}

// A worker that is away gets the version when it is back, a new one at once; one that had a bad version and was away when that was taken
// back does not keep it.
func TestPerWorkerWorkersComeAndGo(t *testing.T) {
	w := newTurns(t, 4)
	w.PowerOff(w.Workers["a/w4"])
	w.Run(time.Minute)
	w.apply("x:2")
	w.Run(30 * time.Second)
	w.AddWorker("a", "w5", facts(2000))
	w.Run(3 * time.Minute)
	w.serve("one is away", map[string]int{"x:2": 4})
	if _, s := w.shown(); s.Rollout.Phase != view.RolloutDone {
		t.Errorf("a worker that is away holds up the end: %+v", s.Rollout)
	}
	w.Restart(w.Workers["a/w4"], nil)
	w.Run(time.Minute)
	w.serve("it is back", map[string]int{"x:2": 5})
	w.status("Ready")

	w.apply("bad:1")
	w.Run(4 * time.Second)
	var at string
	for _, i := range w.ClusterCore("a").Instances() {
		if w.images[i.Revision] == "bad:1" {
			at = string(i.Worker)
		}
	}
	w.Cut(w.Workers["a/"+at])
	w.Run(20 * time.Minute)
	w.serve("its worker is out of touch", map[string]int{"x:2": 4})
	if _, s := w.shown(); s.Rollout == nil || s.Rollout.Refused == nil {
		t.Errorf("want it taken back: %+v", s.Rollout)
	}
	w.Heal(w.Workers["a/"+at])
	w.Run(time.Minute)
	w.serve("it is in touch again", map[string]int{"x:2": 5})
	w.status(view.AppRolledBack)
}

// Restarts that somebody asks for are no failures of a version, though each copy counts one; those of the program are.
func TestPerWorkerRestartIsNoFailure(t *testing.T) {
	w := newTurns(t, 4)
	w.must(t, w.Root, apps.Restart{Service: web("probe")})
	w.Run(time.Minute)
	w.apply("x:2")
	w.Run(20 * time.Second)
	w.must(t, w.Root, apps.Restart{Service: web("probe")})
	w.Run(3 * time.Minute)
	w.serve("updated", map[string]int{"x:2": 4})
	if status, s := w.shown(); status != "Ready" || s.Rollout.Failures != 0 {
		t.Errorf("want Ready without failures: %s: %+v", status, s.Rollout)
	}
	w.apply("bad:1")
	w.Run(2 * time.Minute)
	w.status(view.AppRolledBack)
}

// What is shown of an update, at the root and at the site, is what runs, at every moment but the one in which the news is on its way.
func TestPerWorkerShowsWhatRuns(t *testing.T) {
	w := newTurns(t, 5)
	w.apply("x:2")
	wrong := 0
	for range 900 {
		w.Run(100 * time.Millisecond)
		current, ready, all := 0, 0, 0
		for _, i := range w.ClusterCore("a").Instances() {
			if i.Stopping {
				continue
			}
			all++
			if w.images[i.Revision] == "x:2" {
				current++
			}
			if skerry.HasCondition(i.Conditions, skerry.Ready) {
				ready++
			}
		}
		_, s := w.shown()
		site := w.ClusterCore("a").AppViews(false)[0].Services[0]
		is := fmt.Sprint(current, ready, all)
		if fmt.Sprint(s.UpToDate, s.Ready, s.Instances) == is && fmt.Sprint(site.UpToDate, site.Ready, site.Instances) == is {
			wrong = 0
		} else if wrong++; wrong > 5 {
			t.Fatalf("for half a second: up to date, ready and all are %s; the root shows %d, %d, %d, the site %d, %d, %d", is,
				s.UpToDate, s.Ready, s.Instances, site.UpToDate, site.Ready, site.Instances)
		}
	}
	w.serve("at the end", map[string]int{"x:2": 5})
}
