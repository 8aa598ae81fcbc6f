//go:build linux

package loopfs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
)

const mebibyte = 1 << 20

// devices lists the loop devices that are attached to files below a directory.
func devices(t *testing.T, dir string) (out []string) {
	t.Helper()
	used, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, path := range used {
		if data, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(data), dir) {
			out = append(out, path)
		}
	}
	return out
}

func TestEnsure(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "mounts", Why: "they need root"})
	}
	root := t.TempDir()
	o := Options{Image: filepath.Join(root, "image"), Dir: filepath.Join(root, "data"), Size: 8 * mebibyte, Lasting: true}
	t.Cleanup(func() { _ = Release(o.Dir) })
	ensure := func(fresh bool) {
		t.Helper()
		switch got, err := Ensure(t.Context(), o); {
		case errors.Is(err, ErrMissing):
			t.Skip(&testenv.Unsupported{What: "loop devices", Why: err.Error()})
		case err != nil || got != fresh:
			t.Fatalf("fresh %v, %v", got, err)
		}
	}
	write := func(name string, size int) error {
		return os.WriteFile(filepath.Join(o.Dir, name), bytes.Repeat([]byte("x"), size), 0o600)
	}
	ensure(true)
	if list, _ := os.ReadDir(o.Dir); len(list) != 0 {
		t.Errorf("it begins with %v", list)
	}
	if err := write("kept", 1000); err != nil {
		t.Fatal(err)
	}
	if err := write("large", 16*mebibyte); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("more than its size: %v", err)
	}
	if err := os.Remove(filepath.Join(o.Dir, "large")); err != nil {
		t.Fatal(err)
	}
	ensure(false)

	// Unmounted while it is used, and mounted again: it is the same file system, from one device.
	held, err := os.Open(filepath.Join(o.Dir, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Release(o.Dir); err != nil {
		t.Fatal(err)
	}
	ensure(false)
	if n := len(devices(t, root)); n != 1 {
		t.Errorf("it is attached to %d devices", n)
	}

	o.Size = 32 * mebibyte
	ensure(false) // in use: another time
	held.Close()
	// The kernel gives the device up when nobody has it open any more, which includes those that look at new devices.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		o.Size = 32 * mebibyte
		ensure(false)
		err := write("large", 16*mebibyte)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.ENOSPC) || time.Now().After(deadline) {
			t.Fatalf("after it grew: %v", err)
		}
		if err := os.Remove(filepath.Join(o.Dir, "large")); err != nil {
			t.Fatal(err)
		}
	}
	o.Size = 8 * mebibyte
	ensure(false) // it does not shrink
	if data, err := os.ReadFile(filepath.Join(o.Dir, "kept")); err != nil || len(data) != 1000 {
		t.Errorf("what was written is %d bytes, %v", len(data), err)
	}
	if err := Release(o.Dir); err != nil {
		t.Fatal(err)
	}
	// Somebody may be looking at the device, as above.
	// A mount namespace that somebody made on this host in between has the mount, too, until it ends.
	for deadline := time.Now().Add(5 * time.Minute); len(devices(t, root)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("loop devices are left: %v", devices(t, root))
		}
	}

	// What was cut short counts as not made.
	broken := Options{Image: filepath.Join(root, "other"), Dir: filepath.Join(root, "other-data"), Size: 8 * mebibyte}
	if err := os.WriteFile(broken.Image+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if fresh, err := Ensure(t.Context(), broken); err != nil || !fresh {
		t.Errorf("after a try that was cut short: fresh %v, %v", fresh, err)
	}
	if err := Release(broken.Dir); err != nil {
		t.Fatal(err)
	}
}
