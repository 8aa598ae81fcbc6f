package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// A version that is not taken back, because rollback is off, goes on to other sites once it serves at the first one.
func TestUpdateGoesOnWhenItsFirstSiteHasRecovered(t *testing.T) {
	w := newSites(t, map[string]int{"a": 2, "b": 1})
	deaf, minute := true, spec.Duration(time.Minute)
	w.Machine.Probe = func(a *spec.Assignment, _ worker.ProbeKind, _ int) bool { return a.Spec.Image != "deaf:1" || !deaf }
	w.apply("deaf:1", func(s *spec.ServiceSpec) {
		s.Probes.Readiness, s.Update.Rollback, s.Update.Deadline = probe(time.Second, 1), spec.RollbackOff, &minute
	})
	w.Run(5 * time.Minute)
	if _, s := w.shown(); !s.Rollout.Failing {
		t.Fatalf("want a version that fails: %+v", s.Rollout)
	}
	w.sitesAre("it fails at one", map[string]string{"a": "x:1 x:1", "b": ""})
	deaf = false
	w.Run(5 * time.Minute)
	w.sitesAre("it serves there", map[string]string{"a": "deaf:1 deaf:1", "b": "deaf:1"})
	w.status("Ready")
}

// What comes and goes beside a copy that does not get ready gives it no more time.
func TestPerWorkerDeadlineIsThatOfEachCopy(t *testing.T) {
	w := newTurns(t, 3)
	w.Machine.Probe = func(a *spec.Assignment, _ worker.ProbeKind, _ int) bool { return a.Spec.Image != "deaf:1" }
	minute := spec.Duration(time.Minute)
	w.apply("deaf:1", func(s *spec.ServiceSpec) { s.Probes.Readiness, s.Update.Deadline = probe(time.Second, 1), &minute })
	w.Run(30 * time.Second)
	for n := range 6 {
		w.AddWorker("a", fmt.Sprintf("x%d", n), facts(2000))
		w.Run(20 * time.Second)
	}
	if _, s := w.shown(); s.Rollout.Refused == nil {
		t.Errorf("want it taken back when twice its deadline has passed: %+v", s.Rollout)
	}
}

// A copy of the version before that no longer serves is not shown as one that does, though its turn has not come.
func TestPerWorkerShowsThatACopyBeforeFails(t *testing.T) {
	w := newTurns(t, 4)
	fails := false
	w.Machine.Probe = func(a *spec.Assignment, _ worker.ProbeKind, _ int) bool {
		return !fails || !strings.HasSuffix(string(a.ID), "-w4")
	}
	probed := func(s *spec.ServiceSpec) {
		s.Probes.Readiness, s.Update.Canary = probe(time.Second, 1), &spec.Canary{Count: 1, For: spec.Duration(time.Hour)}
	}
	w.apply("x:2", probed, func(s *spec.ServiceSpec) { s.Update.Canary = nil })
	w.Run(3 * time.Minute)
	w.apply("x:3", probed)
	w.Run(time.Minute)
	fails = true
	w.Run(time.Minute)
	if status, s := w.shown(); s.Ready != 3 || status != "Degraded" {
		t.Errorf("a copy fails: it is %s with %d ready, want Degraded with 3", status, s.Ready)
	}
	fails = false
	w.Run(time.Minute)
	if status, s := w.shown(); s.Ready != 4 || status != "Progressing" {
		t.Errorf("it serves again: it is %s with %d ready, want Progressing with 4", status, s.Ready)
	}
}

// Who cordons a worker in its turn has said nothing about the version.
func TestPerWorkerCordonedInItsTurn(t *testing.T) {
	w := newTurns(t, 4)
	most := func(s *spec.ServiceSpec) { s.Resources.CPU = 1500 }
	w.apply("x:2", most)
	w.Run(3 * time.Minute)
	w.serve("so large that there is room for one", map[string]int{"x:2": 4})
	w.Machine.Stop = 20 * time.Second
	minute := spec.Duration(time.Minute)
	w.apply("x:3", most, func(s *spec.ServiceSpec) {
		s.Update.Canary, s.Update.Deadline = &spec.Canary{Count: 1, For: spec.Duration(time.Hour)}, &minute
	})
	w.Run(3 * time.Second)
	var at string
	for _, i := range w.ClusterCore("a").Instances() {
		if i.Stopping {
			at = string(i.Worker)
		}
	}
	w.must(t, w.Clusters["a"], cluster.CordonWorker{Name: at, Reason: "repair"})
	w.Run(30 * time.Minute)
	if _, s := w.shown(); s.Rollout.Refused != nil {
		t.Errorf("want it to stay, and it was taken back: %+v", s.Rollout.Refused)
	}
	w.serve("another one is the canary", map[string]int{"x:2": 2, "x:3": 1})
}

