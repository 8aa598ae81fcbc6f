package ctl

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/console"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

func TestProgress(t *testing.T) {
	key := skerry.AppKey{Namespace: "default", Name: "shop"}
	svc := skerry.ServiceKey{App: key, Service: "front"}
	inst := func(id string, s skerry.State) []*wire.Instance {
		return []*wire.Instance{{ID: skerry.InstanceID(id), Service: svc, State: s}}
	}
	ready := func(ids ...skerry.InstanceID) (list []*wire.Instance) {
		for _, id := range ids {
			list = append(list, &wire.Instance{ID: id, Service: svc, State: skerry.Running, Conditions: []skerry.Condition{{Type: skerry.Ready, Status: true}}})
		}
		return list
	}
	set := func(s ...view.ServiceView) *view.AppView {
		return &view.AppView{Key: key, Status: "Progressing", Services: s}
	}
	job := func(runs ...view.RunView) view.ServiceView {
		return view.ServiceView{Name: "front", Mode: spec.ModeJob, Want: 1, Runs: runs}
	}
	service := func(ready, upToDate, instances int) view.ServiceView {
		return view.ServiceView{Name: "front", Mode: spec.ModeService, Want: 2, Ready: ready, UpToDate: upToDate, Instances: instances}
	}
	during := func(phase string) view.ServiceView {
		s := service(2, 2, 2)
		s.Rollout = &view.RolloutView{Phase: phase}
		return s
	}
	for _, c := range []struct {
		name string
		app  *view.AppView
		inst []*wire.Instance
		want bool
	}{
		{"unknown", nil, nil, false},
		{"nothing yet", set(service(0, 0, 0)), nil, false},
		{"one of two", set(service(1, 2, 2)), nil, false},
		{"the old one still there", set(service(2, 2, 3)), nil, false},
		{"all ready, and not yet shown", set(service(2, 2, 2)), ready("a"), false},
		{"all ready", set(service(2, 2, 2)), ready("a", "b"), true},
		{"all ready, and watched as canaries", set(during(view.RolloutCanary)), ready("a", "b"), false},
		{"all ready, and the pause of a wave not over", set(during(view.RolloutWaves)), ready("a", "b"), false},
		{"all ready, and going back", set(during(view.RolloutBack)), ready("a", "b"), false},
		{"all ready, the update has ended", set(during(view.RolloutDone)), ready("a", "b"), true},
		{"scaled to zero", set(view.ServiceView{Name: "front", Mode: spec.ModeService}), nil, true},
		{"copies that ended a moment ago", set(view.ServiceView{Name: "front", Mode: spec.ModePerWorker, Want: 2, Ready: 2,
			UpToDate: 2, Instances: 2}), inst("a", skerry.Running), false},
		{"cron waits for its time", set(view.ServiceView{Name: "front", Mode: spec.ModeCron, Want: 1}), nil, true},
		{"job not begun", set(job()), nil, false},
		{"job pending", set(job(view.RunView{ID: "1"})), inst("a", skerry.Requested), false},
		{"job runs", set(job(view.RunView{ID: "1"})), inst("a", skerry.Running), true},
		{"job done", set(job(view.RunView{ID: "1", Result: "Succeeded"})), nil, true},
		{"job done before, and its new version waits", set(view.ServiceView{Name: "front", Mode: spec.ModeJob, Pending: true,
			Runs: []view.RunView{{ID: "1", Result: "Succeeded"}}}), nil, false},
	} {
		p := newProgress([]skerry.AppKey{key})
		if c.app != nil {
			p.take(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchApp, App: c.app})
		}
		for _, i := range c.inst {
			p.take(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchInstance, Instance: i})
		}
		if got := p.allDone(); got != c.want {
			t.Errorf("%s: done %v", c.name, got)
		}
	}
}

