package core

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Three restarts in a row, each soon after the start, are a crash loop until the program has run for long enough.
func TestCrashLoopIsTold(t *testing.T) {
	c, now := New(Options{Name: "w"}), time.Unix(1_700_000_000, 0)
	most := 100
	i := &inst{State: skerry.Running, Phase: skerry.PhaseRunning, Containers: map[string]*container{}, A: spec.Assignment{ID: "web-1"}}
	i.A.Spec.Restart = spec.RestartSpec{Policy: "always", MaxAttempts: &most, Backoff: spec.Duration(time.Second), MaxBackoff: spec.Duration(time.Minute), Window: spec.Duration(time.Hour)}
	c.ledger.insts["web-1"] = i
	life := func(after time.Duration) wire.Observation {
		t.Helper()
		var fx wire.Effects
		i.retryAt = time.Time{} // its back-off is over
		k := i.main()
		k.Attempt++
		c.life.started(now, i, Started{ID: "web-1", Name: spec.MainContainer, Attempt: k.Attempt, At: now}, &fx)
		now = now.Add(after)
		c.life.due(now, i, &fx)
		c.life.exited(now, i, Exited{ID: "web-1", Name: spec.MainContainer, Attempt: k.Attempt, Exit: wire.Exit{Code: 7, At: now}}, &fx)
		return i.observation()
	}
	for n := 1; n <= 4; n++ {
		if o := life(time.Second); (o.CrashLoop != "") != (n >= skerry.CrashLoops) {
			t.Errorf("after %d ends: %q", n, o.CrashLoop)
		}
	}
	if o := i.observation(); o.CrashLoop != "restarted 4 times without running for 10s: ended with status 7" {
		t.Error(o.CrashLoop)
	}
	// While it runs again it is not believed for less than that.
	var fx wire.Effects
	i.retryAt = time.Time{}
	k := i.main()
	k.Attempt++
	c.life.started(now, i, Started{ID: "web-1", Name: spec.MainContainer, Attempt: k.Attempt, At: now}, &fx)
	if o := i.observation(); !o.Ready || o.CrashLoop == "" || !i.wake().Equal(now.Add(skerry.SteadyTime)) {
		t.Errorf("%+v", o)
	}
	now = i.wake()
	c.life.due(now, i, &fx)
	if o := i.observation(); o.CrashLoop != "" {
		t.Error(o.CrashLoop)
	}
	if o := life(time.Minute); o.CrashLoop != "" {
		t.Error(o.CrashLoop)
	}
}

// A side container that ends again and again is a crash loop of its instance, too, until it has run for long enough.
func TestCrashLoopOfASideContainerIsTold(t *testing.T) {
	c, now := New(Options{Name: "w"}), time.Unix(1_700_000_000, 0)
	i := &inst{State: skerry.Running, Phase: skerry.PhaseRunning, health: health{Ready: true}, StartedAt: now,
		Containers: map[string]*container{spec.MainContainer: {Running: true}}, A: spec.Assignment{ID: "web-1"}}
	i.A.Spec.Sidecars = []spec.SideContainer{{Name: "log"}}
	i.A.Spec.Restart = spec.RestartSpec{Policy: "always", Backoff: spec.Duration(time.Second), MaxBackoff: spec.Duration(time.Minute)}
	c.ledger.insts["web-1"] = i
	start := func() {
		var fx wire.Effects
		k := i.container("log")
		k.Attempt++
		k.start, k.retryAt = true, time.Time{} // its back-off is over
		c.life.started(now, i, Started{ID: "web-1", Name: "log", Attempt: k.Attempt, At: now}, &fx)
	}
	life := func(after time.Duration) wire.Observation {
		var fx wire.Effects
		start()
		now = now.Add(after)
		c.life.due(now, i, &fx)
		c.life.exited(now, i, Exited{ID: "web-1", Name: "log", Attempt: i.container("log").Attempt, Exit: wire.Exit{Code: 3, At: now}}, &fx)
		return i.observation()
	}
	for n := 1; n <= 3; n++ {
		o := life(time.Second)
		loops := o.CrashLoop != ""
		if !o.Ready || o.Restarts != n || o.Reason != "side container log ended with status 3" || loops != (n >= skerry.CrashLoops) {
			t.Errorf("after %d ends: %+v", n, o)
		}
	}
	if o := i.observation(); o.CrashLoop != "restarted 3 times without running for 10s: side container log ended with status 3" {
		t.Error(o.CrashLoop)
	}
	start()
	if o := i.observation(); !o.Ready || o.Reason != "" || o.CrashLoop == "" || !i.wake().Equal(now.Add(skerry.SteadyTime)) {
		t.Errorf("%+v, wakes at %s", o, i.wake())
	}
	var fx wire.Effects
	now = i.wake()
	c.life.due(now, i, &fx)
	if o := i.observation(); o.CrashLoop != "" {
		t.Error(o.CrashLoop)
	}
	if life(time.Minute); i.container("log").retryAt.Sub(now) != time.Second {
		t.Errorf("its back-off after a minute of work is %s", i.container("log").retryAt.Sub(now))
	}
}

