//go:build linux && amd64

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/probe"
	"skerry.dev/skerry/runtime/runtimetest"
)

// image makes a directory with the self-test's program.
func image(t *testing.T) string {
	t.Helper()
	program, _ := probe.Program("amd64")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "probe"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startsSilent starts a guest that never speaks: that fails in time, says what the console said, and leaves nothing.
func startsSilent(t *testing.T, qemu string) {
	t.Helper()
	dir := testenv.GuestKernel(t)
	kernel, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(kernel) != 1 {
		t.Fatal(kernel, err)
	}
	o := options(t.TempDir())
	o.Kernel, o.BootTimeout = kernel[0], 2*time.Second // without its modules the guest finds no port
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	k, err := d.openKernel()
	if err != nil {
		t.Fatal(err)
	}
	spec := runtime.Spec{ID: "silent.main.1", RootFS: []runtime.Mount{{Type: "bind", Source: image(t)}}, Args: []string{"/probe"}}
	_, err = d.start(t.Context(), spec, &choice{accel: "tcg", qemu: qemu, kernel: k})
	if se, ok := errors.AsType[*runtime.StartError](err); !ok || !strings.Contains(err.Error(), "said nothing for 2s") || se.Hint == "" {
		t.Errorf("got %v", err)
	}
	if hs, err := d.List(t.Context()); err != nil || len(hs) != 0 {
		t.Errorf("left: %v, %v", hs, err)
	}
}

func TestSilentGuest(t *testing.T) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Fatal(err)
	}
	startsSilent(t, qemu)
}

// TestKernelOfRootAlone has a kernel as Ubuntu's packages do, which only root may read: machines, whose users are nobody, get one that
// they can open.
func TestKernelOfRootAlone(t *testing.T) {
	given := filepath.Join(t.TempDir(), "vmlinuz-7.0")
	o := options(t.TempDir())
	o.Kernel = given
	d, err := New(o)
	if err != nil {
		t.Fatalf("open the driver: %v", err)
	}
	defer d.Close()
	for _, text := range []string{"a kernel", "another kernel"} {
		if err := os.WriteFile(given, []byte(text), 0o600); err != nil {
			t.Fatalf("write the kernel: %v", err)
		}
		k, err := d.openKernel()
		if err != nil {
			t.Fatalf("open the kernel: %v", err)
		}
		st, err := os.Stat(k.Path)
		data, _ := os.ReadFile(k.Path)
		if err != nil || st.Mode().Perm()&0o004 == 0 || string(data) != text || k.Version != "vmlinuz-7.0" {
			t.Errorf("the machines get %s with %q, %v, %v", k.Path, data, st.Mode(), err)
		}
		if images, _ := filepath.Glob(filepath.Join(o.Dir, "kernel", "*.image")); len(images) != 1 {
			t.Errorf("there are %v", images)
		}
	}
	if err := os.Chmod(given, 0o644); err != nil {
		t.Fatalf("let all read the kernel: %v", err)
	}
	if k, err := d.openKernel(); err != nil || k.Path != given {
		t.Errorf("one that all can read is %s, %v", k.Path, err)
	}
}

// TestKVMIsGivenUpFirst has a machine that is so slow that a guest gets as long as there is: the self-test gives up before vm-run does,
// which counts as a failure that may be tried again.
func TestKVMIsGivenUpFirst(t *testing.T) {
	if kvm, err := os.OpenFile(kvmDevice, os.O_RDWR, 0); err != nil {
		t.Skip(&testenv.Unsupported{What: "a guest with KVM", Why: err.Error()})
	} else {
		kvm.Close()
	}
	d, err := New(Options{Dir: t.TempDir(), Command: options("").Command, CgroupParent: runtimetest.CgroupParent()})
	if err != nil {
		t.Fatalf("open the driver: %v", err)
	}
	defer d.Close()
	slow := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\nexec sleep 0.1\n"), 0o755); err != nil {
		t.Fatalf("write the program: %v", err)
	}
	_ = d.tryKVM(t.Context(), &choice{qemu: slow}, func(ctx context.Context, c *choice) error {
		if until, _ := ctx.Deadline(); !until.Before(time.Now().Add(d.patience(c.accel))) {
			t.Errorf("a guest may be silent until %v, and vm-run waits for %s", until, d.patience(c.accel))
		}
		return nil
	})
}

