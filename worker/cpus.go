//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"skerry.dev/skerry/internal/topology"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// cpusLabel is the label of a task that has processors of its own: which. So the next life of the agent knows them too.
const cpusLabel = "skerry.dev/cpus"

// processors gives instances processors of their own, and keeps all others off them.
type processors struct {
	drivers func() []runtime.Driver
	read    func() (*topology.Machine, error)

	mu      sync.Mutex // also held while tasks are pinned, so that the last word is the right one
	machine *topology.Machine
	held    map[runtime.TaskID]topology.Set // nil: not yet read
}

func newProcessors(drivers func() []runtime.Driver) *processors {
	return &processors{drivers: drivers, read: func() (*topology.Machine, error) { return topology.Read(os.DirFS("/sys")) }}
}

// loadLocked finds out what an earlier life of the agent gave away.
func (p *processors) loadLocked(ctx context.Context) error {
	if p.held != nil {
		return nil
	}
	m, err := p.read()
	if err != nil {
		return fmt.Errorf("processors: %w", err)
	}
	held := map[runtime.TaskID]topology.Set{}
	err = p.each(ctx, func(_ runtime.Driver, h runtime.Handle) error {
		if list := h.Labels[cpusLabel]; list != "" {
			s, err := topology.ParseSet(list)
			if err != nil {
				return err
			}
			held[h.ID] = s
		}
		return nil
	})
	if err == nil {
		p.machine, p.held = m, held
	}
	return err
}

// each calls f for every task that has not ended.
func (p *processors) each(ctx context.Context, f func(runtime.Driver, runtime.Handle) error) error {
	var errs []error
	for _, d := range p.drivers() {
		list, err := d.List(ctx)
		errs = append(errs, err)
		for _, h := range list {
			if st, err := d.Status(ctx, h); err == nil && (st.State == runtime.StateRunning || st.State == runtime.StatePaused) {
				errs = append(errs, f(d, h))
			}
		}
	}
	return errors.Join(errs...)
}

// sharedLocked are those that nobody has for its own.
func (p *processors) sharedLocked() topology.Set {
	out := p.machine.Online
	for _, s := range p.held {
		out = out.Minus(s)
	}
	return out
}

// take finds processors for a task that is about to start, n for its own or all that nobody has, and writes them into its spec.
func (p *processors) take(ctx context.Context, spec *runtime.Spec, n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.loadLocked(ctx); err != nil {
		if n == 0 {
			return nil // it runs where it may
		}
		return err
	}
	if n == 0 {
		if len(p.held) > 0 {
			spec.Resources.CPUSet = p.sharedLocked().String()
		}
		return nil
	}
	shared := p.sharedLocked()
	own := p.machine.Take(shared.Minus(p.machine.Online.Minus(p.machine.Lendable())), n)
	if own == nil {
		return &runtime.StartError{Field: "resources.exclusiveCPUs",
			Err: fmt.Errorf("%d processors are asked for, and of those that may be lent %s are free", n,
				orNone(shared.Minus(p.machine.Online.Minus(p.machine.Lendable()))))}
	}
	spec.Resources.CPUSet = own.String()
	if spec.Labels == nil {
		spec.Labels = map[string]string{}
	}
	spec.Labels[cpusLabel] = own.String()
	p.held[spec.ID] = own
	return p.pinLocked(ctx)
}

func orNone(s topology.Set) string {
	if len(s) == 0 {
		return "none"
	}
	return s.String()
}

// started sees that a task that started beside a change of the shared ones is where it belongs.
func (p *processors) started(ctx context.Context, d runtime.Driver, h runtime.Handle, was string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil || p.held[h.ID] != nil {
		return nil
	}
	now := p.sharedLocked().String()
	if len(p.held) == 0 && was == "" || now == was {
		return nil
	}
	return pin(ctx, d, h, now)
}

// give takes back the processors of a task that has ended, or did not start.
func (p *processors) give(ctx context.Context, id runtime.TaskID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil || p.held[id] == nil {
		return nil
	}
	delete(p.held, id)
	return p.pinLocked(ctx)
}

// pinLocked has all tasks without processors of their own use those that are left.
func (p *processors) pinLocked(ctx context.Context) error {
	shared := p.sharedLocked().String()
	return p.each(ctx, func(d runtime.Driver, h runtime.Handle) error {
		if p.held[h.ID] != nil {
			return nil
		}
		return pin(ctx, d, h, shared)
	})
}

// pin does nothing for what cannot be pinned, and for what has ended meanwhile.
func pin(ctx context.Context, d runtime.Driver, h runtime.Handle, cpus string) error {
	x, ok := d.(runtime.Pinner)
	if !ok {
		return nil
	}
	err := x.Pin(ctx, h, cpus)
	if err == nil || errors.Is(err, runtime.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("keep %s off the processors of others: %w", h.ID, err)
}

// exclusive is how many processors a container has for its own.
func exclusive(a *core.StartContainer) int {
	if a.Name != spec.MainContainer {
		return 0
	}
	return a.A.Spec.Resources.ExclusiveCPUs
}
