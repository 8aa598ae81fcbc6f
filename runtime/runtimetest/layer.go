//go:build linux

package runtimetest

import (
	"os"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/internal/diskuse"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// layer measures what a task wrote, a file that it deleted and holds among it, and drops it once the task has exited. Of machines the
// disk is measured: when a guest writes there is its own business.
func (s *suite) layer(t *testing.T) {
	d, ok := s.d.(runtime.Layered)
	if !ok || slices.Contains([]string{spec.RuntimeNative, spec.RuntimeWasm, spec.RuntimeUnikernel}, s.d.Name()) {
		t.Skip("its tasks have no layer on the disk")
	}
	sp := s.spec("hoard", "/gone", "8")
	handle := s.start(t, sp)
	var l runtime.Layer
	var use diskuse.Use
	for deadline := time.Now().Add(5 * time.Minute); use.Bytes < 8<<20; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v in %+v", use, l)
		}
		var err error
		if l, err = d.Layer(t.Context(), handle); err != nil || l.Dir == "" && len(l.Files) == 0 {
			t.Fatalf("%+v, %v", l, err)
		}
		if len(l.Files) > 0 {
			if use, err = diskuse.Of(l.Files, nil, l.Procs, diskuse.Use{}); err != nil || use.Bytes == 0 || use.Files != int64(len(l.Files)) {
				t.Errorf("%+v in %+v, %v", use, l, err)
			}
			break
		}
		if use, err = diskuse.Of([]string{l.Dir}, []string{l.Root}, l.Procs, diskuse.Use{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.DropLayer(t.Context(), handle); err == nil {
		t.Error("the layer of a task that runs was dropped")
	}
	if err := s.d.Stop(t.Context(), handle, 0); err != nil {
		t.Fatal(err)
	}
	s.wait(t, s.d, handle)
	if err := d.DropLayer(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
	for _, path := range append(l.Files, l.Dir) {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	if err := s.d.Remove(t.Context(), handle); err != nil {
		t.Error(err)
	}
}
