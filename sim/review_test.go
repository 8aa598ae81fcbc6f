package sim

import (
	"maps"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// A copy of a perWorker service runs on while its worker is out of touch, and counts as ready once it is back.
func TestCopyIsReadyAgainAfterACut(t *testing.T) {
	w := newWorld(t, 3)
	w.AddCluster("a")
	n := w.AddWorker("a", "w1", facts(2000))
	w.Run(time.Second)
	w.must(t, w.Root, app("probe", 1, func(s *spec.ServiceSpec) { s.Mode, s.Replicas = spec.ModePerWorker, nil }))
	w.Run(5 * time.Second)
	w.check(t, "probe", 1, 1)
	w.Cut(n)
	w.Run(10 * time.Second)
	w.check(t, "probe", 0, 1)
	w.Heal(n)
	w.Run(10 * time.Second)
	w.check(t, "probe", 1, 1)
	if i := w.only(t, "probe"); i.Restarts != 0 {
		t.Errorf("restarted %d times", i.Restarts)
	}
}

// A violation that is over is over at the root too, also when it was so short that no alarm was raised, and when the site's
// orchestrator was restarted meanwhile.
func TestViolationEnds(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld(t, 5)
		site := w.AddCluster("a")
		n := w.AddWorker("a", "w1", facts(2000))
		w.Run(time.Second)
		w.must(t, w.Root, app("shop", 1, rigid(1)))
		w.Run(10 * time.Second)
		id := w.only(t, "shop").ID
		violated := func() bool {
			for _, c := range w.only(t, "shop").Conditions {
				if c.Type == skerry.Satisfied {
					return !c.Status
				}
			}
			return false
		}
		w.starve(n, id, 0.9)
		w.Run(6 * time.Second)
		if !violated() {
			t.Errorf("restart %v: not told", restart)
		}
		if restart {
			w.Run(time.Minute)
			w.Kill(site)
			w.starve(n, id, 0)
			w.Run(time.Second)
			w.Restart(site, nil)
		}
		w.starve(n, id, 0)
		w.Run(3 * time.Minute)
		if violated() {
			t.Errorf("restart %v: still told of as violated", restart)
		}
	}
}

// Where an instance that moved starts slowly, its new place is not blamed for that.
func TestSlowStartIsNoViolation(t *testing.T) {
	w, site, id, at := lone(t, rigid(1), func(s *spec.ServiceSpec) { s.Probes.Readiness = probe(time.Second, 3) })
	w.AddWorker("a", "w3", facts(2000))
	began := time.Time{}
	w.Machine.Started = func(*spec.Assignment, string, int) { began = w.Now }
	w.Machine.Probe = func(*spec.Assignment, worker.ProbeKind, int) bool { return w.Now.Sub(began) > 30*time.Second }
	w.PowerOff(at)
	w.Run(2 * time.Minute)
	for _, e := range w.Events {
		if e.Reason == "Migrating" {
			t.Errorf("%s", e.Text)
		}
	}
	if on(site, id) == short(at) {
		t.Error("it did not move")
	}
	w.check(t, "shop", 1, 1)
}

// An instance that ends by itself while a copy is to take over has ended: no copy runs on that nobody wants.
func TestEndedInstanceHasNoSuccessor(t *testing.T) {
	w, _, id, at := lone(t, rigid(1), func(s *spec.ServiceSpec) { s.Restart.Policy = "onFailure" })
	w.Audit = true
	w.Machine.Prepare = 10 * time.Second
	w.starve(at, id, 0.9)
	w.Run(6 * time.Second)
	for _, k := range at.tasks {
		w.machines.endTask(at, k, wire.Exit{At: w.Now})
	}
	w.Run(time.Minute)
	if i := w.only(t, "shop"); i.State != skerry.Terminated {
		t.Errorf("it is %s", i.State)
	}
	w.check(t, "shop", 0, 0)
}

// A site that cannot keep the SLA of any of three instances gives them up one after the other: never more than one too many
// run, none is missing, and neither a full neighbour nor a restart of the root ends the search.
func TestInstancesGoElsewhereOneByOne(t *testing.T) {
	w := newWorld(t, 5)
	w.AddCluster("a")
	n := w.AddWorker("a", "w1", facts(2000))
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 3, rigid(0.9)))
	w.Run(10 * time.Second)
	w.check(t, "shop", 3, 3)
	w.AddCluster("b")
	m := w.AddWorker("b", "w1", facts(1500))
	w.Run(10 * time.Second)
	w.must(t, w.Root, app("other", 3, func(s *spec.ServiceSpec) { s.Placement.Cluster = "b" }))
	w.Run(10 * time.Second)
	w.check(t, "other", 3, 6)
	most, least := 0, 3
	w.Machine.Prepare = 5 * time.Second
	for step := range 900 {
		w.suffer(n, 0.9)
		w.suffer(m, 0)
		switch step {
		case 200:
			w.must(t, w.Root, deleteApp("other"))
		case 250:
			w.Kill(w.Root)
			w.Run(time.Second)
			w.Restart(w.Root, nil)
		}
		w.Run(time.Second)
		live := 0
		for _, i := range w.RootCore().Apps.Instances(web("shop")) {
			if i.Live() && i.Holder != "" {
				live++
			}
		}
		most, least = max(most, live), min(least, w.ready("shop"))
	}
	if h := w.holders("shop"); h["b"] != 3 || len(h) != 1 {
		t.Errorf("they are at %v", h)
	}
	if most > 4 || least < 3 {
		t.Errorf("at most %d instances, at least %d ready; want 4 and 3", most, least)
	}
	w.check(t, "shop", 3, 3)
}

