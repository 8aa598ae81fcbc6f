package orchestrator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An adapter that prints without end is ended.
func TestAdapterPrintsTooMuch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "adapter")
	if err := os.WriteFile(file, []byte("#!/bin/sh\nyes\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	one := &adapter{file: file}
	if out, err := one.call(t.Context(), time.Minute, "deploy"); err == nil || !strings.Contains(err.Error(), "were printed") {
		t.Errorf("%d bytes were taken: %v", len(out), err)
	}
}
