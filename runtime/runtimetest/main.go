//go:build linux

package runtimetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
)

// What the agents inherit that the suite starts and kills.
const (
	cgroupEnv  = "SKERRY_RUNTIME_TEST_CGROUP"
	programEnv = "SKERRY_RUNTIME_TEST_PROGRAM"
)

// CgroupParent is where the driver under Main makes its groups, which is this run's own.
func CgroupParent() string { return os.Getenv(cgroupEnv) }

// Program is the path of the program that Main built.
func Program() string { return os.Getenv(programEnv) }

// Main is TestMain for a driver whose tasks are begun by a program of ours, of which a small copy is built from pkg: as the test program
// itself, with the race detector in it, it would take most of the time. The cgroup that the tests share must be empty in the end.
func Main(m *testing.M, driver, pkg string, open func(dir string) (runtime.Driver, error)) {
	ChildMain(open)
	os.Exit(run(m, driver, pkg))
}

func run(m *testing.M, driver, pkg string) int {
	dir, err := os.MkdirTemp("", "program")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, out)
		return 1
	}
	os.Setenv(programEnv, program)
	os.Setenv(cgroupEnv, fmt.Sprintf("skerry-test-%s-%d", driver, os.Getpid()))
	return testenv.Main(checked{m}, testenv.Options{Cgroup: CgroupParent()})
}

// checked are the tests, after which the cgroup that they share is removed.
type checked struct{ *testing.M }

func (c checked) Run() int {
	code := c.M.Run()
	tree, err := cgroup.Open()
	if err == nil {
		err = tree.Group(CgroupParent()).Remove()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
