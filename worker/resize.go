//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// limitsOf is what a driver is told of a container's resources.
func limitsOf(r spec.Resources) runtime.Resources {
	out := runtime.Resources{CPU: r.MostCPU(), CPURequest: r.CPU, Memory: r.MostMemory(), Pids: int64(r.Pids), HugePages: r.HugePages,
		BandwidthIn: r.BandwidthIn, BandwidthOut: r.BandwidthOut}
	if r.Memory < out.Memory {
		out.MemoryLow = r.Memory
	}
	return out
}

// setLimits gives all containers other limits, or none of them.
func (s *Server) setLimits(ctx context.Context, a core.SetLimits) {
	m := core.Resized{SetLimits: a}
	var done []core.Limited
	for _, l := range a.Containers {
		err := s.limit(ctx, l, &a.Spec, a.Level)
		if err == nil {
			done = append(done, l)
			continue
		}
		m.Err = err.Error()
		_, m.InUse = errors.AsType[*runtime.InUse](err)
		for _, l := range slices.Backward(done) {
			if err := s.limit(ctx, l, &a.Was, a.Level); err != nil {
				m.Err += "; " + err.Error()
				m.Unsure = true
			}
		}
		break
	}
	if ctx.Err() == nil { // else the next life looks after it
		s.Post(m)
	}
}

// limit gives one container its limits. What has ended needs none.
func (s *Server) limit(ctx context.Context, l core.Limited, svc *spec.ServiceSpec, level spec.SecurityLevel) error {
	d, h, err := s.runtimes.of(l.Handle)
	if err != nil {
		return err
	}
	r, ok := d.(runtime.Resizer)
	if !ok {
		return &runtime.Unsupported{Ability: runtime.AbilityResize, Driver: d.Name(), Reason: "it sets limits only when it starts a task"}
	}
	_, res := containerOf(svc, l.Name)
	err = r.Resize(ctx, h, limitsOf(level.Enforced(res, d.Name())))
	if err == nil || errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	if st, e := d.Status(ctx, h); e == nil && st.State == runtime.StateExited || errors.Is(e, runtime.ErrNotFound) {
		return nil
	}
	if _, ok := errors.AsType[*runtime.InUse](err); ok && l.Name == spec.MainContainer {
		return err
	}
	return fmt.Errorf("container %s: %w", l.Name, err)
}
