//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// lateEnd is how long after a hook that failed its container may be seen to have ended, and to have taken the hook along.
const lateEnd = 250 * time.Millisecond

// preStop does what a service wants done before a container is asked to end. It gives what is left of its grace, and what went wrong. A
// container that ends meanwhile ends the hook.
func preStop(ctx context.Context, server *Server, driver runtime.Driver, handle runtime.Handle,
	stop core.StopContainer) (left time.Duration, err error) {
	if stop.PreStop == nil || stop.Grace <= 0 {
		return stop.Grace, nil
	}
	begin := time.Now()
	hook, cancel := context.WithTimeout(ctx, stop.Grace)
	defer cancel()
	ended := endsWith(hook, cancel, driver, handle)
	if err = doHook(hook, server, stop.PreStop, core.ProbeOn{A: spec.Assignment{ID: stop.ID}, Address: stop.Address,
		Handle: stop.Handle}); err != nil {
		select {
		case <-ended:
		case <-hook.Done():
		case <-time.After(lateEnd):
		}
	}
	switch {
	case errors.Is(hook.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("preStop was not done within terminationGrace, %s", stop.Grace)
	case hook.Err() != nil: // it ended, or the agent does
		err = nil
	case err != nil:
		err = fmt.Errorf("preStop: %w", err)
	}
	cancel()
	<-ended
	return max(0, stop.Grace-time.Since(begin)), err
}

// postStart does what is to be done once a container runs. told is false where the container, and with it the hook, ended before, or the
// agent does: then nothing is told of it.
func postStart(ctx context.Context, server *Server, run core.RunHook) (done core.HookDone, told bool) {
	done = core.HookDone{ID: run.ID, Name: run.Name, Attempt: run.Attempt}
	driver, handle, err := server.runtimes.of(run.Handle)
	if err != nil {
		done.Err = err.Error()
		return done, true
	}
	hook, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := endsWith(hook, cancel, driver, handle)
	err = doHook(hook, server, &run.Hook, core.ProbeOn{A: spec.Assignment{ID: run.ID}, Address: run.Address, Handle: run.Handle})
	if err != nil {
		done.Err = err.Error()
		select {
		case <-ended:
		case <-time.After(lateEnd):
		}
	}
	told = hook.Err() == nil
	cancel()
	<-ended
	return done, told
}

// endsWith has a hook end with its container, and closes ended once it does not wait for that any more.
func endsWith(hook context.Context, cancel context.CancelFunc, driver runtime.Driver, handle runtime.Handle) (ended chan struct{}) {
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := driver.Wait(hook, handle); err == nil || errors.Is(err, runtime.ErrNotFound) { // or was removed already
			cancel()
		}
	}()
	return ended
}

func doHook(ctx context.Context, server *Server, hook *spec.Hook, at core.ProbeOn) error {
	switch {
	case hook.Exec != nil:
		return server.prober.probeExec(ctx, hook.Exec, at)
	case hook.HTTP != nil:
		return server.prober.probeHTTP(ctx, hook.HTTP, at)
	default:
		timer := time.NewTimer(time.Duration(hook.Sleep))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return nil
	}
}
