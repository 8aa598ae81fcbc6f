package apps

import (
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// scheduled makes a schedule of shop's only service.
func scheduled(text string) Apply {
	return apply(1, func(a *Apply) {
		s := &a.App.Spec.Services[0]
		s.Mode, s.Replicas, s.Cron = spec.ModeCron, nil, &spec.CronSpec{Schedule: text, Concurrency: "forbid"}
	})
}

// yard is a site whose instances end at once, by an exit code of their own.
type yard struct {
	*site
	started int
	code    func(*Instance) int
	skew    time.Duration // of the worker's clock
}

func newYard(t *testing.T) *yard {
	return &yard{site: newSite(t), code: func(*Instance) int { return 0 }}
}

// pass lets time pass, in steps of five seconds.
func (y *yard) pass(d time.Duration) {
	for end := y.now.Add(d); y.now.Before(end); y.now = y.now.Add(5 * time.Second) {
		for range 3 { // what follows at once
			var fx wire.Effects
			y.take(y.c.Reconcile(y.now))
			for _, i := range y.c.Unplaced(y.now) {
				y.c.Place(y.now, i, "site", i.Fence, &wire.Decision{}, &fx)
				y.started++
			}
			for _, i := range y.c.Stopping() {
				y.c.Gone(y.now, "site", i.ID, &fx)
			}
			for _, i := range y.c.InstancesOf(shop) {
				if i.Holder == "" || i.State.Final() {
					continue
				}
				at := y.now.Add(y.skew)
				o := wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Running, Phase: skerry.PhaseRunning, StartedAt: at}
				y.c.Observe(y.now, "site", o, &fx)
				o.State, o.Phase, o.Exit = skerry.Terminated, skerry.PhaseExited, &wire.Exit{Code: y.code(i), At: at}
				if o.Exit.Code != 0 {
					o.State, o.Reason = skerry.Failed, "exit code"
				}
				y.c.Observe(y.now, "site", o, &fx)
			}
			y.take(fx)
		}
	}
}

// restart has another process go on from what was kept.
func (y *yard) restart() {
	y.c = New([16]byte{2}, "t")
	for key, value := range y.store {
		if _, err := y.c.Load(key, value.([]byte)); err != nil {
			y.t.Fatal(err)
		}
	}
	y.c.Start(y.now)
}

func (y *yard) ran() int {
	n := y.started
	y.started = 0
	return n
}

// TestScheduleUnderAClockThatJumps: a schedule follows the wall clock, wherever it jumps. A run that was missed is made up for once, and
// one that was done is not repeated because of a minute.
func TestScheduleUnderAClockThatJumps(t *testing.T) {
	const day, year = 24 * time.Hour, 8766 * time.Hour
	for _, c := range []struct {
		schedule string
		jump     time.Duration
		after    int // runs in the ten minutes after the jump
	}{
		{"* * * * *", -2 * time.Minute, 10}, {"* * * * *", -time.Hour, 10}, {"* * * * *", -day, 10}, {"* * * * *", -10 * year, 10},
		{"* * * * *", 2 * time.Minute, 11}, {"* * * * *", day, 11}, {"* * * * *", 10 * year, 11}, {"* * * * *", 56 * year, 11},
		{"@every 1m", -day, 9}, {"@every 1m", day, 10}, {"@every 1s", 10 * year, 120},
		{"0 * * * *", -2 * time.Minute, 0}, {"0 * * * *", day, 1}, {"0 * * * *", 10 * year, 1},
	} {
		t.Run(fmt.Sprint(c.schedule, " by ", c.jump), func(t *testing.T) {
			y := newYard(t)
			y.now = time.Date(2026, 3, 4, 11, 55, 30, 0, time.UTC)
			y.tell(scheduled(c.schedule))
			y.pass(5 * time.Minute)
			if y.ran() == 0 {
				t.Fatal("nothing ran before the clock jumped")
			}
			y.now = y.now.Add(c.jump)
			if c.jump < 0 {
				y.restart() // what waits in a process waits by its monotonic clock, which these times have not
			}
			y.pass(10 * time.Minute)
			if n := y.ran(); n < c.after-1 || n > c.after+1 {
				t.Errorf("%d runs in ten minutes after the jump instead of %d", n, c.after)
			}
			seen := map[string]bool{}
			for _, r := range y.c.App(shop).Runs["web"] {
				if seen[r.ID] {
					t.Errorf("two runs are named %s", r.ID)
				}
				seen[r.ID] = true
			}
			for _, e := range y.events {
				if e.Reason == "RunSkipped" {
					t.Errorf("a run was left out: %s", e.Text)
				}
			}
		})
	}
}

