//go:build linux

package store_test

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/store"
)

// A store on a disk that was mounted read-only is not opened, the error says so, and nothing of it is lost.
func TestReadOnlyFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=16m"); errors.Is(err, unix.EPERM) {
		t.Skip(&testenv.Unsupported{What: "a read-only file system", Why: "mounting needs root"})
	} else if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	at := "sqlite:" + filepath.Join(dir, "a.db")
	s, err := store.Open(t.Context(), at, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), []store.Op{{Key: "a", Value: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []uintptr{unix.MS_RDONLY, 0} {
		if err := unix.Mount("none", dir, "", unix.MS_REMOUNT|readOnly, ""); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), at, store.Options{})
		if readOnly != 0 {
			if !errors.Is(err, store.ErrReadOnly) {
				t.Errorf("open: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if r, err := s.Get(t.Context(), "a"); err != nil || string(r.Value) != "x" {
			t.Errorf("%q, %v", r.Value, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
