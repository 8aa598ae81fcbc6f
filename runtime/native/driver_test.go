//go:build linux

package native

import (
	"log/slog"
	"os"
	"testing"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

func open(dir string) (runtime.Driver, error) {
	return New(Options{
		Dir: dir, Shim: []string{runtimetest.Program()}, CgroupParent: runtimetest.CgroupParent(),
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

func TestMain(m *testing.M) { runtimetest.Main(m, "native", "./testdata/shim", open) }

func TestConformance(t *testing.T) {
	runtimetest.Run(t, runtimetest.Options{New: open, CgroupParent: runtimetest.CgroupParent(), HostRoot: true})
}
