package device

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry/runtime"
)

// reachCase is which system calls of the host a place lets through, or makes itself, under one workload: what isolation
// buys, beside what it costs.
const reachCase = "reach"

// reachTime is how long is looked; the workload does everything some hundred times in it where it is not emulated.
const (
	reachTime  = 4 * time.Second
	reachQuick = time.Second
	// reachBegin is how long what holds the workload may take to begin it: a machine boots.
	reachBegin = time.Minute
)

// reach looks once in each place, in the first round that counts.
func (m *measuring) reach(ctx context.Context) error {
	tool := m.tools[toolKernels]
	if tool.missing != nil || len(m.o.Only) > 0 && !slices.Contains(m.o.Only, reachCase) {
		return nil
	}
	for _, p := range m.places {
		name := p.told().Name
		f := m.r.Figure(reachCase, "system calls of the host", name)
		if len(f.Samples) > 0 || f.Skip != "" {
			continue
		}
		m.o.Say("system calls that reach the host from %s", name)
		calls, err := m.reached(ctx, p, tool)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if m.sample(f, float64(len(calls)), err); err == nil {
			m.r.Note("System calls of the host from %s: %s", name, strings.Join(calls, " "))
		}
	}
	return nil
}

// heldOn runs a job in a place until it is released, and gives the processes of the host that run it: its own, or those
// that stand for a machine.
func heldOn(ctx context.Context, p place, j job) (running []int, release func() error, err error) {
	who, ok := p.(interface {
		// hostProcesses finds the processes of the host that run what is held, none before it does its work.
		hostProcesses(context.Context) ([]int, error)
	})
	if !ok {
		return nil, nil, fmt.Errorf("%w: its tasks are those of its runtime's own place", errCannot)
	}
	if release, err = p.hold(ctx, j); err != nil {
		return nil, nil, err
	}
	for began := time.Now(); len(running) == 0 && err == nil; {
		if time.Since(began) > reachBegin {
			err = errors.New("its workload did not begin")
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(100 * time.Millisecond):
			running, err = who.hostProcesses(ctx)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, release())
	}
	return running, release, nil
}

// reached attaches strace to whatever of the host runs for the workload in a place: its own processes, or those that stand for a machine.
func (m *measuring) reached(ctx context.Context, p place, t *tool) (_ []string, err error) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return nil, errors.New("strace is not installed: apt install strace")
	}
	running, release, err := heldOn(ctx, p, job{tool: t, name: toolKernels, args: []string{"everything", dirHere}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	file := filepath.Join(m.dir, "strace")
	args := []string{"-f", "-c", "-U", "name,calls", "-o", file}
	for _, pid := range running {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	long := reachTime
	if m.o.Quick {
		long = reachQuick
	}
	looking, stop := context.WithTimeout(ctx, long)
	defer stop()
	cmd := exec.CommandContext(looking, strace, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // it lets go, and writes
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if looking.Err() == nil {
		return nil, fmt.Errorf("strace ended at once: %w: %s", err, firstLine(out))
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("strace wrote nothing: %s", firstLine(out))
	}
	return straceCalls(text)
}

func (p *process) hostProcesses(context.Context) ([]int, error) {
	words := []byte("kernels\x00everything\x00" + p.dir + "\x00") // not those of a shell around it
	return processes("cmdline", func(text []byte) bool { return bytes.HasSuffix(text, words) }), nil
}

// hostProcesses: all of them are in the cgroup of the task, which bears its name.
func (p *driven) hostProcesses(ctx context.Context) ([]int, error) {
	log, ok := p.d.(runtime.Logger)
	if !ok || p.held == nil {
		return nil, fmt.Errorf("%w: it keeps no output", errCannot)
	}
	lines, err := log.OpenLog(ctx, *p.held, runtime.LogOptions{})
	if err != nil {
		return nil, err
	}
	defer lines.Close()
	if l, err := lines.Next(); err == io.EOF {
		return nil, nil // a machine boots
	} else if err != nil {
		return nil, err
	} else if string(l.Line) != "begun" {
		return nil, fmt.Errorf("its workload says %q", l.Line)
	}
	name := []byte(p.held.ID)
	return processes("cgroup", func(text []byte) bool { return bytes.Contains(text, name) }), nil
}

// processes are those of which a file below /proc says so.
func processes(file string, ok func([]byte) bool) (out []int) {
	list, _ := filepath.Glob("/proc/[0-9]*/" + file)
	for _, name := range list {
		text, err := os.ReadFile(name)
		if err != nil || !ok(text) {
			continue // it may have ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			out = append(out, pid)
		}
	}
	return out
}
