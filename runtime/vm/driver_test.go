//go:build linux && amd64

package vm

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
	"skerry.dev/skerry/spec"
)

// kernelEnv tells the agents that the suite starts and kills of the guest kernel.
const kernelEnv = "SKERRY_VM_TEST_KERNEL"

// needKVMEnv forbids the drivers to emulate, so that what passes has passed with KVM.
const needKVMEnv = "SKERRY_VM_TEST_NEED_KVM"

func options(dir string) Options {
	o := Options{
		Dir: dir, Command: []string{runtimetest.Program()}, CgroupParent: runtimetest.CgroupParent(), Kernel: os.Getenv(kernelEnv), Emulate: true,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if os.Getenv(needKVMEnv) != "" {
		o.Emulate, o.BootTimeout = false, 5*time.Minute // that KVM is emulated itself
	}
	return o
}

// kindEnv tells the agents which of the drivers is tested.
const kindEnv = "SKERRY_VM_TEST_KIND"

func open(dir string) (runtime.Driver, error) {
	switch os.Getenv(kindEnv) {
	case spec.RuntimeUnikernel:
		return NewUnikernels(applianceOptions(dir))
	case spec.RuntimeVM:
		return NewComputers(applianceOptions(dir))
	case MonitorFirecracker:
		o := options(dir)
		o.Monitor, o.BootTimeout = MonitorFirecracker, 5*time.Minute // this KVM may be emulated itself
		return New(o)
	}
	return New(options(dir))
}

func TestMain(m *testing.M) { runtimetest.Main(m, "vm", "./testdata/run", open) }

// TestConformance runs the suite with Linux guests, of which each takes seconds to start. Most of it shares one guest unless long tests are wanted.
func TestConformance(t *testing.T) {
	os.Setenv(kernelEnv, testenv.GuestKernel(t))
	runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: runtimetest.CgroupParent(), Machine: true, Brief: !testenv.Systems()})
}

func TestConformanceOfUnikernels(t *testing.T) {
	testenv.Long(t, "TestUnikernel, and TestConformance of the same driver's machines")
	conforms(t, spec.RuntimeUnikernel, runtimetest.Kernel(t, "../.."))
}

func TestConformanceOfComputers(t *testing.T) {
	testenv.Long(t, "TestComputer, and TestConformance of the same driver's machines")
	conforms(t, spec.RuntimeVM, runtimetest.Disk(t, "../.."))
}

// conforms runs the suite with machines whose system is their own.
func conforms(t *testing.T, kind string, s *runtimetest.System) {
	t.Setenv(kindEnv, kind)
	runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: runtimetest.CgroupParent(), OwnKernel: true, System: s})
}
