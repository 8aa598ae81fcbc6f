package core

import (
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// ranSteadily reports whether an instance that has ended had run for so long that it is in no crash loop.
func ranSteadily(now time.Time, i *inst, exit *wire.Exit) bool {
	started := exit.Message == "" || exit.StorageExceeded
	return started && !i.StartedAt.IsZero() && now.Sub(i.StartedAt) >= skerry.SteadyTime
}

// leastBackoff bounds how often an instance is started anew, whatever its manifest says: what that costs is the worker's.
func leastBackoff(restarts int) time.Duration {
	if restarts > 20 {
		return time.Second
	}
	return 100 * time.Millisecond
}

// sideExited has a side container start again after a back-off. It counts as a restart of the instance, which is as ready as main is; one
// that ends before main is ready may need it.
func (life *lifecycle) sideExited(now time.Time, i *inst, k *container, name string, exit wire.Exit, fx *wire.Effects) {
	if exit.Message == "" && !k.Since.IsZero() && now.Sub(k.Since) >= skerry.SteadyTime {
		k.Crashes = 0
	}
	k.Crashes++
	if i.Ready {
		i.Restarts++
	}
	k.Why = "side container " + name + " " + describe(exit)
	if i.Phase != skerry.PhaseBackOff && !i.Unhealthy { // else the reason is that of main
		i.Reason = k.Why
	}
	r := i.A.Spec.Restart
	k.retryAt = now.Add(max(wait(k.Crashes, time.Duration(r.Backoff), time.Duration(r.MaxBackoff)), leastBackoff(k.Crashes)))
	life.ledger.event(now, i, wire.EventWarning, "SidecarExited", k.Why, fx)
	life.proceed(now, i, fx)
}

// sideEnded takes up how often a side container has ended that the server starts again by itself.
func (life *lifecycle) sideEnded(now time.Time, instance *inst, msg SideEnded, fx *wire.Effects) {
	main := instance.main()
	ours := slices.ContainsFunc(instance.A.Spec.Sidecars, func(s spec.SideContainer) bool { return s.Name == msg.Name })
	if !ours || msg.Attempt != main.Attempt || main.stop || instance.Ending || instance.halted() {
		return
	}
	side := instance.container(msg.Name)
	if side.Attempt != msg.Attempt { // it began anew with main
		*side = container{Attempt: msg.Attempt}
	}
	if msg.Ends == side.Ends && msg.Since.Equal(side.Since) {
		return
	}
	defer life.ledger.save(instance, fx)
	if msg.Ends < side.Ends { // the server has forgotten some, and counts on from there
		side.Ends = msg.Ends
		if msg.Ends == 0 {
			side.Crashes = 0
		}
	}
	side.Since = msg.Since
	if more := msg.Ends - side.Ends; more > 0 {
		if msg.Ran >= skerry.SteadyTime {
			side.Crashes = 0
		}
		side.Ends, side.Crashes = msg.Ends, side.Crashes+more
		if instance.Ready {
			instance.Restarts += more
		}
		side.Why = "side container " + msg.Name + " " + describe(msg.Exit)
		if !instance.Unhealthy {
			instance.Reason = side.Why
		}
		if msg.Exit.OOMKilled {
			life.ledger.event(now, instance, wire.EventWarning, "OOMKilled",
				"container "+msg.Name+" used more memory than its limit and was killed", fx)
		}
		life.ledger.event(now, instance, wire.EventWarning, "SidecarExited", side.Why, fx)
	}
	if !msg.Since.IsZero() && instance.Reason == side.Why {
		instance.Reason = ""
	}
}

// looping gives the containers that were restarted so often that they are in a crash loop, each with its start; zero: it does not run.
func looping(i *inst) map[string]time.Time {
	out := map[string]time.Time{}
	for name, k := range i.Containers {
		if k.Crashes < skerry.CrashLoops || i.Ending {
			continue
		}
		if main := i.Containers[spec.MainContainer]; k.Ends > 0 && main != nil && k.Attempt != main.Attempt {
			continue // it began anew with main, and has not ended since
		}
		switch {
		case name != spec.MainContainer && (k.Running || k.Ends > 0):
			out[name] = k.Since
		case name == spec.MainContainer && k.Running && i.Phase == skerry.PhaseRunning:
			out[name] = i.StartedAt
		default:
			out[name] = time.Time{}
		}
	}
	return out
}

// steadyAt is when the first container that runs after a crash loop has run for long enough; zero: none is in one, or none runs.
func steadyAt(i *inst) (first time.Time) {
	for _, from := range looping(i) {
		if at := from.Add(skerry.SteadyTime); !from.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// settle ends the crash loops of the containers that have run for long enough.
func settle(i *inst, now time.Time) {
	for name, from := range looping(i) {
		if !from.IsZero() && !from.Add(skerry.SteadyTime).After(now) {
			i.Containers[name].Crashes = 0
		}
	}
}

// crashLoop tells of a crash loop, or gives "".
func crashLoop(i *inst) string {
	loops := looping(i)
	if _, ok := loops[spec.MainContainer]; ok {
		why := i.Reason
		if i.Exit != nil && (why == "" || i.Phase == skerry.PhaseRunning) {
			why = describe(*i.Exit)
		}
		return crashText(i.main(), why)
	}
	for _, name := range i.names() {
		if _, ok := loops[name]; ok {
			return crashText(i.Containers[name], i.Containers[name].Why)
		}
	}
	return ""
}

func crashText(k *container, why string) string {
	return fmt.Sprintf("restarted %d times without running for %s: %s", k.Crashes, skerry.SteadyTime, why)
}