// TestKVMThatInterprets has a KVM with which a guest uses a processor and gets nowhere: it is given up by what it has used, however long a
// busy machine would wait (its program takes long to say its version), and is not tried again.
func TestKVMThatInterprets(t *testing.T) {
	if kvm, err := os.OpenFile(kvmDevice, os.O_RDWR, 0); err != nil {
		t.Skip(&testenv.Unsupported{What: "a guest with KVM", Why: err.Error()})
	} else {
		kvm.Close()
	}
	dir := t.TempDir()
	qemu, starts := filepath.Join(dir, "qemu"), filepath.Join(dir, "starts")
	script := "#!/bin/sh\n[ \"$1\" = --version ] && exec sleep 0.1\necho >>" + starts + "\nwhile :; do :; done\n"
	err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755), os.WriteFile(qemu, []byte(script), 0o755),
		os.WriteFile(starts, nil, 0o666), os.Chmod(starts, 0o666))
	if err != nil {
		t.Fatalf("write the program: %v", err)
	}
	o := options(t.TempDir())
	o.QEMU, o.Enabled, o.Emulate = qemu, true, false
	d, err := NewUnikernels(o)
	if err != nil {
		t.Fatalf("open the driver: %v", err)
	}
	defer d.Close()
	for _, want := range []string{"s of a processor", "a guest did not come up with /dev/kvm since this"} {
		if r := d.Check(t.Context()); r.Passed || !strings.Contains(r.Cause, want) {
			t.Errorf("the self-test passed: %v, because of %q; want %q", r.Passed, r.Cause, want)
		}
	}
	if tried, err := os.ReadFile(starts); err != nil || len(tried) != 1 {
		t.Errorf("it was started %d times, %v; want once", len(tried), err)
	}
}

// TestWorkOfBefore has what is left of an earlier self-test: what it used does not end the next one.
func TestWorkOfBefore(t *testing.T) {
	for _, grows := range []bool{false, true} {
		used := time.Minute
		s := &selfTest{used: func() time.Duration {
			if grows {
				used += time.Second
			}
			return used
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ended := false
		if s.watch(ctx, 2*time.Second, func(error) { ended = true }); ended != grows {
			t.Errorf("the work grows: %v; the try was ended: %v", grows, ended)
		}
	}
}

// TestGuestWithoutClock has an emulator whose guest finds no clock, twice; the third one is silent.
func TestGuestWithoutClock(t *testing.T) {
	dir := t.TempDir()
	starts, qemu := filepath.Join(dir, "starts"), filepath.Join(dir, "qemu")
	script := fmt.Sprintf(`#!/bin/sh
read -r n < %[1]s
echo $((n+1)) > %[1]s
[ $n -ge 2 ] || echo 'APIC frequency too slow, %[2]s' >&3
exec sleep 1000
`, starts, noClock)
	err := errors.Join(os.WriteFile(starts, []byte("0\n"), 0o600), os.Chmod(starts, 0o666),
		os.WriteFile(qemu, []byte(script), 0o700), os.Chmod(qemu, 0o755),
		os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)) // the emulator is a user that nobody else is
	if err != nil {
		t.Fatal(err)
	}
	startsSilent(t, qemu)
	if n, err := os.ReadFile(starts); err != nil || string(n) != "3\n" {
		t.Errorf("it was started %q times, %v", n, err)
	}
}

// TestKernels are those that are refused, before anything boots.
func TestKernels(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vmlinuz")
	if err := os.WriteFile(file, []byte("kernel"), 0o644); err != nil {
		t.Fatal(err)
	}
	const digest = "2da8f4ae4d6a8ac0b3d3cc8ac5d4e0c5a5b2d3cdf7a1f2d45d8f3f8f7a2c9d11"
	for name, c := range map[string]struct {
		kernel, sum, cause string
		absent             bool
	}{
		"none":          {cause: "no guest kernel is given", absent: true},
		"missing":       {kernel: "/no/such", cause: "no such file"},
		"empty":         {kernel: t.TempDir(), cause: "has 0 files boot/vmlinu*"},
		"another pin":   {kernel: file, sum: digest, cause: "not " + digest},
		"another, long": {kernel: file, sum: "sha256:" + digest, cause: "not " + digest},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t.TempDir())
			o.Kernel, o.KernelSHA256 = c.kernel, c.sum
			d, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			r := d.Check(t.Context())
			if r.Passed || !strings.Contains(r.Cause, c.cause) || r.Cure == "" || r.Absent != c.absent {
				t.Errorf("%+v", r)
			}
			spec := runtime.Spec{ID: "none.main.1", RootFS: []runtime.Mount{{Type: "bind", Source: image(t)}}, Args: []string{"/probe"}}
			if _, err := d.Start(t.Context(), spec); err == nil {
				t.Error("it was started")
			}
		})
	}
}

