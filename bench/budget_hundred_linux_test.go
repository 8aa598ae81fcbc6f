package bench

import (
	"os"
	"path/filepath"
	"testing"
)

// Kernel memory that nobody tells is not 0: what an instance costs would be too little by it.
func TestKernelMemory(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		want       float64
		fails      bool
	}{
		"version 1":               {"memory/w1/memory.kmem.usage_in_bytes", "4096\n", 4096, false},
		"version 2":               {"w1/memory.stat", "anon 1\nkernel 8192\nkernel_stack 3\n", 8192, false},
		"an older kernel":         {"w1/memory.stat", "anon 1\nkernel_stack 3\n", 0, true},
		"neither":                 {"w2/memory.stat", "kernel 1\n", 0, true},
		"what is no number of it": {"memory/w1/memory.kmem.usage_in_bytes", "much\n", 0, true},
	} {
		root := t.TempDir()
		path := filepath.Join(root, c.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := cgroupKernelMemory(root, "w1"); (err != nil) != c.fails || got != c.want {
			t.Errorf("%s: got %v, %v; want %v, and an error: %v", name, got, err, c.want, c.fails)
		}
	}
}
