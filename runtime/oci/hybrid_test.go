//go:build linux

package oci

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/hybrid"
	"skerry.dev/skerry/runtime/runtimetest"
)

// opened opens a driver and returns the report of its self-test.
func opened(t *testing.T, dir string) (*Driver, runtime.Report) {
	t.Helper()
	if err := enterable(dir); err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{Dir: dir, CgroupParent: cgroupParent()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, d.Check(t.Context())
}

// behind checks that crun was chosen, behind its stand-in.
func behind(t *testing.T, d *Driver, r runtime.Report) {
	t.Helper()
	if d.chosen != filepath.Join(d.Options.Dir, "hybrid", "crun") {
		if need(t, "crun"); d.chosen == filepath.Join(d.Options.Dir, "readonly", "crun") {
			t.Skip(&runtime.Unsupported{Driver: "oci", Reason: "this crun does not refuse hybrid hosts"})
		}
		t.Fatalf("%q was chosen: %+v", d.chosen, r)
	}
	if !r.Passed || !strings.HasPrefix(r.Version, "crun ") || !strings.HasSuffix(r.Version, hybrid.Note) || strings.Contains(r.Cause, "hybrid") {
		t.Errorf("%+v", r)
	}
}

// On a host where cgroup2 gets controllers and loses them again while containers run, every start works, also after a restart of the agent, and
// every container can be entered and removed. All supervisors stay in the agent's mount namespace.
func TestHostBecomesHybrid(t *testing.T) {
	need(t, "crun")
	dir := t.TempDir()
	layer := runtimetest.Image(t, runtimetest.Workload(t))
	host, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	var hs []runtime.Handle
	n := 0
	start := func(t *testing.T, d *Driver) {
		t.Helper()
		n++
		h, err := d.Start(t.Context(), runtime.Spec{ID: runtime.TaskID(fmt.Sprintf("becomes.main.%d", n)), Args: []string{"/bin/workload", "sleep"},
			RootFS: []runtime.Mount{runtime.Overlay(layer)}})
		if err != nil {
			t.Fatal(err)
		}
		hs = append(hs, h)
		// Each container can be entered, however it was made.
		for _, h := range hs {
			var out bytes.Buffer
			if code, err := d.Exec(t.Context(), h, runtime.ExecSpec{Args: []string{"/bin/workload", "print", "in"}, Stdout: &out, Stderr: &out}); err != nil || code != 0 || out.String() != "in\n" {
				t.Errorf("exec in %s: %d, %v, %q", h.ID, code, err, out.String())
			}
			task, err := d.Tasks.Get(h)
			if err != nil {
				t.Fatal(err)
			}
			if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", task.Record().Supervisor.PID)); err != nil || ns != host {
				t.Errorf("the supervisor of %s is in %s, %v, and the agent in %s", h.ID, ns, err, host)
			}
		}
	}
	var d *Driver
	t.Cleanup(func() { // of a test that failed
		d, err := New(Options{Dir: dir, CgroupParent: cgroupParent()})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, h := range hs {
			_ = d.Remove(context.Background(), h)
		}
	})
	defer func() {
		if d != nil { // the host cannot become hybrid
			d.Close()
		}
	}()
	t.Run("is not", func(t *testing.T) {
		runtimetest.Hybrid(t, false)
		var err error
		if d, err = New(Options{Dir: dir, CgroupParent: cgroupParent()}); err != nil {
			t.Fatal(err)
		}
		if r := d.Check(t.Context()); !r.Passed || d.chosen != filepath.Join(dir, "readonly", "crun") || strings.Contains(r.Version, "hybrid") {
			t.Fatalf("%q was chosen: %+v", d.chosen, r)
		}
		start(t, d)
	})
	t.Run("is", func(t *testing.T) {
		runtimetest.Hybrid(t, true)
		start(t, d)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		d = nil
		d, r := opened(t, dir)
		behind(t, d, r)
		start(t, d)
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if n := strings.Count(string(mounts), "/cgroup.controllers "); err != nil || n != 1 { // the test's own
			t.Errorf("the list of controllers is mounted %d times, %v", n, err)
		}
		if err := d.Remove(t.Context(), hs[0]); err != nil {
			t.Error(err)
		}
		hs = hs[1:]
	})
	t.Run("is no more", func(t *testing.T) {
		runtimetest.Hybrid(t, false)
		d, _ := opened(t, dir)
		start(t, d)
		for _, h := range hs {
			if err := d.Stop(t.Context(), h, time.Minute); err != nil {
				t.Error(err)
			}
			if err := d.Remove(t.Context(), h); err != nil {
				t.Error(err)
			}
		}
		if left, err := d.List(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, err)
		}
		if left, err := os.ReadDir(d.root("crun")); err != nil || len(left) > 0 {
			t.Errorf("crun still knows %v, %v", left, err)
		}
	})
}

// Without crun the driver takes runc.
func TestCrunIsHidden(t *testing.T) {
	runc := need(t, "runc")
	runtimetest.Hybrid(t, true)
	runtimetest.Hide(t, need(t, "crun"))
	d, r := opened(t, t.TempDir())
	if !r.Passed || d.chosen != runc || !strings.Contains(r.Cause, "crun is not installed; using runc") {
		t.Errorf("%q was chosen: %+v", d.chosen, r)
	}
}

// If the stand-in cannot be executed the driver takes runc and says why.
func TestStandInCannotRun(t *testing.T) {
	crun, runc := need(t, "crun"), need(t, "runc")
	runtimetest.Hybrid(t, true)
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d, r := opened(t, dir)
	if d.chosen == crun {
		t.Skip(&runtime.Unsupported{Driver: "oci", Reason: "this crun does not refuse hybrid hosts"})
	}
	if !r.Passed || d.chosen != runc || !strings.Contains(r.Cause, "hybrid mode not supported") ||
		!strings.Contains(r.Cause, "crun cannot be executed: permission denied") || !strings.Contains(r.Cure, "noexec") {
		t.Errorf("%q was chosen: %+v", d.chosen, r)
	}
}
