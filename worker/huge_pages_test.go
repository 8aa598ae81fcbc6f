//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

func TestHugePages(t *testing.T) {
	sys := t.TempDir()
	for dir, text := range map[string]string{"hugepages-2048kB": "64\n", "hugepages-1048576kB": "none\n"} {
		if err := os.Mkdir(filepath.Join(sys, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sys, dir, "nr_hugepages"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := hugePages(sys); got != (spec.HugePages{Size2Mi: 128 * skerry.MiB}) {
		t.Errorf("%+v", got)
	}
}
