//go:build linux

package runtimetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
)

// resize changes limits of tasks that run.
func (s *suite) resize(t *testing.T) {
	d, ok := s.d.(runtime.Resizer)
	if !ok {
		s.without(t, runtime.AbilityResize, "no Resizer")
	}
	// holds checks what the kernel holds a task to, which runs on as the process that it was.
	holds := func(t *testing.T, handle runtime.Handle, cpu skerry.MilliCPU, memory skerry.Bytes) {
		t.Helper()
		l, err := d.Limits(t.Context(), handle)
		if err != nil || l.CPU != cpu || l.Memory != memory {
			t.Errorf("its limits are %+v, %v; not %v and %v", l, err, cpu, memory)
		}
		if st, err := s.d.Status(t.Context(), handle); err != nil || st.State != runtime.StateRunning || st.PID != handle.PID {
			t.Errorf("it is %+v, %v; it was process %d", st, err, handle.PID)
		}
	}
	change := func(t *testing.T, handle runtime.Handle, cpu skerry.MilliCPU, memory skerry.Bytes) error {
		t.Helper()
		return d.Resize(t.Context(), handle, runtime.Resources{CPU: cpu, CPURequest: cpu, Memory: memory})
	}
	t.Run("grow", func(t *testing.T) {
		sp := s.spec("grow", "8", "96")
		sp.Resources = runtime.Resources{CPU: 500, CPURequest: 500, Memory: 48 * skerry.MiB, Pids: 100}
		nudge := t.TempDir()
		if s.o.WASI {
			sp.Mounts = []runtime.Mount{{Type: "bind", Source: nudge, Target: "/mnt"}}
		}
		handle := s.start(t, sp)
		next := s.ready(t, s.d, handle)
		holds(t, handle, 500, 48*skerry.MiB)
		if err := change(t, handle, 750, 256*skerry.MiB); err != nil {
			t.Fatal(err)
		}
		holds(t, handle, 750, 256*skerry.MiB)
		if s.o.WASI {
			if err := errors.Join(os.Chmod(nudge, 0o755), os.WriteFile(filepath.Join(nudge, "grow"), nil, 0o644)); err != nil {
				t.Fatal(err)
			}
		} else if err := syscall.Kill(handle.PID, syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if line, err := next(); err != nil || line != "grown 109051904" { // else it was killed for the limit from before
			t.Errorf("it printed %q, %v", line, err)
		}
	})
	t.Run("cut", func(t *testing.T) {
		sp := s.spec("grow", "64", "0")
		sp.Resources = runtime.Resources{CPU: 1000, CPURequest: 1000, Memory: 256 * skerry.MiB, Pids: 100}
		handle := s.start(t, sp)
		s.ready(t, s.d, handle)
		in, ok := errors.AsType[*runtime.InUse](change(t, handle, 200, 32*skerry.MiB))
		if !ok || in.Used < 60*skerry.MiB || in.Limit != 32*skerry.MiB {
			t.Errorf("memory in use was cut: %+v", in)
		}
		holds(t, handle, 1000, 256*skerry.MiB)
		if err := change(t, handle, 200, 128*skerry.MiB); err != nil {
			t.Fatal(err)
		}
		holds(t, handle, 200, 128*skerry.MiB)
		if err := change(t, handle, 200, 128*skerry.MiB); err != nil {
			t.Errorf("the same again: %v", err)
		}
		if err := s.d.Stop(t.Context(), handle, time.Minute); err != nil {
			t.Fatal(err)
		}
		s.terminated(t, s.wait(t, s.d, handle), 0)
		if err := change(t, handle, 300, 128*skerry.MiB); err == nil {
			t.Error("the limits of what has ended were changed")
		}
	})
	t.Run("none", func(t *testing.T) {
		handle := s.start(t, s.spec("sleep"))
		s.ready(t, s.d, handle)
		holds(t, handle, 0, 0)
		if err := change(t, handle, 300, 64*skerry.MiB); err != nil {
			t.Fatal(err)
		}
		holds(t, handle, 300, 64*skerry.MiB)
		if err := change(t, handle, 0, 0); err != nil {
			t.Fatal(err)
		}
		holds(t, handle, 0, 0)
	})
	t.Run("processors", func(t *testing.T) {
		p, ok := s.d.(runtime.Pinner)
		if !ok {
			s.without(t, runtime.AbilityCPUSet, "no Pinner")
		}
		s.needs(t, runtime.AbilityCPUSet)
		sp := s.spec("sleep")
		sp.Resources.CPUSet = "0"
		handle := s.start(t, sp)
		s.ready(t, s.d, handle)
		allowed := func() string {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", handle.PID))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(data)) {
				if v, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
					return strings.TrimSpace(v)
				}
			}
			return ""
		}
		if got := allowed(); got != "0" {
			t.Errorf("it may use %s, not 0", got)
		}
		if goruntime.NumCPU() < 2 {
			return
		}
		if err := p.Pin(t.Context(), handle, "0-1"); err != nil {
			t.Fatal(err)
		}
		if got := allowed(); got != "0-1" {
			t.Errorf("it may use %s, not 0-1", got)
		}
	})
	t.Run("nobody", func(t *testing.T) {
		handle := runtime.Handle{ID: "suite-nobody.main.1", Driver: s.d.Name()}
		if err := change(t, handle, 300, 0); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("resize: %v", err)
		}
		if _, err := d.Limits(t.Context(), handle); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("limits: %v", err)
		}
	})
}
