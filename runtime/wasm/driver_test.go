//go:build linux

package wasm

import (
	"log/slog"
	"os"
	"testing"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

func openDriver(dir string) (runtime.Driver, error) {
	shim := runtimetest.Program()
	return New(Options{
		Dir: dir, Shim: []string{shim}, Run: []string{shim, "wasm-run"}, CgroupParent: runtimetest.CgroupParent(),
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

func TestMain(m *testing.M) { runtimetest.Main(m, "wasm", "./testdata/shim", openDriver) }

func TestCheck(t *testing.T) {
	d, err := openDriver(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 3 {
		r := d.Check(t.Context())
		t.Logf("%+v", r)
		if !r.Passed {
			t.Error("it failed")
		}
	}
}

func TestConformance(t *testing.T) {
	runtimetest.Run(t, runtimetest.Options{New: openDriver, CgroupParent: runtimetest.CgroupParent(), WASI: true})
}
