package core

import (
	"encoding/json"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// asOne gives a core whose server starts all containers as one, with an instance whose main container is being started.
func asOne() (*Core, *inst, time.Time) {
	c, now := New(Options{Name: "w", AsOne: true}), time.Unix(1_700_000_000, 0)
	i := &inst{State: skerry.WorkerScheduled, Phase: skerry.PhaseStarting, Containers: map[string]*container{}}
	i.A.ID = "web-1"
	i.A.Spec.Init, i.A.Spec.Sidecars = []spec.SideContainer{{Name: "check"}}, []spec.SideContainer{{Name: "log"}}
	most := 5
	i.A.Spec.Restart = spec.RestartSpec{Policy: "always", Backoff: spec.Duration(time.Second), MaxBackoff: spec.Duration(time.Minute),
		Window: spec.Duration(time.Hour), MaxAttempts: &most}
	c.ledger.insts["web-1"] = i
	return c, i, now
}

// Where all containers start as one, main is all that is started and stopped.
func TestAsOneStartsMainAlone(t *testing.T) {
	core, instance, now := asOne()
	var fx wire.Effects
	core.life.proceed(now, instance, &fx)
	if len(fx.Actions) != 1 || fx.Actions[0].(StartContainer).Name != spec.MainContainer {
		t.Fatalf("the actions are %+v, want the start of main", fx.Actions)
	}
	core.life.started(now, instance, Started{ID: "web-1", Name: spec.MainContainer, Attempt: 1, At: now}, &fx)
	core.life.sideEnded(now, instance, SideEnded{ID: "web-1", Name: "log", Attempt: 1, Ends: 1, Exit: wire.Exit{Code: 3}}, &fx)
	fx = wire.Effects{}
	core.life.end(now, instance, &fx)
	var stopped []string
	for _, action := range fx.Actions {
		if stop, ok := action.(StopContainer); ok {
			stopped = append(stopped, stop.Name)
		}
	}
	if len(stopped) != 1 || stopped[0] != spec.MainContainer {
		t.Errorf("the actions are %+v, want the stop of main", fx.Actions)
	}
}

// An init container that fails is the reason of the instance, with its status, and what there is of the attempt is remembered.
func TestAsOneInitFails(t *testing.T) {
	core, instance, now := asOne()
	for attempt := 1; attempt <= 3; attempt++ {
		var fx wire.Effects
		instance.retryAt = time.Time{}
		core.life.proceed(now, instance, &fx)
		handle := json.RawMessage{'0' + byte(attempt)}
		core.life.exited(now, instance, Exited{ID: "web-1", Name: spec.MainContainer, Attempt: attempt, Exit: wire.Exit{Code: 3, At: now},
			Init: "check", Handle: handle}, &fx)
		if seen := instance.observation(); seen.Reason != "init container check ended with status 3" || seen.Exit == nil || seen.Exit.Code != 3 ||
			seen.Restarts != attempt || seen.Phase != skerry.PhaseBackOff {
			t.Errorf("after attempt %d the instance is %+v, want it to wait, with the status of its init container", attempt, seen)
		}
		discarded := 0
		for _, action := range fx.Actions {
			if _, ok := action.(Discard); ok {
				discarded++
			}
		}
		if want := max(attempt-2, 0); discarded != want || string(instance.main().Handle) != string(handle) {
			t.Errorf("after attempt %d there are %d to discard, and the handle is %s; want %d, %s", attempt, discarded, instance.main().Handle, want,
				handle)
		}
	}
}

// Each end of a side container is told once, counts, and makes a crash loop; none is when main is ending or has begun anew.
func TestAsOneSideContainerEnds(t *testing.T) {
	core, instance, now := asOne()
	var fx wire.Effects
	core.life.proceed(now, instance, &fx)
	core.life.started(now, instance, Started{ID: "web-1", Name: spec.MainContainer, Attempt: 1, At: now}, &fx)
	ended := func(ends, attempt int, since time.Time) (told int) {
		var fx wire.Effects
		end := SideEnded{ID: "web-1", Name: "log", Attempt: attempt, Ends: ends, Exit: wire.Exit{Code: 3}, Since: since}
		core.life.sideEnded(now, instance, end, &fx)
		for _, event := range fx.Events {
			if event.Reason == "SidecarExited" {
				told++
			}
		}
		return told
	}
	for _, step := range []struct{ ends, attempt, told, restarts int }{{1, 1, 1, 1}, {1, 1, 0, 1}, {3, 1, 1, 3}, {2, 1, 0, 3}, {9, 7, 0, 3}} {
		if told := ended(step.ends, step.attempt, time.Time{}); told != step.told || instance.Restarts != step.restarts {
			t.Errorf("after %d ends in attempt %d it was told %d times, with %d restarts; want %d and %d", step.ends, step.attempt, told,
				instance.Restarts, step.told, step.restarts)
		}
	}
	if seen := instance.observation(); !seen.Ready || seen.CrashLoop == "" || seen.Reason != "side container log ended with status 3" {
		t.Errorf("the instance is %+v, want it ready, in action crash loop, and the reason", seen)
	}
	ended(3, 1, now)
	if seen := instance.observation(); seen.Reason != "" {
		t.Errorf("the reason is %q while the side container runs, want none", seen.Reason)
	}
	now = instance.wake()
	core.life.due(now, instance, &fx)
	if seen := instance.observation(); seen.CrashLoop != "" {
		t.Errorf("the side container has run for long enough, and still there is %q", seen.CrashLoop)
	}
	instance.stop(spec.MainContainer, &fx)
	if told := ended(4, 1, time.Time{}); told != 0 {
		t.Errorf("an end while main is stopped was told %d times, want it to be no news", told)
	}
}

// A crash loop of a side container ends with the attempt of main that it was in: the server says nothing of one that does not end.
func TestAsOneCrashLoopEndsWithItsAttempt(t *testing.T) {
	core, instance, now := asOne()
	var fx wire.Effects
	core.life.proceed(now, instance, &fx)
	core.life.started(now, instance, Started{ID: "web-1", Name: spec.MainContainer, Attempt: 1, At: now}, &fx)
	core.life.sideEnded(now, instance, SideEnded{ID: "web-1", Name: "log", Attempt: 1, Ends: 9, Exit: wire.Exit{Code: 3}}, &fx)
	if seen := instance.observation(); seen.CrashLoop == "" {
		t.Fatalf("the instance is %+v, want it in a crash loop", seen)
	}
	core.life.exited(now, instance, Exited{ID: "web-1", Name: spec.MainContainer, Attempt: 1, Exit: wire.Exit{Code: 1, At: now}}, &fx)
	instance.retryAt = time.Time{}
	core.life.proceed(now, instance, &fx)
	core.life.started(now, instance, Started{ID: "web-1", Name: spec.MainContainer, Attempt: 2, At: now}, &fx)
	if seen := instance.observation(); seen.CrashLoop != "" {
		t.Errorf("in attempt 2, in which no side container has ended, there is the crash loop %q, want none", seen.CrashLoop)
	}
}

// What is said of a container that is no side container of the service changes nothing.
func TestAsOneEndOfNoSideContainer(t *testing.T) {
	core, instance, now := asOne()
	var fx wire.Effects
	core.life.proceed(now, instance, &fx)
	core.life.started(now, instance, Started{ID: "web-1", Name: spec.MainContainer, Attempt: 1, At: now}, &fx)
	for _, name := range []string{spec.MainContainer, "check", "proxy"} {
		core.life.sideEnded(now, instance, SideEnded{ID: "web-1", Name: name, Attempt: 1, Ends: 9, Exit: wire.Exit{Code: 3}}, &fx)
		if seen := instance.observation(); seen.Restarts != 0 || seen.CrashLoop != "" || seen.Reason != "" {
			t.Errorf("after ends of %s the instance is %+v, want no restart and no crash loop", name, seen)
		}
	}
}

// A count that falls, as when a kubelet has forgotten, counts anew from there; what runs then is no longer what ended.
func TestAsOneCountFalls(t *testing.T) {
	core, instance, now := asOne()
	var fx wire.Effects
	core.life.proceed(now, instance, &fx)
	core.life.started(now, instance, Started{ID: "web-1", Name: spec.MainContainer, Attempt: 1, At: now}, &fx)
	tell := func(ends int, since time.Time) {
		msg := SideEnded{ID: "web-1", Name: "log", Attempt: 1, Ends: ends, Exit: wire.Exit{Code: 3}, Since: since}
		core.life.sideEnded(now, instance, msg, &fx)
	}
	tell(3, time.Time{})
	tell(1, now)
	if seen := instance.observation(); seen.Restarts != 3 || seen.Reason != "" {
		t.Errorf("after a count that fell the instance is %+v, want 3 restarts and no reason: it runs", seen)
	}
	tell(2, time.Time{})
	if seen := instance.observation(); seen.Restarts != 4 || seen.Reason == "" {
		t.Errorf("after the next end the instance is %+v, want 4 restarts and the reason", seen)
	}
	tell(0, now)
	if seen := instance.observation(); seen.Restarts != 4 || seen.Reason != "" || seen.CrashLoop != "" {
		t.Errorf("when all ends are forgotten the instance is %+v, want 4 restarts, no reason and no crash loop", seen)
	}
}
