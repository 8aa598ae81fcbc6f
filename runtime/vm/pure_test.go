//go:build linux

package vm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"skerry.dev/skerry"
)

// TestCarriedInit builds the init of guests again: what the binary carries is made of the sources beside it.
func TestCarriedInit(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("./build-init.sh", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		name := "guestinit_" + arch + ".gz"
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want) {
			t.Errorf("%s is not what the sources give; run go generate ./runtime/vm", name)
		}
		if limit := 700_000; len(have) > limit {
			t.Errorf("%s has %d bytes, more than %d", name, len(have), limit)
		}
	}
}

// TestTakeImage closes a task's directory: the disk in it is readable.
func TestTakeImage(t *testing.T) {
	image, dir := t.TempDir(), filepath.Join(t.TempDir(), "task")
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	names := []string{diskFileName, "passwd", "group"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(image, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := takeImage(dir, image); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v", st, err)
	}
	for _, name := range names {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != name {
			t.Errorf("%s is %q, %v", name, data, err)
		}
	}
}

func TestProcessors(t *testing.T) {
	for limit, want := range map[skerry.MilliCPU]int{0: 1, 10: 1, 1000: 1, 1001: 2, 2500: 3} {
		if got := processors(limit); got != want {
			t.Errorf("%s: %d processors, not %d", limit, got, want)
		}
	}
}
