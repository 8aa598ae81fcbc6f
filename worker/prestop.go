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

// preStop does what a service wants done before a container is asked to end, and gives what is left of its grace. A container that ends
// meanwhile ends the hook.
func (s *Server) preStop(ctx context.Context, d runtime.Driver, h runtime.Handle, stop core.StopContainer) time.Duration {
	if stop.PreStop == nil || stop.Grace <= 0 {
		return stop.Grace
	}
	begin := time.Now()
	hook, cancel := context.WithTimeout(ctx, stop.Grace)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := d.Wait(hook, h); err == nil {
			cancel()
		}
	}()
	err := s.runHook(hook, stop)
	late := errors.Is(hook.Err(), context.DeadlineExceeded)
	gone := hook.Err() != nil && !late
	cancel()
	<-ended
	switch {
	case gone:
	case late:
		err = fmt.Errorf("preStop was not done within terminationGrace, %s", stop.Grace)
	case err != nil:
		err = fmt.Errorf("preStop: %w", err)
	}
	if err != nil && !gone {
		s.Post(core.HookFailed{ID: stop.ID, Name: stop.Name, Text: err.Error()})
	}
	return max(0, stop.Grace-time.Since(begin))
}

func (s *Server) runHook(ctx context.Context, stop core.StopContainer) error {
	at := core.ProbeOn{A: spec.Assignment{ID: stop.ID}, Address: stop.Address, Handle: stop.Handle}
	switch hook := stop.PreStop; {
	case hook.Exec != nil:
		return s.probeExec(ctx, hook.Exec, at)
	case hook.HTTP != nil:
		return s.probeHTTP(ctx, hook.HTTP, at)
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
