//go:build linux

package monitor

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// A log that is rotated several times while who follows it does not read: all that is kept of it is read, once and in order.
func TestFollowThroughRotations(t *testing.T) {
	for rotations := 1; rotations <= 4; rotations++ {
		k, dir := newKeeper(slog.New(slog.NewTextHandler(io.Discard, nil))), t.TempDir()
		write := func(n int) {
			t.Helper()
			tmp := filepath.Join(dir, "tmp")
			if err := os.WriteFile(tmp, fmt.Appendf(nil, "2026-11-28T12:00:00Z stdout F line %d\n", n), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(tmp, filepath.Join(dir, "log")); err != nil {
				t.Fatal(err)
			}
			k.rotate(dir)
		}
		s := &stream{ctx: t.Context(), cancel: func() {}, dir: dir, follow: true, partial: map[string][]byte{}, keep: k,
			changed: make(chan struct{}, 1)}
		next := func(want int) {
			t.Helper()
			if e, err := s.Next(); err != nil || e.Line != fmt.Sprintf("line %d", want) {
				t.Fatalf("%d rotations: got %q, %v; want line %d", rotations, e.Line, err, want)
			}
		}
		write(0)
		write(1)
		if err := s.openFiles(); err != nil {
			t.Fatal(err)
		}
		next(0)
		next(1)
		for n := range rotations {
			write(2 + n)
		}
		s.exited.Store(true) // so that it ends instead of waiting
		for n := max(0, rotations-2); n < rotations; n++ {
			next(2 + n)
		}
		if e, err := s.Next(); err != io.EOF {
			t.Fatalf("%d rotations: got %q, %v; want the end", rotations, e.Line, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
