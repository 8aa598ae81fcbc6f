//go:build linux

package worker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/internal/tier"
)

// When nothing depends on the contact with the cluster any more, the guard is told so, and does not go by the list of before for ever.
func TestNoLeasesAreToldToo(t *testing.T) {
	dir := t.TempDir()
	l, err := newLeases(dir, "skerry-test-none", []string{"/bin/false"})
	if err != nil {
		t.Fatal(err)
	}
	l.up, l.log, l.post = func() *tier.Up { return nil }, slog.New(slog.DiscardHandler), func(any) {}
	file := filepath.Join(dir, LeaseDir, "leases.json")
	if err := os.WriteFile(file, []byte(`[{"instance":"gone-1","stop":1,"kill":2}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var keeps sync.WaitGroup
	keeps.Go(func() { l.keep(ctx) })
	defer keeps.Wait()
	defer cancel()
	l.want(nil)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if data, err := os.ReadFile(file); err == nil && string(data) == "[]" {
			return
		} else if time.Now().After(end) {
			t.Fatalf("the guard's list is %s, %v", data, err)
		}
	}
}
