//go:build linux

package oci

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

// TestStartByCommand is the way taken when crun's pipe is not what it was.
func TestStartByCommand(t *testing.T) {
	d, err := New(Options{Dir: t.TempDir(), CgroupParent: cgroupParent(), Runtimes: []string{"crun", "runc"}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.byCommand = true
	h, err := d.Start(t.Context(), runtime.Spec{
		ID: "by-command.main.1", Args: []string{"/bin/workload", "exit", "6"},
		RootFS: []runtime.Mount{runtime.Overlay(runtimetest.Image(t, runtimetest.Workload(t)))},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Remove(t.Context(), h)
	if e, err := d.Wait(t.Context(), h); err != nil || e.Code != 6 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestWritePipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "exec.fifo")
	if writePipe(path) {
		t.Error("wrote into nothing")
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if writePipe(path) {
		t.Error("wrote to nobody")
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("the pipe is gone though nobody was released")
	}
	got := make(chan byte)
	go func() {
		f, err := os.Open(path)
		if err != nil {
			close(got)
			return
		}
		defer f.Close()
		var b [1]byte
		_, _ = f.Read(b[:])
		got <- b[0] + 1
	}()
	for deadline := time.Now().Add(time.Minute); !writePipe(path); {
		if time.Now().After(deadline) {
			t.Fatal("the reader is not seen")
		}
	}
	if b := <-got; b != 1 {
		t.Errorf("the reader got %d", b)
	}
}
