//go:build linux

package hybrid

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/thread"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }

// world runs f in a mount namespace where cgroup2 holds a controller beside version 1, and mounts have the given propagation.
func world(t *testing.T, propagation uintptr, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "mounts", Why: "they need root"})
	}
	list := filepath.Join(t.TempDir(), "controllers")
	if err := os.WriteFile(list, []byte("hugetlb\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(unified, &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		t.Skip(&testenv.Unsupported{What: "a hybrid host", Why: "cgroup2 is not mounted at " + unified})
	}
	thread.Run(func() {
		if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(list, controllers, "", unix.MS_BIND, ""), unix.Mount("", "/", "", unix.MS_REC|propagation, "")); err != nil {
			t.Error(err)
			return
		}
		f()
	})
}

// emulator returns the command that runs a program of another architecture.
func emulator(t *testing.T, arch string) []string {
	t.Helper()
	if arch == runtime.GOARCH {
		return nil
	}
	name := map[string]string{"amd64": "qemu-x86_64", "arm64": "qemu-aarch64", "arm": "qemu-arm", "riscv64": "qemu-riscv64"}[arch]
	for _, n := range []string{name, name + "-static"} {
		if path, err := exec.LookPath(n); err == nil {
			return []string{path}
		}
	}
	t.Skip(&testenv.Unsupported{What: "programs for " + arch, Why: name + " is not installed; apt-get install qemu-user-static"})
	return nil
}

// The stand-in hides the controllers from the runtime and passes arguments and environment on. It changes nothing that others see, nor the
// propagation of other mounts.
func TestProgram(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(&testenv.Unsupported{What: "a program to run", Why: err.Error()})
	}
	const script = `echo "$# $1 $2 [$(cat ` + controllers + `)] $A $(readlink /proc/self/ns/mnt)"; grep -c ' / / .* shared:' /proc/self/mountinfo; true`
	for _, arch := range []string{"amd64", "arm64", "arm", "riscv64"} {
		for name, propagation := range map[string]uintptr{"private": unix.MS_PRIVATE, "shared": unix.MS_SHARED} {
			t.Run(arch+" "+name, func(t *testing.T) {
				before := emulator(t, arch)
				file, err := write(filepath.Join(t.TempDir(), "hybrid"), arch, shell, true)
				if err != nil {
					t.Fatal(err)
				}
				world(t, propagation, func() {
					own, _ := os.Readlink("/proc/thread-self/ns/mnt")
					words := append(before, file, "-c", script, "0", "one", "2 two")
					cmd := exec.Command(words[0], words[1:]...)
					cmd.Env = append(os.Environ(), "A=b")
					out, err := cmd.CombinedOutput()
					lines := strings.Split(string(out), "\n")
					if err != nil || len(lines) != 3 || !strings.HasPrefix(lines[0], "2 one 2 two [] b mnt:") ||
						strings.Contains(lines[0], own) {
						t.Errorf("it said %q, ended with %v", out, err)
					} else if shared := lines[1] == "1"; shared != (propagation == unix.MS_SHARED) {
						t.Errorf("the root is mounted otherwise: %q", out)
					}
					if data, err := os.ReadFile(controllers); err != nil || string(data) != "hugetlb\n" {
						t.Errorf("outside, the controllers are %q, %v", data, err)
					}
				})
			})
		}
	}
	for _, arch := range []string{"amd64", "arm64", "arm", "riscv64"} {
		t.Run(arch+" that hides nothing", func(t *testing.T) {
			before := emulator(t, arch)
			file, err := write(t.TempDir(), arch, shell, false)
			if err != nil {
				t.Fatal(err)
			}
			own, err := os.Readlink("/proc/self/ns/mnt")
			if err != nil {
				t.Fatal(err)
			}
			words := append(before, file, "-c", `echo "$# $1 $(readlink /proc/self/ns/mnt)"`, "0", "one", "2 two")
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil || string(out) != "2 one "+own+"\n" {
				t.Errorf("it said %q, ended with %v", out, err)
			}
		})
	}
	if _, ok := Program("mips", shell, true); ok {
		t.Error("a program for an architecture nobody wrote")
	}
}

