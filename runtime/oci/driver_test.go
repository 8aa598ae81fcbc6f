//go:build linux

package oci

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/runtimetest"
)

const runtimeEnv = "SKERRY_OCI_TEST_RUNTIME"

const parentEnv = "SKERRY_OCI_TEST_CGROUP"

// cgroupParent is this run's own; the agents that the suite kills inherit it.
func cgroupParent() string { return os.Getenv(parentEnv) }

func open(dir string) (runtime.Driver, error) {
	var rts []string
	if r := os.Getenv(runtimeEnv); r != "" {
		rts = []string{r}
	}
	return New(Options{Dir: dir, CgroupParent: cgroupParent(), Runtimes: rts, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
}

func TestMain(m *testing.M) {
	runtimetest.ChildMain(open)
	if os.Getenv("SKERRY_OCI_TEST_INNER") == "" {
		os.Exit(inner())
	}
	// What follows runs in a mount namespace of its own.
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv(parentEnv, fmt.Sprintf("skerry-test-oci-%d", os.Getpid()))
	code := m.Run()
	if err := removeParent(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// removeParent fails when a test has left something running.
func removeParent() error {
	tree, err := cgroup.Open()
	if err != nil {
		return err
	}
	return tree.Group(cgroupParent()).Remove()
}

// inner runs the tests in a mount namespace, so that crun's missing hierarchy can be mounted for them alone, and nothing
// they mount can outlive them.
func inner() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), "SKERRY_OCI_TEST_INNER=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// prepare binds the one controller that crun 1.8 misses on a hybrid machine, as Check advises an operator to do.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup/unified", &fs); err != nil {
		return nil // not hybrid
	}
	const dir = "/sys/fs/cgroup/hugetlb"
	if _, err := os.Stat(dir + "/tasks"); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return unix.Mount("cgroup", dir, "cgroup", 0, "hugetlb")
}

func TestConformance(t *testing.T) {
	for _, program := range []string{"crun", "runc"} {
		t.Run(program, func(t *testing.T) {
			if lookPath(program) == "" {
				t.Skip(&runtime.Unsupported{Driver: "oci", Reason: program + " is not installed"})
			}
			t.Setenv(runtimeEnv, program)
			runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: cgroupParent()})
		})
	}
}