// TestJobsAreSaidToHaveBegun and no more than that: what ran for an earlier run, failed or was replaced says nothing of the present one, a
// program that fails at once has not begun, and none of them is ready.
func TestJobsAreSaidToHaveBegun(t *testing.T) {
	key := skerry.AppKey{Namespace: "default", Name: "report"}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	p := newProgress([]skerry.AppKey{key})
	p.now = func() time.Time { return now }
	began := now
	job := func(result string) view.ServiceView {
		return view.ServiceView{Name: "sum", Mode: spec.ModeJob, Want: 1, Runs: []view.RunView{
			{ID: "1", StartedAt: began.Add(-time.Hour), Result: "Succeeded"}, {ID: "2", StartedAt: began, Result: result}}}
	}
	show := func(status string, services ...view.ServiceView) {
		p.take(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchApp, App: &view.AppView{Key: key, Status: status, Services: services}})
	}
	inst := func(id string, created time.Time, state skerry.State, ready bool) {
		of := skerry.ServiceKey{App: key, Service: "sum"}
		p.take(api.WatchMessage{Type: api.WatchSet, Instance: &wire.Instance{ID: skerry.InstanceID(id), Service: of, State: state,
			CreatedAt: created, StartedAt: now, Conditions: []skerry.Condition{{Type: skerry.Ready, Status: ready}}}})
	}
	show("Progressing", job(""))
	if inst("sum-a", began.Add(-time.Hour), skerry.Terminated, false); p.allDone() {
		t.Error("an earlier run is taken for the present one")
	}
	inst("sum-b", began, skerry.Running, true)
	if !p.allDone() || p.steadyAt() != now.Add(startTime) {
		t.Errorf("done %v: a job that runs counts at %s", p.allDone(), p.steadyAt())
	}
	if inst("sum-b", began, skerry.Failed, false); p.allDone() {
		t.Error("an instance that failed counts as begun")
	}
	if err := (&app{}).late(p, time.Minute); !strings.Contains(err.Error(), "sum-b: Failed") || strings.Contains(err.Error(), "sum-a") {
		t.Errorf("late: %v", err)
	}
	inst("sum-c", began.Add(time.Second), skerry.Running, true)
	now = now.Add(startTime)
	a := &app{space: "default"}
	if at := p.steadyAt(); !p.allDone() || at.After(now) || p.failed() != nil {
		t.Errorf("done %v, steady at %s: %v", p.allDone(), at, p.failed())
	}
	if got := a.outcome(p.apps[key]); got != "has begun: job sum runs; `skerry wait report --for completed` waits for its end" {
		t.Error(got)
	}
	front := view.ServiceView{Name: "front", Mode: spec.ModeService, Want: 1, Ready: 1, UpToDate: 1, Instances: 1}
	if show("Progressing", front, job("")); !strings.HasPrefix(a.outcome(p.apps[key]), "serves, and job sum has begun; `skerry wait") {
		t.Error(a.outcome(p.apps[key]))
	}
	if show("Completed", job("Succeeded")); !p.allDone() || p.failed() != nil || a.outcome(p.apps[key]) != "is completed" {
		t.Errorf("done %v: %v %s", p.allDone(), p.failed(), a.outcome(p.apps[key]))
	}
	show("Degraded", job("Failed"))
	if err := p.failed(); !p.allDone() || err == nil || !strings.Contains(err.Error(), "job report/sum failed") {
		t.Errorf("done %v: %v", p.allDone(), err)
	}
}

// TestRolledBackIsAnError follows an application that runs again as before, because a version failed.
func TestRolledBackIsAnError(t *testing.T) {
	key := skerry.AppKey{Namespace: "default", Name: "shop"}
	p := newProgress([]skerry.AppKey{key})
	v := &view.AppView{Key: key, Status: view.AppRolledBack, Services: []view.ServiceView{{Name: "front", Mode: spec.ModeService,
		Rollout: &view.RolloutView{Phase: view.RolloutDone, Refused: &view.RefusedView{Revision: "r2", Reason: "failed 3 times: exit code 7"}}}}}
	p.take(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchApp, App: v})
	if !p.allDone() {
		t.Error("it is still waited for")
	}
	if err := p.failed(); err == nil || !strings.Contains(err.Error(), "revision r2 failed: failed 3 times: exit code 7") {
		t.Errorf("a version was taken back: %v", err)
	}
	p.past = map[string]bool{"r2": true} // before the command
	if err := p.failed(); err != nil {
		t.Errorf("a version had been taken back before: %v", err)
	}
}

