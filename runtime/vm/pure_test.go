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

func TestProcessors(t *testing.T) {
	for limit, want := range map[skerry.MilliCPU]int{0: 1, 10: 1, 1000: 1, 1001: 2, 2500: 3} {
		if got := processors(limit); got != want {
			t.Errorf("%s: %d processors, not %d", limit, got, want)
		}
	}
}