// TestFailedRunsBackOff: a job that fails at once makes no thousand instances in minutes.
func TestFailedRunsBackOff(t *testing.T) {
	limit, done := 1000, 3
	job := func(a *Apply) {
		s := &a.App.Spec.Services[0]
		s.Mode, s.Replicas, s.Job = spec.ModeJob, nil, &spec.JobSpec{BackoffLimit: &limit, Completions: &done}
	}
	y := newYard(t)
	y.code = func(*Instance) int { return 1 }
	y.tell(apply(1, job))
	y.pass(2 * time.Minute)
	if n := y.ran(); n < 3 || n > 5 { // after 0, 10, 30 and 70 s
		t.Errorf("%d instances in two minutes", n)
	}
	y.pass(30 * time.Minute)
	if n := y.ran(); n < 5 || n > 9 {
		t.Errorf("%d instances in half an hour", n)
	}
	y.code = func(*Instance) int { return 0 }
	y.pass(6*time.Minute + 10*time.Second)
	if r := lastRun(y.c.App(shop).Runs["web"]); r.Result != "Succeeded" {
		t.Errorf("after a success the others waited: %+v", r)
	}
}

// TestWorkersClockDecidesNothing: how long an instance ran, and since when it has ended, is not for its worker's clock to say.
func TestWorkersClockDecidesNothing(t *testing.T) {
	for _, skew := range []time.Duration{-87660 * time.Hour, 87660 * time.Hour} {
		ttl := spec.Duration(time.Minute)
		y := newYard(t)
		y.skew = skew
		y.tell(apply(1, func(a *Apply) {
			s := &a.App.Spec.Services[0]
			s.Mode, s.Replicas, s.Job = spec.ModeJob, nil, &spec.JobSpec{TTL: &ttl}
		}))
		y.pass(30 * time.Second)
		if n := len(y.c.InstancesOf(shop)); n != 1 {
			t.Errorf("%v: %d instances are shown half a minute after the end", skew, n)
		}
		y.pass(time.Minute)
		if n := len(y.c.InstancesOf(shop)); n != 0 {
			t.Errorf("%v: %d instances are shown after the time to live", skew, n)
		}
		y = newYard(t)
		y.skew, y.code = skew, func(*Instance) int { return 1 }
		y.tell(apply(1))
		y.pass(10 * time.Minute)
		if n := y.ran(); n > 20 {
			t.Errorf("%v: a service that fails at once was placed %d times in ten minutes", skew, n)
		}
	}
}

// TestTookIsBounded: a clock that was set while an instance ran makes no estimate of years.
func TestTookIsBounded(t *testing.T) {
	y := newYard(t)
	y.tell(apply(1, func(a *Apply) {
		s := &a.App.Spec.Services[0]
		s.Mode, s.Replicas, s.Job = spec.ModeJob, nil, &spec.JobSpec{}
	}))
	var fx wire.Effects
	i := y.c.Unplaced(y.now)[0]
	y.c.Place(y.now, i, "site", i.Fence, &wire.Decision{}, &fx)
	o := wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence, State: skerry.Running, Phase: skerry.PhaseRunning, StartedAt: y.now}
	y.c.Observe(y.now, "site", o, &fx)
	y.now = y.now.Add(time.Second)
	o.State, o.Exit = skerry.Terminated, &wire.Exit{At: y.now.AddDate(10, 0, 0)}
	y.c.Observe(y.now, "site", o, &fx)
	y.c.Reconcile(y.now)
	if r := lastRun(y.c.App(shop).Runs["web"]); r.Result != "Succeeded" || r.Took > time.Second {
		t.Errorf("%+v", r)
	}
}
