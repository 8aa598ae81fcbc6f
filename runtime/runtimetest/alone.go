//go:build linux

package runtimetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const aloneEnv = "SKERRY_RUNTIME_TEST_ALONE"

// Alone goes on in a mount namespace of the test program's own, so that crun's missing hierarchy can be mounted for the tests alone, and nothing they
// mount can outlive them. TestMain calls it after ChildMain.
func Alone() {
	if os.Getenv(aloneEnv) == "" {
		os.Exit(again())
	}
	if err := addHugetlb(); err != nil {
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

// addHugetlb binds the one controller that crun 1.8 misses on a hybrid machine, as Check advises an operator to do. It does
// so in a copy of the directory of hierarchies, so that the machine's own stays as it is.
func addHugetlb() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	const root = "/sys/fs/cgroup"
	var fs unix.Statfs_t
	if err := unix.Statfs(root+"/unified", &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil // not hybrid
	}
	if unix.Statfs(root+"/hugetlb", &fs) == nil && fs.Type == unix.CGROUP_SUPER_MAGIC {
		return nil
	}
	copied, err := os.MkdirTemp("", "cgroup")
	if err != nil {
		return err
	}
	defer os.Remove(copied)
	if err := unix.Mount("tmpfs", copied, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join(root, e.Name()), filepath.Join(copied, e.Name())
		if !e.IsDir() || e.Name() == "hugetlb" {
			continue
		}
		if err := errors.Join(os.Mkdir(to, 0o755), unix.Mount(from, to, "", unix.MS_BIND, "")); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Mkdir(copied+"/hugetlb", 0o755), unix.Mount("cgroup", copied+"/hugetlb", "cgroup", 0, "hugetlb")); err != nil {
		return err
	}
	return unix.Mount(copied, root, "", unix.MS_MOVE, "")
}
