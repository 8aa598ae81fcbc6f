//go:build linux

package oci

import (
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

// TestLongPaths has a state directory and a task ID longer than a Unix socket's address.
func TestLongPaths(t *testing.T) {
	d, err := New(Options{Dir: filepath.Join(t.TempDir(), strings.Repeat("d", 200)), CgroupParent: cgroupParent()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	image := runtimetest.Image(t, runtimetest.Workload(t))
	h, err := d.Start(t.Context(), runtime.Spec{
		ID: runtime.TaskID(strings.Repeat("x", 200)), Args: []string{"/bin/workload", "exit", "4"},
		RootFS: []runtime.Mount{runtime.Overlay(image)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := d.Wait(t.Context(), h); err != nil || e.Code != 4 {
		t.Errorf("%+v, %v", e, err)
	}
	if err := d.Remove(t.Context(), h); err != nil {
		t.Error(err)
	}
}
