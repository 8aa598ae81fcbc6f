//go:build linux

package native

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

func cgroupParent() string { return fmt.Sprintf("skerry-test-native-%d", os.Getuid()) }

func open(dir string) (runtime.Driver, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return New(Options{
		Dir: dir, Shim: []string{exe, "shim"}, CgroupParent: cgroupParent(),
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "shim" {
		os.Exit(ShimMain(os.Args[2:]))
	}
	runtimetest.ChildMain(open)
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: cgroupParent(), HostRoot: true})
}
