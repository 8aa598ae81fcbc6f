//go:build linux && amd64

package guest

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// nesting emulates a processor with AMD's virtualisation, in which KVM runs machines of its own. The rate of the clock must be given: the
// kernel would measure it against timers that are emulated, too, and one guest's clock went five times too fast. With two processors, or
// without the older timer, most machines in it stood still.
var nesting = hardware{machine: "q35", threads: "multi", cpus: "1", cpu: "max", memory: "3072", cmdline: "tsc_early_khz=2300000"}

var inner = flag.String("kvm", "", "which tests TestKVM runs, a regular expression; all when empty")

// TestKVM runs the tests of the drivers of machines with KVM, which most machines that run tests do not have: a Linux guest, unikernels and
// disks of others, in a guest whose processor is emulated.
func TestKVM(t *testing.T) {
	testenv.Long(t, "runtime/vm TestConformance, TestUnikernel and TestComputer, with an emulated processor where KVM does not work")
	disk := image(t, "qemu-system-x86", "lz4") // the second unpacks the kernel for Firecracker
	m := boot(t, nesting, disk, machines(t))
	m.must(t, "mkdir /payload && mount -o ro /dev/nvme1n1 /payload && modprobe kvm-amd && test -c /dev/kvm")
	r := m.patiently(t, 4*patience, "cd /root && PATH=/payload/bin:$PATH SKERRY_TEST_GUEST_KERNEL=/payload/kernel SKERRY_VM_TEST_NEED_KVM=1 /payload/built/vm.test"+
		" -test.v -test.timeout 3h -test.run '"+*inner+"' -test.skip '^TestCarriedInit$'") // it needs the source tree
	t.Logf("%d pass, %d skip\n%s", strings.Count(r.out, "--- PASS"), strings.Count(r.out, "--- SKIP"), r.out)
	if r.status != 0 {
		t.Errorf("the drivers of machines fail with KVM: %s\n%s", strings.Join(failures(r.out), " | "), r.err)
	}
}

// machines is what the guest is given: the tests, what they would compile, and a kernel for their guests.
func machines(t *testing.T) string {
	t.Helper()
	const root = "../.."
	dir := t.TempDir()
	built := filepath.Join(dir, "built")
	objects := filepath.Join(built, "gcc")
	err := errors.Join(os.CopyFS(dir, os.DirFS("testdata/payload")), os.MkdirAll(objects, 0o755),
		os.CopyFS(filepath.Join(dir, "kernel"), os.DirFS(testenv.GuestKernel(t))))
	if err != nil {
		t.Fatal(err)
	}
	suite := t.TempDir()
	testenv.SuiteDisk(t, root, suite)
	testenv.BootDisk(t, root, objects)
	system, err := os.ReadFile(filepath.Join(suite, "system.img"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"first": system[:512], "rest": system[512 : 127*512]}
	for name, file := range map[string]string{"greeter": testenv.Unikernel(t, root), "workload": testenv.SuiteUnikernel(t, root)} {
		if files[name], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(objects, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// they are in no package, and its tests say where they are not
	for _, name := range []string{"firecracker", "jailer", "cloud-hypervisor"} {
		file, _ := exec.LookPath(name)
		if data, err := os.ReadFile(file); err == nil {
			if err := os.WriteFile(filepath.Join(dir, "bin", name), data, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, pkg := range []string{"runtime/runtimetest/workload", "runtime/vm/testdata/run", "runtime/vm/testdata/echo"} {
		testenv.Build(t, filepath.Join(built, path.Base(pkg)), "skerry.dev/skerry/"+pkg)
	}
	cmd := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-o", filepath.Join(built, "vm.test"), "skerry.dev/skerry/runtime/vm")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return dir
}