// An update that waits for another one of the application, which was rolled back, is not waited for.
func TestUpdateBehindARolledBackOne(t *testing.T) {
	key := skerry.AppKey{Namespace: "default", Name: "shop"}
	show := func(phase string) (*progress, *view.AppView) {
		p := newProgress([]skerry.AppKey{key})
		v := &view.AppView{Key: key, Status: "Degraded", Services: []view.ServiceView{
			{Name: "app", Mode: spec.ModeService, Want: 1, Ready: 1, Instances: 1,
				Rollout: &view.RolloutView{Phase: view.RolloutWaves, Waits: "service db goes first, and was rolled back"}},
			{Name: "db", Mode: spec.ModeService, Rollout: &view.RolloutView{Phase: phase,
				Refused: &view.RefusedView{Revision: "r2", Reason: "failed 3 times: exit code 7"}}}}}
		p.take(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchApp, App: v})
		p.take(api.WatchMessage{Type: api.WatchSet, Instance: &wire.Instance{ID: "app-a", State: skerry.Running,
			Service: skerry.ServiceKey{App: key, Service: "app"}, Conditions: []skerry.Condition{{Type: skerry.Ready, Status: true}}}})
		return p, v
	}
	if p, _ := show(view.RolloutBack); p.allDone() {
		t.Error("the rollback is not waited for")
	}
	p, v := show(view.RolloutDone)
	err := p.failed()
	if !p.allDone() || err == nil || !strings.Contains(err.Error(), "service shop/db was rolled back: revision r2 failed") {
		t.Errorf("done %v: %v", p.allDone(), err)
	}
	done, taken := (&app{}).showRollouts(io.Discard, v, "", map[string]string{})
	if !done || !strings.Contains(taken, "service db: revision r2 was rolled back") {
		t.Errorf("rollout status: done %v: %q", done, taken)
	}
	done, taken = (&app{}).showRollouts(io.Discard, v, "app", map[string]string{})
	if !done || taken != "service app: its update waits: service db goes first, and was rolled back" {
		t.Errorf("rollout status of what waits: done %v: %q", done, taken)
	}
	// What else an update waits for comes to an end, and so do instances that start, as after a command that scales.
	s := &v.Services[0]
	for _, waits := range []string{"service cache goes first", "a probe of the site is not over"} {
		if s.Rollout.Waits = waits; p.allDone() {
			t.Errorf("not waited for: %s", waits)
		}
	}
	s.Rollout.Waits = "service db goes first, and was rolled back"
	if s.Want = 2; p.allDone() {
		t.Error("an instance that starts is not waited for")
	}
	// What is late names the updates that have not ended.
	v.Services[0].Rollout.Phase, v.Services[0].Rollout.Waits, v.Services[0].Rollout.Paused = view.RolloutPaused, "", "ann"
	var b bytes.Buffer
	if console.PrintError(&b, (&app{}).late(p, time.Second)); !strings.Contains(b.String(), "shop/app: 0 of 2 run revision ; paused by ann") {
		t.Error(b.String())
	}
}

// The copies of a site, of which a root does not know when they started, are believed after a moment; a side container is the culprit.
func TestVerdictOfCopiesAndSideContainers(t *testing.T) {
	key := skerry.AppKey{Namespace: "default", Name: "shop"}
	p := newProgress([]skerry.AppKey{key})
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	p.now = func() time.Time { return now }
	v := &view.AppView{Key: key, Status: "Ready", Services: []view.ServiceView{{Name: "front", Mode: spec.ModePerWorker}}}
	p.take(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchApp, App: v})
	inst := func(restarts int, ready bool, more ...skerry.Condition) *wire.Instance {
		i := &wire.Instance{ID: "front-a", Service: skerry.ServiceKey{App: key, Service: "front"}, State: skerry.Running, Restarts: restarts,
			Conditions: append(more, skerry.Condition{Type: skerry.Ready, Status: ready})}
		p.take(api.WatchMessage{Type: api.WatchSet, Instance: i})
		return i
	}
	if inst(0, true); !p.steadyAt().IsZero() {
		t.Errorf("copies that ran before the command are waited for until %s", p.steadyAt())
	}
	inst(0, false)
	if inst(0, true); p.steadyAt() != now.Add(startTime) {
		t.Errorf("new copies count at %s", p.steadyAt())
	}
	now = now.Add(time.Minute)
	if inst(1, true); p.steadyAt() != now.Add(skerry.SteadyTime) {
		t.Errorf("those that were restarted count at %s", p.steadyAt())
	}
	err := crashed(key, inst(3, true, skerry.Condition{Type: skerry.CrashLoop, Status: true,
		Reason: "restarted 3 times without running for 10s: side container log ended with status 3"}))
	if hint := skerry.AsError(err).Hint; !strings.HasPrefix(hint, "`skerry logs front-a -c log --previous`") {
		t.Error(hint)
	}
}

