//go:build linux

package native

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/runtimetest"
)

const parentEnv = "SKERRY_NATIVE_TEST_CGROUP"

// cgroupParent is this run's own; the agents that the suite kills inherit it.
func cgroupParent() string { return os.Getenv(parentEnv) }

const shimEnv = "SKERRY_NATIVE_TEST_SHIM"

func open(dir string) (runtime.Driver, error) {
	return New(Options{
		Dir: dir, Shim: []string{os.Getenv(shimEnv)}, CgroupParent: cgroupParent(),
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

func TestMain(m *testing.M) {
	runtimetest.ChildMain(open)
	os.Exit(run(m))
}

// run builds the shim apart: as the test program itself, with the race detector in it, it would take most of the time.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "shim")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	shim := filepath.Join(dir, "shim")
	cmd := exec.Command("go", "build", "-o", shim, "./testdata/shim")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the shim: %v\n%s", err, out)
		return 1
	}
	os.Setenv(shimEnv, shim)
	os.Setenv(parentEnv, fmt.Sprintf("skerry-test-native-%d", os.Getpid()))
	return testenv.Main(checked{m}, testenv.Options{Cgroup: cgroupParent()})
}

// checked are the tests, after which the cgroup that they share is removed.
type checked struct{ *testing.M }

func (c checked) Run() int {
	code := c.M.Run()
	tree, err := cgroup.Open()
	if err == nil {
		err = tree.Group(cgroupParent()).Remove()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestConformance(t *testing.T) {
	runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: cgroupParent(), HostRoot: true})
}
