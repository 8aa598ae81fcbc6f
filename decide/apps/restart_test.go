package apps

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Where nothing would restart, the controller refuses: whoever asks gets the reason, and no event says that it was asked for.
func TestRestartOfNothingIsRefused(t *testing.T) {
	called := func(name string, mode spec.Mode, replicas int) func(*Apply) {
		return func(a *Apply) {
			s := a.App.Spec.Services[0]
			s.Name, s.Mode, s.Replicas, s.Ports = name, mode, &replicas, nil
			if mode != spec.ModeService {
				s.Replicas = nil
			}
			if mode == spec.ModePerDevice {
				s.Devices = []spec.DeviceRequest{{Class: "serial"}}
			}
			if mode == spec.ModeCron {
				s.Cron = &spec.CronSpec{Schedule: "0 3 * * *", Concurrency: "forbid"}
			}
			a.App.Spec.Services = append(a.App.Spec.Services, s)
		}
	}
	for name, c := range map[string]struct {
		apply  Apply
		target string
		pause  bool // and then comes another version
		refuse string
	}{
		"it runs":             {apply: apply(1, called("idle", spec.ModeService, 0))},
		"a job":               {apply: apply(1, called("sum", spec.ModeJob, 0)), target: "sum"},
		"not deployed":        {apply: apply(1, func(a *Apply) { a.Register = true }), refuse: "is not deployed"},
		"a schedule":          {apply: apply(1, called("nightly", spec.ModeCron, 0)), target: "nightly", refuse: "runs by a schedule"},
		"no instances":        {apply: apply(1, called("idle", spec.ModeService, 0)), target: "idle", refuse: "has no instances"},
		"nothing of it":       {apply: apply(0, called("nightly", spec.ModeCron, 0)), refuse: "nothing restarts"},
		"no workers":          {apply: apply(1, called("each", spec.ModePerWorker, 0)), target: "each", refuse: "has no instances"},
		"no devices":          {apply: apply(1, called("cams", spec.ModePerDevice, 0)), target: "cams", refuse: "has no instances"},
		"paused":              {apply: apply(2), pause: true, target: "web", refuse: "paused"},
		"paused, of two":      {apply: apply(2, called("sum", spec.ModeJob, 0)), pause: true},
		"paused, one of them": {apply: apply(2, called("sum", spec.ModeJob, 0)), pause: true, target: "web", refuse: "paused"},
	} {
		s := newSite(t)
		s.least = -1
		s.tell(c.apply)
		if !c.apply.Register {
			s.run(10 * time.Second)
		}
		if c.pause {
			s.tell(Pause{Service: web})
			next := c.apply
			next.App = cloneManifest(next.App)
			next.App.Spec.Services[0].Image = "web:2"
			s.tell(next)
			s.run(5 * time.Second)
		}
		before := s.c.App(shop).UpdatedAt
		s.now = s.now.Add(time.Second)
		fx, _ := s.c.Handle(s.now, Restart{Service: skerry.ServiceKey{App: shop, Service: c.target}})
		s.take(fx)
		asked := s.heard("RestartAsked") > 0
		switch {
		case c.refuse == "" && (fx.Err != nil || !asked):
			t.Errorf("%s: got %v, want that it restarts", name, fx.Err)
		case c.refuse != "" && (fx.Err == nil || skerry.AsError(fx.Err).Code != skerry.CodeConflict ||
			skerry.AsError(fx.Err).Hint == "" || !strings.Contains(fx.Err.Error(), c.refuse)):
			t.Errorf("%s: got %v, want a conflict with %q", name, fx.Err, c.refuse)
		case c.refuse != "" && (asked || len(fx.Writes) > 0 || s.c.App(shop).UpdatedAt != before):
			t.Errorf("%s: it was refused and has %d writes, an event %v, and time %v in place of %v",
				name, len(fx.Writes), asked, s.c.App(shop).UpdatedAt, before)
		}
	}
}

// Looking images up again updates a service that has nothing to restart; where they mean what they meant, nothing happens, and it says so.
func TestRestartWithPullOfNothing(t *testing.T) {
	s := newSite(t)
	s.least = -1
	s.tell(apply(0, means("a")))
	pull := Restart{Service: web, Pull: &s.c.App(shop).Manifest, Digests: pinned("a")}
	if fx, _ := s.c.Handle(s.now, pull); fx.Err == nil || !strings.Contains(fx.Err.Error(), "has no instances") {
		t.Errorf("the same content and no instances: got %v, want a refusal", fx.Err)
	}
	pull.Digests = pinned("b")
	if r := s.tell(pull); len(r.Notes) != 1 {
		t.Errorf("other content: got notes %q, want the one that says so", r.Notes)
	}
}

// A job has no update that could be paused.
func TestPauseOfAJobIsRefused(t *testing.T) {
	c := controller(t, Quota{})
	do(t, c, apply(0, func(a *Apply) {
		a.App.Metadata.Name = "batch"
		a.App.Spec.Services[0].Replicas, a.App.Spec.Services[0].Mode = nil, spec.ModeJob
	}))
	job := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "batch"}, Service: "web"}
	refused(t, c, Pause{Service: job}, skerry.CodeInvalid, "no updates")
	refused(t, c, Resume{Service: job}, skerry.CodeInvalid, "no updates")
}