// A long run whose first instances ended longer ago than they are shown ends nevertheless.
func TestLongJobEnds(t *testing.T) {
	w := small(t)
	w.Machine.Exit = func(*spec.Assignment, string, int) (time.Duration, wire.Exit) { return time.Minute, wire.Exit{} }
	a := job("long", 6, 1, time.Hour, time.Minute)
	ttl := spec.Duration(2 * time.Minute)
	a.App.Spec.Services[0].Job.TTL = &ttl
	w.must(t, w.Root, a)
	w.Run(15 * time.Minute)
	r := w.RootCore().Apps.App(web("long").App).Runs["web"]
	if len(r) != 1 || r[0].Result != "Succeeded" || r[0].Succeeded != 6 {
		t.Errorf("%+v", *r[0])
	}
	w.check(t, "long", 0, 0)
	// Applied again it would not run again, and the plan knows.
	if p, err := w.RootCore().Apps.Plan(w.Now, w.RootCore().Apps.App(web("long").App).Manifest, nil); err != nil || len(p.New) != 0 {
		t.Errorf("%v, %d new instances planned", err, len(p.New))
	}
}

// What takes exactly its time, as estimated, is not given up on the way because a start took a moment; nor by a restart.
func TestJobThatJustFits(t *testing.T) {
	w := small(t)
	w.Machine.Prepare = 10 * time.Second // the first pull
	w.Machine.Exit = func(*spec.Assignment, string, int) (time.Duration, wire.Exit) {
		w.Machine.Prepare = 0
		return 55 * time.Second, wire.Exit{}
	}
	w.must(t, w.Root, job("tight", 6, 2, 3*time.Minute, time.Minute))
	w.Run(70 * time.Second)
	w.Kill(w.Root)
	w.Run(time.Second)
	w.Restart(w.Root, nil)
	w.Run(5 * time.Minute)
	r := w.RootCore().Apps.App(web("tight").App).Runs["web"]
	if len(r) != 1 || r[0].Result != "Succeeded" {
		t.Errorf("%+v", *r[0])
	}
}

// The next time of a schedule does not move the deadline of the run that goes on.
func TestSkippedRunKeepsTheDeadline(t *testing.T) {
	w := small(t)
	finish := spec.Duration(7 * time.Minute)
	w.must(t, w.Root, app("nightly", 1, func(s *spec.ServiceSpec) {
		s.Mode, s.Replicas, s.Cron = spec.ModeCron, nil, &spec.CronSpec{Schedule: "*/5 * * * *", Concurrency: "forbid"}
		s.Job = &spec.JobSpec{FinishBefore: &finish}
	}))
	w.Run(13 * time.Minute) // begins at 5, skips 10, is late at 12
	r := w.RootCore().Apps.App(web("nightly").App).Runs["web"]
	if len(r) != 1 || r[0].Result != "Failed" {
		t.Errorf("%d runs, the first is %+v", len(r), *r[0])
	}
	w.check(t, "nightly", 0, 0)
	w.Run(3 * time.Minute)
	if r = w.RootCore().Apps.App(web("nightly").App).Runs["web"]; len(r) != 2 || r[1].Result != "" {
		t.Errorf("%d runs, want a second one", len(r))
	}
}

// A copy that a plugin rules out is asked about again from time to time, not with every message.
func TestRuledOutCopyAsksNowAndThen(t *testing.T) {
	w, _ := judged(t, 3, cluster.Plugin{Name: "greenest", All: true})
	asked := 0
	w.Machine.Plugins = func(q cluster.Score) []wire.PluginAnswer {
		asked++
		return answers(wire.PluginAnswer{Out: map[string]string{"w0": "no", "w1": "no", "w2": "no"}})(q)
	}
	w.must(t, w.Root, app("probe", 1, func(s *spec.ServiceSpec) { s.Mode, s.Replicas = spec.ModePerWorker, nil }))
	w.Run(2 * time.Minute)
	if asked < 6 || asked > 24 {
		t.Errorf("asked %d times about three copies", asked)
	}
	w.Machine.Plugins = answers(wire.PluginAnswer{})
	w.Run(time.Minute)
	w.check(t, "probe", 1, 3)
}

// Restarts of the site's orchestrator do not make an instance flap.
func TestCalmOutlivesARestart(t *testing.T) {
	w, site, id, _ := lone(t, rigid(1))
	moves, last := 0, on(site, id)
	for range 60 {
		for _, name := range slices.Sorted(maps.Keys(w.Workers)) {
			w.suffer(w.Workers[name], 0.9)
		}
		w.Kill(site)
		w.Restart(site, nil)
		w.Run(10 * time.Second)
		if now := on(site, id); now != last {
			moves, last = moves+1, now
		}
	}
	if moves == 0 || moves > 6 {
		t.Errorf("%d moves in ten minutes", moves)
	}
}
