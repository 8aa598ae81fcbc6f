//go:build linux

package monitor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
)

// exited reads the exit file. The zero time means that there is none.
func (t *Task) exited() (runtime.Exit, bool) {
	st, err := os.Stat(t.ExitFile())
	if err != nil {
		return runtime.Exit{}, false
	}
	code, ok := readInt(t.ExitFile())
	if !ok {
		return runtime.Exit{}, false
	}
	e := runtime.Exit{Code: code, At: st.ModTime()}
	if code > 128 && code <= 128+64 {
		e.Signal = code - 128
	}
	if code != 0 {
		_, err := os.Stat(t.Path("oom"))
		e.OOMKilled = err == nil || t.Group().OOMKills() > 0
	}
	return e, true
}

// supervisor finds conmon, also when the agent died before it wrote down who that is.
func (t *Task) supervisor() Process {
	rec := t.Record()
	if rec.Boot != t.set.boot {
		return Process{}
	}
	if rec.Supervisor.PID != 0 {
		return rec.Supervisor
	}
	if pid, ok := readInt(t.Path("conmon.pid")); ok && t.isSupervisor(pid) {
		return Identify(pid)
	}
	// Between its fork and the writing of that file, only the command line tells.
	cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, c := range cmdlines {
		if pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(c))); t.isSupervisor(pid) {
			return Identify(pid)
		}
	}
	return Process{}
}

// sweep kills whatever an agent that died left on its way through a start: conmon and the runtime it called, which may
// be about to put a process into the cgroup. All of them have the bundle on their command line. So may a process of a tenant, who may
// have it come back for ever: it goes on until ctx ends, and no longer.
func (t *Task) sweep(ctx context.Context) {
	for clean, began := 0, time.Now(); clean < 2 && ctx.Err() == nil; {
		found := false
		cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, c := range cmdlines {
			data, err := os.ReadFile(c)
			if err == nil && len(data) == 0 && starting(filepath.Dir(c)) && time.Since(began) < time.Second {
				found = true // what it is shows in a moment
			}
			if err != nil || !bytes.Contains(data, []byte("\x00"+t.dir+"\x00")) && !bytes.Contains(data, []byte("="+t.dir+"\x00")) {
				continue
			}
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(c)))
			if p := Identify(pid); p.PID > 0 {
				found = true
				_ = p.Signal(unix.SIGKILL)
			}
		}
		// Twice nothing: a process may have been forked behind the back of the first look.
		clean++
		if found {
			clean = 0
			time.Sleep(time.Millisecond)
		}
	}
}

// sweepTime is far more than there is to do: what was left is gone after the first looks.
const sweepTime = 10 * time.Second

// starting reports whether a process without a command line, at its place below /proc, may be in the middle of execve. A thread of the
// kernel has no program, and one that has ended none any more.
func starting(proc string) bool {
	_, err := os.Readlink(filepath.Join(proc, "exe"))
	return err == nil
}

func (t *Task) isSupervisor(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(data, []byte("\x00-b\x00"+t.dir+"\x00"))
}

// Wait returns when the task has ended. It blocks on a process descriptor and polls nothing.
func (t *Task) Wait(ctx context.Context) (runtime.Exit, error) {
	if e, ok := t.exited(); ok {
		return e, nil
	}
	rec := t.Record()
	if !rec.Ready {
		return runtime.Exit{}, fmt.Errorf("task %s was left half-made by a crash; remove it", rec.Handle.ID)
	}
	if err := t.supervisor().WaitGone(ctx); err != nil {
		return runtime.Exit{}, err
	}
	t.rest()
	if e, ok := t.exited(); ok {
		return e, nil
	}
	if _, err := t.set.Get(rec.Handle); err != nil {
		return runtime.Exit{}, err // removed meanwhile
	}
	// Without its supervisor the task has nowhere to write to, and nobody who would learn of its end.
	t.Kill(10 * time.Second)
	return runtime.Exit{Code: -1, Lost: true, At: time.Now()}, nil
}

// Status looks once.
func (t *Task) Status() runtime.Status {
	rec := t.Record()
	if e, ok := t.exited(); ok {
		return runtime.Status{State: runtime.StateExited, PID: rec.Init.PID, Exit: &e}
	}
	if !rec.Ready {
		return runtime.Status{State: runtime.StateBroken, PID: rec.Init.PID}
	}
	if !t.supervisor().Alive() {
		// Conmon writes the exit file before it ends.
		if e, ok := t.exited(); ok {
			return runtime.Status{State: runtime.StateExited, PID: rec.Init.PID, Exit: &e}
		}
		return runtime.Status{State: runtime.StateExited, PID: rec.Init.PID, Exit: &runtime.Exit{Code: -1, Lost: true, At: time.Now()}}
	}
	if t.Group().Frozen() {
		return runtime.Status{State: runtime.StatePaused, PID: rec.Init.PID}
	}
	return runtime.Status{State: runtime.StateRunning, PID: rec.Init.PID}
}

// Stop sends the stop signal, waits for the grace time, kills, and waits for the end.
func (t *Task) Stop(ctx context.Context, grace time.Duration) error {
	if st := t.Status(); st.State == runtime.StateExited {
		return nil
	} else if st.State == runtime.StatePaused {
		_ = t.Group().Freeze(false)
	}
	rec := t.Record()
	if grace > 0 && rec.Ready {
		if err := rec.Init.Signal(unix.Signal(rec.StopSignal)); err != nil {
			return err
		}
		graceCtx, cancel := context.WithTimeout(ctx, grace)
		_, err := t.Wait(graceCtx)
		cancel()
		if err == nil || ctx.Err() != nil {
			return errors.Join(ctx.Err())
		}
	}
	t.Kill(10 * time.Second)
	if !rec.Ready {
		return nil
	}
	_, err := t.Wait(ctx)
	return err
}

// Kill ends every process of the task but conmon, which follows by itself.
func (t *Task) Kill(timeout time.Duration) {
	rec := t.Record()
	if rec.Boot == t.set.boot {
		_ = rec.Init.Signal(unix.SIGKILL)
	}
	if rec.Cgroup != "" {
		if err := t.Group().Kill(timeout); err != nil {
			t.set.opts.Log.Warn("kill", "task", rec.Handle.ID, "err", err)
		}
	}
}

// End kills the task and sees its supervisor off. It is the first step of a removal.
func (t *Task) End(ctx context.Context) error {
	if !t.Record().Ready {
		sweepCtx, cancel := context.WithTimeout(ctx, sweepTime)
		t.sweep(sweepCtx)
		cancel()
	}
	t.Kill(10 * time.Second)
	sup := t.supervisor()
	waitCtx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := sup.WaitGone(waitCtx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// Conmon waits for something that cannot be seen any more; there is nothing left to supervise.
		_ = sup.Signal(unix.SIGKILL)
		if err := sup.WaitGone(ctx); err != nil {
			return err
		}
		t.Kill(10 * time.Second)
	}
	if rec := t.Record(); rec.Init.PID > 0 && rec.Boot == t.set.boot {
		_, _ = unix.Wait4(rec.Init.PID, nil, unix.WNOHANG, nil)
	}
	return nil
}
