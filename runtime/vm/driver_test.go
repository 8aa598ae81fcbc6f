//go:build linux && amd64

package vm

import (
	"log/slog"
	"os"
	"testing"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

// kernelEnv tells the agents that the suite starts and kills of the guest kernel.
const kernelEnv = "SKERRY_VM_TEST_KERNEL"

func options(dir string) Options {
	return Options{
		Dir: dir, Command: []string{runtimetest.Program()}, CgroupParent: runtimetest.CgroupParent(), Kernel: os.Getenv(kernelEnv), Emulate: true,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

func open(dir string) (runtime.Driver, error) { return New(options(dir)) }

func TestMain(m *testing.M) { runtimetest.Main(m, "vm", "./testdata/run", open) }

func TestConformance(t *testing.T) {
	os.Setenv(kernelEnv, testenv.GuestKernel(t))
	runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: runtimetest.CgroupParent(), Machine: true})
}
