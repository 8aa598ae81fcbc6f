//go:build linux

package runtimetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
)

const aloneEnv = "SKERRY_RUNTIME_TEST_ALONE"

// Alone re-executes the test program in a mount namespace of its own, so that nobody else sees what the tests mount, and nothing of it
// outlives them. TestMain calls it after ChildMain.
func Alone() {
	if os.Getenv(aloneEnv) == "" {
		os.Exit(again())
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// again runs the test program in the namespace.
func again() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), aloneEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// Hybrid makes the host look hybrid to the test program, or not, until the test ends: cgroup2 beside version 1 holds a controller, or none.
// It needs Alone. Where cgroup2 is not mounted beside version 1 the host cannot be hybrid, and the test is skipped.
func Hybrid(t testing.TB, hybrid bool) {
	t.Helper()
	const unified = "/sys/fs/cgroup/unified"
	var fs unix.Statfs_t
	if err := unix.Statfs(unified, &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		if hybrid {
			t.Skip(&testenv.Unsupported{What: "a hybrid host", Why: "cgroup2 is not mounted at " + unified})
		}
		return
	}
	list, text := filepath.Join(t.TempDir(), "controllers"), ""
	if hybrid {
		text = "hugetlb\n"
	}
	if err := os.WriteFile(list, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	file := unified + "/cgroup.controllers"
	if err := unix.Mount(list, file, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(file, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// Hide hides a program from the test program until the test ends. It needs Alone.
func Hide(t testing.TB, path string) {
	t.Helper()
	if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
