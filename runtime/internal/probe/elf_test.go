package probe

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// TestProgram runs the program on the machine at hand, and on others where an emulator is installed.
func TestProgram(t *testing.T) {
	for arch, emulator := range map[string]string{"amd64": "qemu-x86_64", "arm64": "qemu-aarch64",
		"arm": "qemu-arm", "riscv64": "qemu-riscv64"} {
		t.Run(arch, func(t *testing.T) {
			b, ok := Program(arch)
			if !ok {
				t.Fatal("no program")
			}
			file := filepath.Join(t.TempDir(), "probe")
			if err := os.WriteFile(file, b, 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(file)
			if arch != runtime.GOARCH {
				path, err := exec.LookPath(emulator)
				if err != nil {
					path, err = exec.LookPath(emulator + "-static")
				}
				if errors.Is(err, exec.ErrNotFound) {
					t.Skip(&testenv.Unsupported{What: "programs for " + arch, Why: emulator + " is not installed; apt-get install qemu-user-static"})
				}
				cmd = exec.Command(path, file)
			}
			out, err := cmd.Output()
			var exit *exec.ExitError
			if string(out) != Line+"\n" || !errors.As(err, &exit) || exit.ExitCode() != Code {
				t.Errorf("printed %q, ended with %v", out, err)
			}
		})
	}
	if _, ok := Program("mips"); ok {
		t.Error("a program for an architecture nobody wrote")
	}
}
