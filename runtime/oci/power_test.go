//go:build linux

package oci

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

// A power failure may leave nothing in a task's record, which is not forced to the disk: what the runtime keeps of the task goes with it
// all the same, and another task of that name can start.
func TestRecordLost(t *testing.T) {
	layer := runtimetest.Image(t, runtimetest.Workload(t))
	for _, program := range []string{"crun", "runc"} {
		t.Run(program, func(t *testing.T) {
			o := Options{Dir: t.TempDir(), CgroupParent: cgroupParent(), Runtimes: []string{need(t, program)}}
			users := runtime.ProbeUsers()
			if err := enterable(o.Dir); err != nil {
				t.Fatal(err)
			}
			spec := runtime.Spec{ID: "lost.record.1", Args: []string{"/bin/workload", "sleep"}, RootFS: []runtime.Mount{runtime.Overlay(layer)},
				UserNS: &users}
			for range 2 {
				d, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				h, err := d.Start(t.Context(), spec)
				if err != nil {
					t.Fatal(err)
				}
				task, err := d.Tasks.Get(h)
				if err != nil {
					t.Fatal(err)
				}
				// What a power failure takes: processes, cgroups, mounts.
				if err := errors.Join(task.End(t.Context()), unstage(task), unmountAll(d.Root(task)), task.Group().End(0), d.Close(),
					os.Truncate(task.Path("task.json"), 0)); err != nil {
					t.Fatal(err)
				}
				if d, err = New(o); err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				if err := d.Remove(context.Background(), runtime.Handle{ID: h.ID}); err != nil {
					t.Fatal(err)
				}
				if left, err := stateFiles(filepath.Join(o.Dir, program), h.ID); err != nil || len(left) > 0 {
					t.Errorf("left are %v, %v", left, err)
				}
			}
		})
	}
}
