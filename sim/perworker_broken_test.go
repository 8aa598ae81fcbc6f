package sim

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// breakWorker has everything that starts on a worker end again, from a reboot until it is mended.
func (w *turns) breakWorker(name string, mended *bool) {
	was := w.Machine.Exit
	w.Machine.Exit = func(a *spec.Assignment, container string, n int) (time.Duration, wire.Exit) {
		if strings.HasSuffix(string(a.ID), "-"+name) && !*mended {
			return time.Second, wire.Exit{Code: 1}
		}
		return was(a, container, n)
	}
	w.PowerOff(w.Workers["a/"+name])
	w.Restart(w.Workers["a/"+name], nil)
	w.Run(time.Minute)
}

// A worker on which nothing starts, and that is in touch, is no place to judge a version by: one that is good comes to all others, one
// that is bad is taken back because of a worker on which the version before served, and costs one copy.
func TestBrokenWorkerIsNoCanary(t *testing.T) {
	for _, restart := range []bool{false, true} {
		mended := false
		w := newTurns(t, 5)
		w.breakWorker("w2", &mended)
		w.serve("one worker is broken", map[string]int{"x:1": 4})
		minute := spec.Duration(time.Minute)
		deadline := func(s *spec.ServiceSpec) { s.Update.Deadline = &minute }
		w.apply("x:2", deadline)
		for n := range 60 {
			w.Run(5 * time.Second)
			if n == 4 && restart {
				w.Restart(w.Clusters["a"], nil)
				w.Restart(w.Root, nil)
			} else if _, s := w.shown(); s.Ready < 3 && !(restart && n < 8) {
				t.Fatalf("a good version: %d are ready after %d steps", s.Ready, n)
			}
		}
		w.serve("a good version", map[string]int{"x:2": 4})
		if status, s := w.shown(); status == view.AppRolledBack || status == "Ready" || s.UpToDate != 5 || s.Rollout.Refused != nil {
			t.Errorf("a good version is %s: %+v, %+v", status, s, s.Rollout)
		}
		w.apply("bad:1", deadline)
		for range 60 {
			w.Run(5 * time.Second)
			if _, s := w.shown(); s.Ready < 3 {
				t.Fatalf("a bad version: %d are ready", s.Ready)
			}
		}
		w.serve("a bad version", map[string]int{"x:2": 4})
		if _, s := w.shown(); s.Rollout.Refused == nil || s.Rollout.Phase != view.RolloutDone {
			t.Errorf("a bad version is not taken back: %+v", s.Rollout)
		}
		w.apply("x:3", deadline)
		w.Run(5 * time.Second)
		mended = true
		w.Run(10 * time.Minute)
		w.serve("the worker is mended", map[string]int{"x:3": 5})
		w.status("Ready")
	}
}