// The last answer of a probe that has not passed yet is the reason, and answers that differ each time do not write a record each.
func TestLastAnswerIsTheReason(t *testing.T) {
	c, now := New(Options{Name: "w"}), time.Unix(1_700_000_000, 0)
	i := &inst{State: skerry.Running, Phase: skerry.PhaseRunning, Containers: map[string]*container{spec.MainContainer: {Running: true, Attempt: 1}}, A: spec.Assignment{ID: "web-1"}}
	i.A.Spec.Probes.Readiness = &spec.Probe{TCP: &spec.TCPProbe{Port: 80}, Successes: 1, Failures: 3}
	c.ledger.insts["web-1"] = i
	var fx wire.Effects
	i.probe(&fx)
	writes := 0
	for n := range 100 {
		fx = wire.Effects{}
		c.life.probed(now, i, Probed{ID: "web-1", Attempt: 1, Kind: Readiness, Text: "GET / answered 503 Service Unavailable: try " + strings.Repeat("i", n)}, &fx)
		writes += len(fx.Writes)
		if n == 0 && i.Reason != "readiness probe fails: GET / answered 503 Service Unavailable: try " {
			t.Error(i.Reason)
		}
		now = now.Add(100 * time.Millisecond)
	}
	if writes != 2 {
		t.Errorf("%d records are written for 10 s", writes)
	}
	c.life.probed(now, i, Probed{ID: "web-1", Attempt: 1, Kind: Readiness, OK: true}, &fx)
	if !i.Ready || i.Reason != "" {
		t.Errorf("%q", i.Reason)
	}
}

// What a side container does shortens no back-off of main, takes no reason of its away, and is no restart of what does not serve: side
// containers start before main, and may end until it is ready.
func TestSideContainersBesideABackOff(t *testing.T) {
	c, now := New(Options{Name: "w"}), time.Unix(1_700_000_000, 0)
	most := 100
	i := &inst{State: skerry.Running, Phase: skerry.PhaseRunning, StartedAt: now, A: spec.Assignment{ID: "web-1"},
		Containers: map[string]*container{spec.MainContainer: {Running: true, Attempt: 1}, "log": {Running: true, Attempt: 1}}}
	i.A.Spec.Sidecars = []spec.SideContainer{{Name: "log"}}
	i.A.Spec.Restart = spec.RestartSpec{Policy: "always", MaxAttempts: &most, Backoff: spec.Duration(time.Millisecond),
		MaxBackoff: spec.Duration(time.Minute), Window: spec.Duration(time.Hour)}
	c.ledger.insts["web-1"] = i
	var fx wire.Effects
	c.life.exited(now, i, Exited{ID: "web-1", Name: spec.MainContainer, Attempt: 1, Exit: wire.Exit{Code: 7, At: now}}, &fx)
	due := i.retryAt
	c.life.exited(now, i, Exited{ID: "web-1", Name: "log", Attempt: 1, Exit: wire.Exit{Code: 3, At: now}}, &fx)
	k := i.container("log")
	if k.retryAt.Sub(now) < leastBackoff(1) {
		t.Errorf("the side container starts again after %s", k.retryAt.Sub(now))
	}
	k.Attempt, k.start, k.retryAt = 2, true, time.Time{}
	c.life.started(now, i, Started{ID: "web-1", Name: "log", Attempt: 2, At: now}, &fx)
	if i.main().start || i.Phase != skerry.PhaseBackOff || i.retryAt != due || i.Reason != "ended with status 7" || i.Restarts != 1 {
		t.Errorf("main starts: %v; %s until %s: %s; %d restarts", i.main().start, i.Phase, i.retryAt, i.Reason, i.Restarts)
	}
	now = due
	if c.life.due(now, i, &fx); !i.main().start {
		t.Error("main does not start after its back-off")
	}
}