// A site that joins in the middle of an update gets the version that was done last, not one that never was.
func TestSiteJoinsWhileOneUpdateFollowsAnother(t *testing.T) {
	w := newSites(t, map[string]int{"a": 1, "b": 2})
	w.apply("bad:1", func(s *spec.ServiceSpec) { s.Update.Rollback = spec.RollbackOff })
	w.Run(20 * time.Second)
	w.Cut(w.Clusters["a"]) // with the bad one
	w.Run(3 * time.Second)
	w.apply("x:2", func(s *spec.ServiceSpec) {
		s.Update.Canary = &spec.Canary{Count: 1, For: spec.Duration(10 * time.Minute)}
	})
	w.Run(2 * time.Second)
	w.AddCluster("c")
	w.AddWorker("c", "w1", facts(2000))
	w.Run(40 * time.Second)
	w.sitesAre("it has joined", map[string]string{"c": "x:1"})
}

// A site in quarantine gets nothing new, and keeps what it has.
func TestUpdateLeavesASiteInQuarantine(t *testing.T) {
	w := newSites(t, map[string]int{"a": 3, "b": 1})
	old := &wire.Report{Kind: wire.ReportCluster, Payload: wire.New().Marshal(&wire.ClusterReport{Seq: 1})}
	for range 4 {
		for range 4 {
			w.deliver(w.Clusters["b"], wire.Outgoing{Msg: old})
		}
		w.Run(2 * time.Minute)
	}
	if v := trustOf(w.World, "b"); v == nil || v.Quarantine == "" {
		t.Fatalf("want it in quarantine: %+v", v)
	}
	w.apply("x:2")
	w.Run(5 * time.Minute)
	if _, s := w.shown(); s.Rollout.Phase != view.RolloutDone || s.Rollout.Sites.Away != 1 || s.UpToDate != 3 || s.Ready != 4 {
		t.Errorf("want it done but for one site: %+v, %+v", s, s.Rollout.Sites)
	}
	w.sitesAre("in quarantine", map[string]string{"a": "x:2 x:2 x:2", "b": "x:1"})
	w.must(t, w.Root, root.TrustCluster{Name: "b"})
	w.Run(5 * time.Minute)
	w.sitesAre("trusted again", map[string]string{"a": "x:2 x:2 x:2", "b": "x:2"})
	w.status("Ready")
}

// Who deletes an application in the middle of an update, or of its way back, and applies it again has it run as it was applied last.
func TestPerWorkerIsDeletedInTheMiddle(t *testing.T) {
	for _, image := range []string{"x:2", "bad:1"} {
		for _, after := range []time.Duration{2 * time.Second, 15 * time.Second, 40 * time.Second} {
			w := newSites(t, map[string]int{"a": 2, "b": 3})
			w.apply(image)
			w.Run(after)
			w.must(t, w.Root, apps.Delete{Key: web("probe").App})
			w.Restart(w.Root, nil)
			w.Run(time.Second)
			w.Restart(w.Clusters["a"], nil)
			w.Run(30 * time.Second)
			w.sitesAre("deleted", map[string]string{"a": "", "b": ""})
			w.apply("x:1")
			w.Run(time.Minute)
			w.sitesAre("again", map[string]string{"a": "x:1 x:1", "b": "x:1 x:1 x:1"})
			w.status("Ready")
		}
	}
}

// The next version comes to the worker of an update that has not got on there, whatever of that runs on it.
func TestPerWorkerUpdateAfterOneThatIsNotOver(t *testing.T) {
	for _, image := range []string{"bad:1", "deaf:1", "large:1", "x:2"} {
		for _, after := range []time.Duration{3 * time.Second, 6 * time.Second, 2 * time.Minute} {
			w := newTurns(t, 3)
			w.Machine.Probe = func(a *spec.Assignment, _ worker.ProbeKind, _ int) bool { return a.Spec.Image != "deaf:1" }
			w.apply(image, func(s *spec.ServiceSpec) {
				s.Update.Rollback = spec.RollbackOff
				if image == "deaf:1" {
					s.Probes.Readiness = probe(time.Second, 1)
				} else if image == "large:1" {
					s.Resources.Memory = 900 * skerry.GiB
				}
			})
			w.Run(after)
			w.apply("x:3")
			for range 60 {
				w.Run(2 * time.Second)
				if _, s := w.shown(); s.Ready < 2 {
					t.Fatalf("%s for %s: %d are ready, want at least 2", image, after, s.Ready)
				}
			}
			w.serve(image+" for "+after.String(), map[string]int{"x:3": 3})
			w.status("Ready")
		}
	}
}
