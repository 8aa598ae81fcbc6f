package device

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
)

// footprintCase is how much of the machine's memory instances take that do nothing: Table 6 of the RISC-V paper (000).
const footprintCase = "footprint"

// counts of instances at once, as in Table 6.
func counts(quick bool) []int {
	if quick {
		return []int{4, 16}
	}
	return []int{4, 16, 32, 64}
}

// available is MemAvailable of the machine in MiB, once what was freed has come back.
func available(ctx context.Context) (float64, error) {
	select {
	case <-time.After(settleTime):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var kb float64
		if _, err := fmt.Sscanf(in.Text(), "MemAvailable: %f kB", &kb); err == nil {
			return kb / 1024, nil
		}
	}
	return 0, errors.New("/proc/meminfo has no MemAvailable")
}

const settleTime = 300 * time.Millisecond

// footprints measures each place once for each number of instances.
func (m *measuring) footprints(ctx context.Context) error {
	tool := m.tools[toolKernels]
	if tool.missing != nil || len(m.o.Only) > 0 && !slices.Contains(m.o.Only, footprintCase) {
		return nil
	}
	for _, n := range counts(m.o.Quick) {
		for k := range m.places {
			p := m.places[(k+m.r.Rounds)%len(m.places)]
			v, err := m.footprint(ctx, p, tool, n)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f := m.r.Figure(footprintCase, fmt.Sprintf("memory of each of %d idle instances", n), p.told().Name)
			f.Unit = "MiB"
			m.sample(f, v, err)
		}
	}
	return nil
}

// footprint gives MiB per instance.
func (m *measuring) footprint(ctx context.Context, p place, t *tool, n int) (_ float64, err error) {
	m.o.Say("%d idle instances in %s", n, p.told().Name)
	before, err := available(ctx)
	if err != nil {
		return 0, err
	}
	var held []func() error
	defer func() {
		for _, release := range held {
			err = errors.Join(err, release())
		}
	}()
	for range n {
		release, err := p.hold(ctx, job{tool: t, name: toolKernels, args: []string{"sleep"}})
		if err != nil {
			return 0, err
		}
		held = append(held, release)
	}
	after, err := available(ctx)
	return (before - after) / float64(n), err
}

// hold starts a program that goes on until it is released.
func (p *process) hold(ctx context.Context, j job) (func() error, error) {
	args := append([]string{j.tool.path}, j.argsFor(p.root, p.dir)...)
	var g *group
	if p.groups != nil {
		var err error
		if g, err = p.groups(0); err != nil {
			return nil, err
		}
		args = append([]string{"/bin/sh", "-c", g.enter()}, args...)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = p.dir, environment, &syscall.SysProcAttr{Cloneflags: p.flags, Setpgid: true}
	if err := cmd.Start(); err != nil {
		if g != nil {
			err = errors.Join(err, g.remove())
		}
		return nil, err
	}
	return func() error {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
		if g != nil {
			return g.remove()
		}
		return nil
	}, nil
}

func (p *driven) hold(ctx context.Context, j job) (func() error, error) {
	if err := p.can(j); err != nil {
		return nil, err
	}
	spec := p.spec(j)
	// Enough for what sleeps, and a machine has it for itself.
	spec.Resources.Memory = 64 * skerry.MiB
	h, err := p.d.Start(ctx, spec)
	if err != nil {
		if _, ok := errors.AsType[*runtime.Unsupported](err); ok {
			err = fmt.Errorf("%w: %w", errCannot, err)
		}
		return nil, err
	}
	p.held = &h
	return func() error { return p.d.Remove(context.WithoutCancel(ctx), h) }, nil
}

func (p *driven) next() string {
	return fmt.Sprintf("bench-%d-%s-%d", os.Getpid(), strings.ReplaceAll(p.name, "_", "-"), p.n.Add(1))
}
