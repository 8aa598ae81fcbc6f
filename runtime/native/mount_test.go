//go:build linux

package native

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
)

// A device that root of a virtual machine made in a volume is none for a process of the host that gets the volume, read-only or not.
func TestDevicesInVolumes(t *testing.T) {
	d, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	source, target := t.TempDir(), t.TempDir()
	node := filepath.Join(source, "zero")
	const zero = 1<<8 | 5
	if err := errors.Join(unix.Mknod(node, unix.S_IFCHR|0o666, zero), os.Chmod(node, 0o666), os.Chmod(source, 0o755), os.Chmod(target, 0o755)); err != nil {
		t.Fatal(err)
	}
	read := func(id runtime.TaskID, m runtime.Mount) int {
		t.Helper()
		m.Type, m.Source, m.Target = "bind", source, target
		h, err := d.Start(t.Context(), runtime.Spec{ID: id, Args: []string{"/bin/sh", "-c", "head -c 1 " + target + "/zero >/dev/null"}, Mounts: []runtime.Mount{m}})
		if err != nil {
			t.Fatal(err)
		}
		exit, err := d.Wait(t.Context(), h)
		if err = errors.Join(err, d.Remove(t.Context(), h)); err != nil {
			t.Fatal(err)
		}
		return exit.Code
	}
	if code := read("devices.main.1", runtime.Mount{}); code != 0 {
		t.Fatalf("the device does not work at all: %d", code)
	}
	for i, readOnly := range []bool{false, true} {
		if read(runtime.TaskID("devices.main."+string(rune('2'+i))), runtime.Mount{Options: []string{"nosuid", "nodev"}, ReadOnly: readOnly}) == 0 {
			t.Errorf("the device was opened; read-only %v", readOnly)
		}
	}
}
