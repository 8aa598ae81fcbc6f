//go:build linux && amd64

package vm

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/internal/monitor"
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
	switch kind := os.Getenv(kindEnv); kind {
	case spec.RuntimeUnikernel:
		return NewUnikernels(applianceOptions(dir))
	case spec.RuntimeVM:
		return NewComputers(applianceOptions(dir))
	case MonitorFirecracker, MonitorCloudHypervisor:
		o := options(dir)
		o.Monitor, o.BootTimeout = kind, 5*time.Minute // this KVM may be emulated itself
		return New(o)
	}
	return New(options(dir))
}

func TestMain(m *testing.M) { runtimetest.Main(m, "vm", "./testdata/run", open) }

// TestConformance runs the suite with Linux guests, of which each takes seconds to start. Most of it shares one guest
// unless long tests are wanted.
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

// TestWhatOutlivesItsSupervisor ends a machine whose vm-run was killed: the kernel forgets, when the jailer changes the
// user, that Firecracker ends with it.
func TestWhatOutlivesItsSupervisor(t *testing.T) {
	o := options(t.TempDir())
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	task, err := d.base.Tasks.Create(monitor.Record{Handle: runtime.Handle{ID: "left"}, Cgroup: path.Join(o.CgroupParent, "left")})
	if err != nil {
		t.Fatal(err)
	}
	task.Unlock()
	defer func() { _ = d.Remove(t.Context(), runtime.Handle{ID: "left"}) }()
	if err := task.Group().Create(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	left := exec.Command("sleep", "1000")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	defer left.Wait()
	defer left.Process.Kill()
	for _, dir := range task.Group().Dirs() {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, left.Process.Pid), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(task.ExitFile(), []byte("137"), 0o600); err != nil { // as conmon writes of vm-run
		t.Fatal(err)
	}
	if e, err := d.Wait(t.Context(), runtime.Handle{ID: "left"}); err != nil || e.Code != 137 {
		t.Errorf("it ended with %+v, %v", e, err)
	}
	if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", left.Process.Pid)); !strings.Contains(string(stat), ") Z ") {
		t.Errorf("it runs on: %s", stat)
	}
}
