//go:build linux

package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry/runtime"
)

// checkpoint moves a task with its memory and files into another one.
func (s *suite) checkpoint(t *testing.T) {
	d, ok := s.d.(runtime.Checkpointer)
	if !ok {
		s.without(t, runtime.AbilityCheckpoint, "no Checkpointer")
	}
	if err := d.CanCheckpoint(t.Context()); err != nil {
		u, ok := errors.AsType[*runtime.Unsupported](err)
		if !ok || u.Ability != runtime.AbilityCheckpoint || u.Reason == "" {
			t.Fatalf("it cannot, and does not say so: %v", err)
		}
		sp := s.spec("sleep")
		sp.Checkpoint = true
		if _, err := s.d.Start(t.Context(), sp); !errors.As(err, &u) {
			t.Errorf("it started all the same: %v", err)
		}
		t.Skip(u)
	}
	sp := s.spec("grow", "8", "4")
	sp.Checkpoint, sp.UserNS = true, nil
	handle := s.start(t, sp)
	s.ready(t, s.d, handle)
	shell := func(handle runtime.Handle, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		code, err := s.d.(runtime.Execer).Exec(t.Context(), handle,
			runtime.ExecSpec{Args: append([]string{s.program()}, args...), Stdout: &out, Stderr: &out})
		if err != nil || code != 0 {
			t.Fatalf("%v: %d, %v, %s", args, code, err, out.String())
		}
		return out.String()
	}
	shell(handle, "write", "/tmp/note", "from before")
	plain := s.start(t, s.spec("sleep"))
	s.ready(t, s.d, plain)
	if err := d.Checkpoint(t.Context(), plain, t.TempDir()); err == nil {
		t.Error("a task that was not started for it was checkpointed")
	}
	if st, err := s.d.Status(t.Context(), plain); err != nil || st.State != runtime.StateRunning {
		t.Errorf("which ended it: %+v, %v", st, err)
	}
	dir := t.TempDir()
	if err := d.Checkpoint(t.Context(), handle, dir); err != nil {
		t.Fatal(err)
	}
	if st, err := s.d.Status(t.Context(), handle); err != nil || st.State != runtime.StateExited {
		t.Errorf("after its checkpoint it is %+v, %v", st, err)
	}
	if err := s.d.Remove(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a checkpoint is only read
		next := s.spec("grow", "8", "4")
		next.Checkpoint, next.UserNS = true, nil
		again, err := d.Restore(t.Context(), next, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.d.Remove(context.Background(), again); err != nil {
				t.Error(err)
			}
		})
		if got := shell(again, "read", "/tmp/note"); got != "from before" && got != "from before\n" {
			t.Errorf("its file has %q", got)
		}
		st, err := s.d.Status(t.Context(), again)
		if err != nil || st.State != runtime.StateRunning || st.PID != again.PID {
			t.Fatalf("%+v, %v", st, err)
		}
		// It goes on where it was, and prints into its own log.
		if err := syscall.Kill(again.PID, syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		lines, err := s.d.(runtime.Logger).OpenLog(t.Context(), again, runtime.LogOptions{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer lines.Close()
		if e, err := lines.Next(); err != nil || e.Line != "grown 12582912" {
			t.Errorf("it printed %q, %v", e.Line, err)
		}
		if err := s.d.Stop(t.Context(), again, time.Minute); err != nil {
			t.Fatal(err)
		}
		if e := s.wait(t, s.d, again); e.Code != 0 || e.Lost {
			t.Errorf("it ended as %+v", e)
		}
	}
	if _, err := d.Restore(t.Context(), sp, t.TempDir()); err == nil {
		t.Error("an empty directory was restored")
	}
}