// TestPinWithoutBalloon boots a kernel whose digest was pinned when guests had no balloon, without that module.
func TestPinWithoutBalloon(t *testing.T) {
	dir := t.TempDir()
	modules := filepath.Join(dir, "lib", "modules", "6")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "boot"), 0o755), os.MkdirAll(modules, 0o755)); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(dir, "boot", "vmlinuz-6")
	disk, own := filepath.Join(modules, "virtio_blk.ko"), filepath.Join(modules, balloon+".ko.xz")
	for _, file := range []string{image, disk, own} {
		if err := os.WriteFile(file, []byte(filepath.Base(file)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	open := func(pin string) (kernel, []byte, error) {
		o := options(t.TempDir())
		o.Kernel, o.KernelSHA256 = dir, pin
		d, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		k, err := d.openKernel()
		initrd, _ := os.ReadFile(k.Initrd)
		return k, initrd, err
	}
	former, err := digestOf(image, []string{disk})
	if err != nil {
		t.Fatal(err)
	}
	for pin, with := range map[string]bool{former: false, "": true} {
		k, initrd, err := open(pin)
		if err != nil || bytes.Contains(initrd, []byte(filepath.Base(own))) != with || !bytes.Contains(initrd, []byte("virtio_blk.ko")) {
			t.Errorf("pinned to %q: %+v, %v", pin, k, err)
		}
	}
	if err := os.WriteFile(disk, []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(former); err == nil {
		t.Error("another module was taken")
	}
}

// TestDiskCache makes disks of two images, one of layers, where there is room for none: only the last is kept, and one whose
// layer is gone is not.
func TestDiskCache(t *testing.T) {
	o := options(t.TempDir())
	o.CacheMax = 1
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	kept := func() int {
		disks, _ := filepath.Glob(filepath.Join(o.Dir, "disks", "*", diskFileName))
		return len(disks)
	}
	one, upper, lower := image(t), t.TempDir(), image(t)
	if err := errors.Join(os.Mkdir(filepath.Join(upper, "etc"), 0o755), os.WriteFile(filepath.Join(upper, "etc/passwd"), []byte("mule:x:7:8::/:/\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	first, err := d.ensureDisk(t.Context(), []string{one})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.ensureDisk(t.Context(), []string{one}); err != nil || again != first || kept() != 1 {
		t.Errorf("the same disk is %s, %v; %d are kept", again, err, kept())
	}
	layered, err := d.ensureDisk(t.Context(), []string{upper, lower})
	if err != nil || kept() != 1 {
		t.Fatalf("%v; %d are kept", err, kept())
	}
	if u, err := lookupUser(layered, "mule"); err != nil || u.UID != 7 || u.GID != 8 {
		t.Errorf("user %+v, %v", u, err)
	}
	out, err := exec.Command("debugfs", "-R", "ls -p /", filepath.Join(layered, diskFileName)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "/probe/") || !strings.Contains(string(out), "/etc/") {
		t.Errorf("%v\n%s", err, out)
	}
	if err := os.RemoveAll(lower); err != nil {
		t.Fatal(err)
	}
	d.cutCache("")
	if kept() != 0 {
		t.Errorf("%d disks are kept of what is gone", kept())
	}
	if mounts := testenv.Mounts(o.Dir); len(mounts) > 0 {
		t.Errorf("mounts are left: %v", mounts)
	}
}
