package ctl

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// startTime is how long a program without a readiness probe must have run for a command to call it ready, or a job begun. Whether it starts
// at all is seen by then; nothing else waits for it.
const startTime = 2 * time.Second

// logTail is how many of the last lines of a program that ends again and again a command shows.
const logTail = 10

// note keeps track of since when an instance has been ready, by the clock here, and of its restarts.
func (p *progress) note(i *wire.Instance) {
	t := p.seen[i.ID]
	if t == nil {
		t = &watched{restarts: i.Restarts}
		p.seen[i.ID] = t
	}
	if i.Restarts > t.restarts {
		t.restarts, t.again, t.ready = i.Restarts, true, time.Time{}
	}
	switch ready := skerry.HasCondition(i.Conditions, skerry.Ready); {
	case !ready:
		t.ready, t.started = time.Time{}, true
	case t.ready.IsZero():
		t.ready = p.now()
	}
}

// watched is what a command has seen of an instance.
type watched struct {
	ready    time.Time // since when; zero: it is not
	restarts int
	again    bool // it was restarted meanwhile
	started  bool // it was seen before it was ready
}

// steadyAt is when everything has run for long enough to be called ready: programs without a probe, and those that were
// restarted meanwhile.
func (p *progress) steadyAt() (at time.Time) {
	for _, app := range p.keys {
		shown := p.apps[app]
		if shown == nil || shown.Status == view.AppRolledBack {
			continue
		}
		for _, i := range p.insts {
			t := p.seen[i.ID]
			if i.Service.App != app || i.Stopping || t == nil || t.ready.IsZero() || i.State != skerry.Running {
				continue
			}
			var need time.Duration
			for _, s := range shown.Services {
				if s.Name == i.Service.Service && s.Mode != spec.ModeCron && !s.Probed && i.StartedAt.Add(startTime).After(p.now()) {
					need = startTime
				}
			}
			switch {
			case t.again: // a side container, perhaps, beside a program that has run for long
				need = skerry.SteadyTime
			case i.StartedAt.IsZero() && t.started: // at a root, the copies of a site
				need = startTime
			}
			if from := t.ready.Add(need); need > 0 && from.After(at) {
				at = from
			}
		}
	}
	return at
}

// crashes finds an instance of an application that ends again and again soon after its start, and is not about to be taken back.
func (p *progress) crashes(k skerry.AppKey) *wire.Instance {
	v := p.apps[k]
	if v == nil {
		return nil
	}
	for _, i := range p.instances() {
		if i.Service.App != k || i.Stopping || !skerry.HasCondition(i.Conditions, skerry.CrashLoop) {
			continue
		}
		for _, s := range v.Services {
			if r := s.Rollout; s.Name == i.Service.Service && (r == nil || r.Failing || r.Phase == view.RolloutDone ||
				r.Phase == view.RolloutPaused) {
				return i
			}
		}
	}
	return nil
}

// crashReason says why an instance crash-loops.
func crashReason(i *wire.Instance) string {
	for _, c := range i.Conditions {
		if c.Type == skerry.CrashLoop {
			return c.Reason
		}
	}
	return ""
}

// crashed is how a command ends whose application has an instance that crash-loops.
func crashed(k skerry.AppKey, i *wire.Instance) error {
	why := crashReason(i)
	return skerry.Errorf(skerry.CodeUnavailable, "service %s/%s crash-loops: instance %s was %s", k.Name, i.Service.Service, i.ID, why).
		WithHint("`skerry logs %s%s --previous` shows the output of its last run; Skerry keeps trying", i.ID, beside(why))
}

// beside is the flag that names the init or side container that a reason is about, or "".
func beside(why string) string {
	for _, kind := range []string{"init container ", "side container "} {
		if _, rest, ok := strings.Cut(why, kind); ok {
			name, _, _ := strings.Cut(rest, " ")
			return " -c " + name
		}
	}
	return ""
}

// blocked reports whether an update waits for another one that was rolled back, beside instances that are ready: nothing goes on until
// somebody acts.
func blocked(v *view.AppView, s *view.ServiceView) bool {
	if s.Rollout == nil || s.Rollout.Waits == "" || s.Ready < s.Want {
		return false
	}
	return slices.ContainsFunc(v.Services, func(o view.ServiceView) bool {
		return s.Rollout.Waits == view.WaitsForRefused(o.Name) && o.Rollout != nil && o.Rollout.Phase == view.RolloutDone &&
			o.Ready >= o.Want
	})
}

// lastLines adds the last lines of an instance's log to an error, as far as they can be had.
func lastLines(ctx context.Context, c *api.Client, i *wire.Instance, err error) error {
	e := skerry.AsError(err)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, previous := range []bool{false, true} { // the present run may have written nothing yet
		var lines []skerry.Problem
		o := api.LogOptions{Tail: logTail, Previous: previous, Container: strings.TrimPrefix(beside(crashReason(i)), " -c ")}
		logErr := c.Logs(ctx, i.ID, o, func(l api.LogLine) error {
			lines = append(lines, skerry.Problem{Path: "log", Message: clean(l.Line)})
			return nil
		})
		if logErr == nil && len(lines) > 0 {
			out := *e
			out.Problems = append(out.Problems, lines...)
			return &out
		}
	}
	return err
}

// watch follows the applications until they are as they should be, or never will be, which is errDone.
func (p *progress) watch(ctx context.Context, client *api.Client, filter api.WatchFilter, show func()) error {
	for {
		wctx, cancel := context.WithCancelCause(ctx)
		var timer *time.Timer
		synced := false
		err := client.Watch(wctx, filter, func(msg api.WatchMessage) error {
			p.take(msg)
			if timer != nil {
				timer.Stop()
				timer = nil
			}
			switch msg.Type {
			case api.WatchMissed:
				synced = false
			case api.WatchSynced:
				synced = true
			}
			if !synced {
				return nil
			}
			show()
			if !p.allDone() {
				return nil
			}
			wait := p.steadyAt().Sub(p.now())
			if p.culprit() != nil || wait <= 0 {
				return errDone
			}
			timer = time.AfterFunc(wait, func() { cancel(errDone) })
			return nil
		})
		if timer != nil {
			timer.Stop()
		}
		cause := context.Cause(wctx)
		cancel(nil)
		if ctx.Err() != nil || !errors.Is(cause, errDone) || errors.Is(err, errDone) {
			return err
		}
		if p.allDone() {
			return errDone
		}
		p.take(api.WatchMessage{Type: api.WatchMissed}) // something came at the last moment
	}
}