// After a restart of its machine an instance starts as the first time: main waits until the side containers were started.
func TestSideContainersStartFirstAfterARestartOfTheMachine(t *testing.T) {
	c, now := New(Options{Name: "w"}), time.Unix(1_700_000_000, 0)
	i := &inst{State: skerry.Running, Phase: skerry.PhaseRunning, StartedAt: now, A: spec.Assignment{ID: "web-1"},
		Containers: map[string]*container{spec.MainContainer: {Running: true, Attempt: 1}, "log": {Running: true, Attempt: 2, Crashes: 1}}}
	i.A.Spec.Sidecars = []spec.SideContainer{{Name: "log"}}
	c.ledger.insts["web-1"] = i
	var fx wire.Effects
	c.life.reattach(now, nil, &fx)
	c.life.prepared(now, i, Prepared{ID: "web-1", Fence: i.A.Fence}, &fx)
	if i.main().start || !i.container("log").start {
		t.Errorf("main starts: %v, the side container: %v", i.main().start, i.container("log").start)
	}
	c.life.started(now, i, Started{ID: "web-1", Name: "log", Attempt: 3, At: now}, &fx)
	if !i.main().start {
		t.Error("main does not start")
	}
}

// A manifest cannot have its worker start containers, or probe them, as fast as it can: that is at the cost of everybody there.
func TestBackoffHasALeast(t *testing.T) {
	most := 10000
	i := &inst{Containers: map[string]*container{}, A: spec.Assignment{ID: "web-1"}}
	i.A.Spec.Restart = spec.RestartSpec{Policy: "always", MaxAttempts: &most, Backoff: 1, MaxBackoff: 1, Window: 1}
	c, now := New(Options{Name: "w"}), time.Unix(1_700_000_000, 0)
	begin := now
	for range 60 {
		var fx wire.Effects
		c.life.again(now, i, "it ended", &fx)
		if now = i.retryAt; i.Phase != skerry.PhaseBackOff {
			t.Fatal(i.Phase, i.Reason)
		}
	}
	if took := now.Sub(begin); took < 40*time.Second {
		t.Errorf("60 restarts in %s", took)
	}
}

// A program whose filter does not admit a system call ends by a signal that says little; the reason says what it may need.
func TestReasonOfARefusedSystemCall(t *testing.T) {
	d := newDevice(t)
	a := assignment(skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 1})
	a.Spec.Restart.Policy = "never"
	i := d.runs(a)
	d.step(Exited{ID: a.ID, Name: spec.MainContainer, Attempt: 1, Exit: wire.Exit{Code: 159, Signal: "SIGSYS", At: d.now}})
	if !strings.Contains(i.Reason, "32-bit loader") || !strings.Contains(i.Reason, "seccomp: unconfined") {
		t.Errorf("the reason is %q", i.Reason)
	}
}