// No container can write to the runtime through /proc, not even as root of the host and while it does not run, and the runtime knows. Its
// file stays as it was for others, and what it is called with arrives.
func TestRuntimeIsReadOnly(t *testing.T) {
	for what, hide := range map[string]bool{"alone": false, "and hides": true} {
		t.Run(what, func(t *testing.T) { runtimeIsReadOnly(t, hide) })
	}
}

func runtimeIsReadOnly(t *testing.T, hide bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "mounts", Why: "they need root"})
	}
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "sh")
	if err := os.WriteFile(own, shell, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := write(t.TempDir(), runtime.GOARCH, own, hide)
	if err != nil {
		t.Fatal(err)
	}
	const script = `test -w /proc/$$/exe && echo writable; echo "$# $1 $A"; ls /proc/$$/fd | grep -c 1000; read stop`
	cmd := exec.Command(file, "-c", script, "0", "one two")
	cmd.Env = append(os.Environ(), "A=b")
	var out, said bytes.Buffer
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A descriptor that an attacker keeps, to write through when the runtime has ended.
	exe := fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)
	kept, err := os.Open(exe)
	for err == nil && strings.Contains(name(t, kept), file) { // the stand-in is still itself
		kept.Close()
		kept, err = os.Open(exe)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(kept.Fd()), &fs); err != nil || fs.Flags&unix.ST_RDONLY == 0 {
		if errors.Is(unix.MountSetattr(-1, "", 0, &unix.MountAttr{}), unix.ENOSYS) {
			t.Skip(&testenv.Unsupported{What: "attributes of mounts", Why: "they need Linux 5.12"})
		}
		t.Errorf("the runtime is not on a read-only mount: flags %#x, %v", fs.Flags, err)
	}
	in.Close()
	if err := cmd.Wait(); out.String() != "1 one two b\n0\n" {
		t.Errorf("it said %q, %q, ended with %v", out.String(), said.String(), err)
	}
	if f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", kept.Fd()), os.O_WRONLY, 0); !errors.Is(err, unix.EROFS) {
		f.Close()
		t.Errorf("a kept descriptor is opened for writing: %v", err)
	}
	if f, err := os.OpenFile(own, os.O_WRONLY, 0); err != nil {
		t.Errorf("its owner cannot write to it any more: %v", err)
	} else {
		f.Close()
	}
}

func name(t *testing.T, f *os.File) string {
	t.Helper()
	to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// Where there is nothing to hide the runtime runs all the same.
func TestNothingToHide(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "mounts", Why: "they need root"})
	}
	file, err := write(t.TempDir(), runtime.GOARCH, "/bin/sh", true)
	if err != nil {
		t.Fatal(err)
	}
	thread.Run(func() {
		if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("none", "/sys/fs/cgroup", "tmpfs", 0, "")); err != nil {
			t.Error(err)
			return
		}
		if out, err := exec.Command(file, "-c", "echo here").CombinedOutput(); err != nil || string(out) != "here\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	crun := filepath.Join(dir, "crun")
	if _, err := write(filepath.Join(dir, "hybrid"), runtime.GOARCH, crun, true); err == nil {
		t.Error("a program in place of nothing")
	}
	if err := os.WriteFile(crun, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := write(filepath.Join(dir, "hybrid"), runtime.GOARCH, crun, true)
	if err != nil || file != filepath.Join(dir, "hybrid", "crun") {
		t.Fatal(file, err)
	}
	var exit *exec.ExitError
	if err := exec.Command(file).Run(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("it ended with %v", err)
	}
	was, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(crun); err != nil || !st.ModTime().Equal(was.ModTime()) {
		t.Errorf("of %v, the runtime of %v", was.ModTime(), st.ModTime())
	}
	if _, err := write(filepath.Join(dir, "hybrid"), runtime.GOARCH, crun, true); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(file); err != nil || !os.SameFile(st, was) {
		t.Error("it was written again, and is the same")
	}
	if err := os.Remove(crun); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(file).CombinedOutput(); !errors.As(err, &exit) || exit.ExitCode() != 127 || string(out) != "cannot run "+crun+"\n" {
		t.Errorf("without the runtime it said %q, and ended with %v", out, err)
	}
}