func TestLate(t *testing.T) {
	key := skerry.AppKey{Namespace: "default", Name: "shop"}
	svc := skerry.ServiceKey{App: key, Service: "front"}
	p := newProgress([]skerry.AppKey{key})
	why := wire.Reason{What: "memory", Count: 2, Text: "needs 9Gi of memory", Hint: "ask for less"}
	p.take(api.WatchMessage{Type: api.WatchSet, Instance: &wire.Instance{ID: "front-a", Service: svc, State: skerry.Requested, Why: []wire.Reason{why, why}}})
	p.take(api.WatchMessage{Type: api.WatchSet, Instance: &wire.Instance{ID: "front-b", Service: svc, State: skerry.Running, Phase: skerry.PhaseBackOff, Reason: "ended with status 1"}})
	p.take(api.WatchMessage{Type: api.WatchSet, Instance: &wire.Instance{ID: "other", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "x", Name: "y"}}, State: skerry.Requested}})
	a := &app{}
	err := a.late(p, 10*time.Second)
	var exit *console.Exit
	if !errors.As(err, &exit) || exit.Code != console.ExitNotPlaced {
		t.Fatalf("got %v", err)
	}
	var b bytes.Buffer
	console.PrintError(&b, err)
	want := "error: accepted, but after 10s 1 of 2 instances are not placed\n  front-a: needs 9Gi of memory (2 times) (ask for less)\nhint: Skerry keeps trying; `skerry explain INSTANCE` shows why\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	p.take(api.WatchMessage{Type: api.WatchDeleted, ID: "front-a"})
	err = a.late(p, 10*time.Second)
	if errors.As(err, &exit) && exit.Code == console.ExitNotPlaced ||
		!strings.Contains(err.Error(), "front-b: Running, BackOff, ended with status 1") {
		t.Errorf("got %v", err)
	}
}

// Off a terminal the view is a line for each change, without control characters.
func TestViewLines(t *testing.T) {
	key := skerry.AppKey{Namespace: "default", Name: "shop"}
	p := newProgress([]skerry.AppKey{key})
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	p.now = func() time.Time { return now }
	var b bytes.Buffer
	v := (&app{}).newView(&b, p)
	step := func(after time.Duration, i wire.Instance) {
		now = now.Add(after)
		i.ID, i.Service = "front-a", skerry.ServiceKey{App: key, Service: "front"}
		p.take(api.WatchMessage{Type: api.WatchSet, Instance: &i})
		v.show(false)
	}
	step(0, wire.Instance{State: skerry.Requested})
	step(time.Second, wire.Instance{State: skerry.Requested})
	step(time.Second, wire.Instance{State: skerry.WorkerScheduled, Phase: skerry.PhaseFetching, Worker: "w1"})
	step(500*time.Millisecond, wire.Instance{State: skerry.Running, Phase: skerry.PhaseRunning, Worker: "w1", Conditions: []skerry.Condition{{Type: skerry.Ready, Status: true}}})
	want := "   0.0s  front-a  Requested\n   2.0s  front-a  WorkerScheduled, Fetching, on w1\n   2.5s  front-a  Running, Running, ready, on w1\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// TestCrashLoopIsAnError follows a new application whose program ends again and again, and is ready between.
func TestCrashLoopIsAnError(t *testing.T) {
	key := skerry.AppKey{Namespace: "default", Name: "shop"}
	p := newProgress([]skerry.AppKey{key})
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	p.now = func() time.Time { return now }
	show := func(loops int, phase string, failing bool) {
		p.take(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchApp, App: &view.AppView{Key: key, Status: "Ready", Services: []view.ServiceView{{Name: "front",
			Mode: spec.ModeService, Want: 1, Ready: 1, UpToDate: 1, Instances: 1, CrashLoops: loops, Rollout: &view.RolloutView{Phase: phase, Failing: failing}}}}})
	}
	inst := func(restarts int, conditions ...skerry.Condition) {
		conditions = append(conditions, skerry.Condition{Type: skerry.Ready, Status: true})
		p.take(api.WatchMessage{Type: api.WatchSet, Instance: &wire.Instance{ID: "front-a", Service: skerry.ServiceKey{App: key, Service: "front"}, State: skerry.Running,
			Restarts: restarts, StartedAt: now, Conditions: conditions}})
	}
	show(0, view.RolloutDone, false)
	inst(0)
	if !p.allDone() || p.steadyAt() != now.Add(startTime) {
		t.Errorf("a program without a probe counts at %s", p.steadyAt())
	}
	now = now.Add(time.Second)
	inst(1)
	if p.steadyAt() != now.Add(skerry.SteadyTime) {
		t.Errorf("one that was restarted counts at %s", p.steadyAt())
	}
	loop := skerry.Condition{Type: skerry.CrashLoop, Status: true, Reason: "restarted 3 times without running for 10s: ended with status 7"}
	inst(3, loop)
	show(1, view.RolloutDone, false)
	if err := p.failed(); !p.allDone() || p.culprit() == nil || err == nil || err.Error() !=
		"service shop/front crash-loops: instance front-a was restarted 3 times without running for 10s: ended with status 7" {
		t.Errorf("%v", err)
	}
	// During an update that is about to be taken back there is more to come; where it stays there is not.
	if show(1, view.RolloutWaves, false); p.allDone() || p.culprit() != nil {
		t.Error("an update that is watched is given up")
	}
	if show(1, view.RolloutWaves, true); !p.allDone() || p.failed() == nil {
		t.Error("an update that has failed is waited for")
	}
}
