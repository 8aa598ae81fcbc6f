//go:build linux

package oci

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

// counted puts a program of a runtime's name in front of a runtime. calls gives the commands with which it was called since the last time.
func counted(t *testing.T, program string) (path string, calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	path, log := filepath.Join(dir, program), filepath.Join(dir, "calls")
	script := "#!/bin/sh\necho \"$*\" >>" + log + "\nexec " + need(t, program) + " \"$@\"\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, func() (out []string) {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(log, 0); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			for _, word := range strings.Fields(line) {
				if word == "create" || word == "start" || word == "delete" || word == "kill" || word == "state" {
					out = append(out, word)
					break
				}
			}
		}
		return out
	}
}

// mountsRead gives how often the list of the process's mounts has been read since the last time.
func mountsRead(t *testing.T) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, "/proc/self/mountinfo", unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() int {
		events := make([]byte, 1<<16)
		n, err := unix.Read(fd, events)
		if err != nil && err != unix.EAGAIN {
			t.Fatal(err)
		}
		return max(n, 0) / unix.SizeofInotifyEvent
	}
}

// A container that has ended, or is killed, is removed without a process of its runtime, and without a look at the mounts of all others.
// Hooks of that stage still run.
func TestRemoveStartsNoProcess(t *testing.T) {
	layer := runtimetest.Image(t, runtimetest.Workload(t))
	for _, program := range []string{"crun", "runc"} {
		t.Run(program, func(t *testing.T) {
			path, calls := counted(t, program)
			d, err := New(Options{Dir: t.TempDir(), CgroupParent: cgroupParent(), Runtimes: []string{path}})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if r := d.Check(t.Context()); !r.Passed {
				t.Fatalf("%s was not chosen: %+v", path, r)
			}
			mounts := mountsRead(t)
			ran := filepath.Join(t.TempDir(), "ran")
			for _, c := range []struct {
				name, does string
				hooks      []runtime.Hook
				want       string
			}{
				{"ended", "print", nil, "create"},
				{"running", "sleep", nil, "create"},
				{"hook", "sleep", []runtime.Hook{{Stage: "poststop", Path: "/usr/bin/touch", Args: []string{"touch", ran}}}, "create delete"},
			} {
				calls()
				h, err := d.Start(t.Context(), runtime.Spec{ID: runtime.TaskID("remove." + c.name + ".1"), Args: []string{"/bin/workload", c.does},
					RootFS: []runtime.Mount{runtime.Overlay(layer)}, Hooks: c.hooks})
				if err != nil {
					t.Fatal(err)
				}
				if c.does == "print" {
					if _, err := d.Wait(t.Context(), h); err != nil {
						t.Fatal(err)
					}
				}
				task, err := d.Tasks.Get(h)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := os.ReadFile("/proc/self/mountinfo"); err != nil || mounts() == 0 {
					t.Fatalf("reading the list of mounts is not seen: %v", err)
				}
				if err := d.Remove(t.Context(), h); err != nil {
					t.Fatal(err)
				}
				if n := mounts(); n > 0 {
					t.Errorf("%s: the list of mounts was read %d times", c.name, n)
				}
				got := strings.Join(calls(), " ")
				if program == "runc" { // which has no pipe of which we know
					got = strings.Replace(got, "create start", "create", 1)
				}
				if got != c.want {
					t.Errorf("%s: %s was called for %q; expected %q", c.name, program, got, c.want)
				}
				left, err := stateFiles(d.root(path), h.ID)
				if err != nil || len(left) > 0 || task.Group().Exists() {
					t.Errorf("%s: left are %v (%v), cgroup %v", c.name, left, err, task.Group().Exists())
				}
			}
			if _, err := os.Stat(ran); err != nil {
				t.Errorf("the hook did not run: %v", err)
			}
		})
	}
}
