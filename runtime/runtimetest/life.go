//go:build linux

package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry/runtime"
)

func (s *suite) check(t *testing.T) {
	r := s.d.Check(t.Context())
	t.Logf("%+v", r)
	if !r.Passed || r.Driver != s.d.Name() || r.Took <= 0 || len(r.Abilities) == 0 {
		t.Fatalf("the driver does not work here: %+v", r)
	}
	if hs, _ := s.d.List(t.Context()); len(hs) != 0 {
		t.Errorf("the self-test left %v", hs)
	}
}

func (s *suite) life(t *testing.T) {
	t.Run("exit status", func(t *testing.T) {
		if s.shares() {
			return // as "handle" has it
		}
		s.together(t)
		codes := []int{0, 1, 42, 255}
		switch {
		case s.o.System != nil:
			codes = []int{0, 1, 127} // a machine has seven bits to tell by
		case s.o.Machine:
			codes = []int{0, 255}
		}
		for _, code := range codes {
			before := time.Now().Add(-time.Second)
			e, _ := s.run(t, s.spec("exit", fmt.Sprint(code)))
			if e.Code != code || e.OOMKilled || e.Lost || e.At.Before(before) || e.At.After(time.Now().Add(time.Second)) {
				t.Errorf("exit %d is reported as %+v", code, e)
			}
		}
	})
	t.Run("stop by signal", func(t *testing.T) {
		s.together(t)
		handle := s.start(t, s.spec("sleep"))
		next := s.ready(t, s.d, handle)
		st, err := s.d.Status(t.Context(), handle)
		if err != nil || st.State != runtime.StateRunning || st.PID != handle.PID || handle.PID == 0 {
			t.Errorf("status %+v, %v of %+v", st, err, handle)
		}
		if err := s.d.Stop(t.Context(), handle, time.Minute); err != nil {
			t.Fatal(err)
		}
		s.terminated(t, s.wait(t, s.d, handle), 3)
		if line, err := next(); !s.o.WASI && (err != nil || line != "terminated") {
			t.Errorf("it printed %q, %v", line, err)
		}
		st, err = s.d.Status(t.Context(), handle)
		if err != nil || st.State != runtime.StateExited || st.Exit == nil {
			t.Fatalf("status %+v, %v", st, err)
		}
		s.terminated(t, *st.Exit, 3)
		if err := s.d.Stop(t.Context(), handle, time.Minute); err != nil {
			t.Errorf("stop of what has ended: %v", err)
		}
	})
	t.Run("stop by another signal", func(t *testing.T) {
		s.together(t)
		sp := s.spec("sleep")
		sp.StopSignal = syscall.SIGUSR1
		handle := s.start(t, sp)
		next := s.ready(t, s.d, handle)
		if err := s.d.Stop(t.Context(), handle, time.Minute); err != nil {
			t.Fatal(err)
		}
		if line, err := next(); err != nil || !strings.Contains(line, "user defined") {
			t.Errorf("it printed %q, %v", line, err)
		}
	})
	t.Run("kill after grace", func(t *testing.T) {
		s.together(t)
		handle := s.start(t, s.spec("stubborn"))
		s.ready(t, s.d, handle)
		grace := 10 * time.Millisecond
		if s.o.WASI {
			grace = 0 // nothing can refuse the signal
		}
		if err := s.d.Stop(t.Context(), handle, grace); err != nil {
			t.Fatal(err)
		}
		if e := s.wait(t, s.d, handle); e.Code != 137 || e.Signal != 9 || e.OOMKilled {
			t.Errorf("it ended as %+v, not as after SIGKILL", e)
		}
	})
	t.Run("a wait that is given up", func(t *testing.T) {
		if s.shares() {
			return // in one machine
		}
		s.together(t)
		handle := s.start(t, s.spec("sleep"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := s.d.Wait(ctx, handle)
			done <- err
		}()
		s.ready(t, s.d, handle)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("what a program leaves behind", func(t *testing.T) {
		s.processes(t)
		s.together(t)
		if e, _ := s.run(t, s.spec("orphan")); e.Code != 0 {
			t.Errorf("it ended as %+v", e)
		}
	})
	t.Run("remove", func(t *testing.T) {
		s.together(t)
		handle := s.start(t, s.spec("stubborn"))
		s.ready(t, s.d, handle)
		for range 2 {
			if err := s.d.Remove(t.Context(), handle); err != nil {
				t.Fatal(err)
			}
		}
		if syscall.Kill(handle.PID, 0) == nil {
			if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", handle.PID)); !strings.Contains(string(stat), ") Z ") {
				t.Errorf("process %d is still there: %s", handle.PID, stat)
			}
		}
		for name, err := range map[string]error{
			"wait":   second(s.d.Wait(t.Context(), handle)),
			"status": second(s.d.Status(t.Context(), handle)),
			"stop":   s.d.Stop(t.Context(), handle, 0),
		} {
			if !errors.Is(err, runtime.ErrNotFound) {
				t.Errorf("%s after remove gives %v", name, err)
			}
		}
	})
	t.Run("handle", func(t *testing.T) {
		s.together(t)
		handle := s.start(t, s.spec("exit", "5"))
		data, err := json.Marshal(handle)
		if err != nil || len(data) > 1024 {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		var back runtime.Handle
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if e := s.wait(t, s.d, back); e.Code != 5 {
			t.Errorf("%+v", e)
		}
		if handle.Driver != s.d.Name() || handle.Instance != "suite-1" || handle.Container != "main" || handle.Labels["suite"] != "yes" ||
			handle.Started.IsZero() {
			t.Errorf("%+v", handle)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func (s *suite) many(t *testing.T) {
	n := 20
	if s.o.Machine {
		n = 4
	}
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		sp := s.spec("exit", fmt.Sprint(i))
		wg.Go(func() {
			errs <- func() error {
				h, err := s.d.Start(t.Context(), sp)
				if err != nil {
					return err
				}
				e, err := s.d.Wait(t.Context(), h)
				if err != nil || e.Code != i {
					return fmt.Errorf("task %d: %+v, %v", i, e, err)
				}
				return s.d.Remove(t.Context(), h)
			}()
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

func (s *suite) reattach(t *testing.T) {
	dir := t.TempDir()
	a := s.spec("sleep")
	child := startChild(t, childJob{Dir: dir, Spec: a})
	handle := child.handle(t)
	child.kill(t)

	driver := s.open(t, dir)
	hs, err := driver.List(t.Context())
	if err != nil || len(hs) != 1 || hs[0].ID != a.ID || hs[0].PID != handle.PID || hs[0].Labels["suite"] != "yes" {
		t.Fatalf("listed %+v, %v", hs, err)
	}
	if of, err := driver.ListOf(t.Context(), a.Instance); err != nil || len(of) != 1 || of[0].ID != a.ID {
		t.Errorf("of %s: %+v, %v", a.Instance, of, err)
	}
	if of, err := driver.ListOf(t.Context(), a.Instance+"0"); err != nil || len(of) != 0 {
		t.Errorf("of another instance: %+v, %v", of, err)
	}
	s.ready(t, driver, hs[0])
	if st, err := driver.Status(t.Context(), handle); err != nil || st.State != runtime.StateRunning {
		t.Errorf("status %+v, %v", st, err)
	}
	if _, err := driver.Start(t.Context(), a); !errors.Is(err, runtime.ErrExists) {
		t.Errorf("a second start gives %v", err)
	}
	// The end comes while no agent is there to see it.
	driver.Close()
	if err := syscall.Kill(handle.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	driver = s.open(t, dir)
	s.terminated(t, s.wait(t, driver, handle), 3)
	driver.Close()
	driver = s.open(t, dir)
	s.terminated(t, s.wait(t, driver, handle), 3) // asked again
	if err := driver.Remove(t.Context(), handle); err != nil {
		t.Error(err)
	}
	s.nothingLeft(t, dir)
}

// lost kills the supervisor: the task must not go on unseen, and its end must be told.
func (s *suite) lost(t *testing.T) {
	h := s.start(t, s.spec("stubborn"))
	s.ready(t, s.d, h)
	parent := parentOf(t, h.PID)
	if parent <= 1 || parent == os.Getpid() {
		t.Skip(&runtime.Unsupported{Driver: s.d.Name(), Reason: "tasks have no supervisor"})
	}
	if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := s.wait(t, s.d, h); !e.Lost || e.Code != -1 {
		t.Errorf("it ended as %+v", e)
	}
}

func parentOf(t *testing.T, pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var n int
		if _, err := fmt.Sscanf(line, "PPid: %d", &n); err == nil {
			return n
		}
	}
	return 0
}

// crash kills the agent at many moments of a start; whatever is left can be listed and removed.
func (s *suite) crash(t *testing.T) {
	dir := t.TempDir()
	times, step := 16, 3*time.Millisecond
	switch {
	case s.o.System != nil:
		times, step = 10, 12*time.Millisecond
	case s.shares():
		times, step = 4, 450*time.Millisecond
	case s.o.Machine:
		times, step = 6, 300*time.Millisecond
	case s.o.Slow:
		times, step = 8, 25*time.Millisecond
	}
	for i := range times {
		sp := s.spec("stubborn")
		child := startChild(t, childJob{dir, sp, i%2 == 1})
		child.killAfter(t, time.Duration(i)*step)
		driver := s.open(t, dir)
		hs, err := driver.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hs {
			st, err := driver.Status(t.Context(), h)
			if err != nil {
				t.Error(err)
			}
			t.Logf("killed after %s: %s", time.Duration(i)*step, st.State)
			if err := driver.Remove(t.Context(), h); err != nil {
				t.Error(err)
			}
		}
		if cleaner, ok := driver.(interface{ CleanUp(context.Context) error }); ok && i == times-1 {
			if err := cleaner.CleanUp(t.Context()); err != nil && !errors.Is(err, syscall.EBUSY) {
				t.Error(err)
			}
		}
		driver.Close()
		s.nothingLeft(t, dir)
		if left, _ := filepath.Glob(filepath.Join(dir, "tasks", "suite-*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}
