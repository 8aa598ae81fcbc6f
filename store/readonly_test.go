//go:build linux

package store_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
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

// TestFrozen: a store on a disk that was mounted read-only, after a crash that left much in its log, is read, also what is in the log;
// commits are refused with the reason until the disk can be written, and what was committed then is in the file. Nothing is left of the
// copy, and only one process has the store.
func TestFrozen(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=16m"); errors.Is(err, unix.EPERM) {
		t.Skip(&testenv.Unsupported{What: "a read-only file system", Why: "mounting needs root"})
	} else if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	ctx, crashed := t.Context(), filepath.Join(dir, "crashed")
	if err := os.Mkdir(crashed, 0o700); err != nil {
		t.Fatal(err)
	}
	running, err := store.Open(ctx, "sqlite:"+filepath.Join(dir, "a.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rev, err := running.Commit(ctx, []store.Op{{Key: "a", Value: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.db", "a.db-wal", "a.db.head", "a.db.lock"} { // as a crash leaves them
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(crashed, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := running.Close(); err != nil {
		t.Fatal(err)
	}
	remount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("none", dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	url := "sqlite:" + filepath.Join(crashed, "a.db")
	copies := func() int {
		list, err := filepath.Glob("/dev/shm/skerry-read-only-*")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := copies()
	remount(unix.MS_RDONLY)
	for n := range 2 { // closed without ever being writable, and opened again
		s, thawed, err := store.OpenFrozen(ctx, url, store.Options{})
		if err != nil || thawed {
			t.Fatal(thawed, err)
		}
		if r, err := s.Get(ctx, "a"); err != nil || string(r.Value) != "x" || r.Revision != rev {
			t.Errorf("%+v, %v", r, err)
		}
		if list, at, err := s.List(ctx, ""); err != nil || len(list) != 1 || at != rev {
			t.Errorf("%+v at %d, %v", list, at, err)
		}
		if _, err := s.Commit(ctx, []store.Op{{Key: "b", Value: []byte("y")}}); !errors.Is(err, store.ErrReadOnly) {
			t.Errorf("a commit: %v", err)
		}
		// Else a machine of a site that others may lead would take it for a store that several processes share, and lead unasked.
		if !store.CanFollow(s) {
			t.Error("it cannot be a copy of another one")
		}
		if n == 0 { // it takes seconds
			if _, _, err := store.OpenFrozen(ctx, url, store.Options{}); !errors.Is(err, store.ErrInUse) {
				t.Errorf("opened twice: %v", err)
			}
		}
		if copies() != before+1 || s.Close() != nil || s.Close() != nil || copies() != before {
			t.Errorf("%d copies were there before, %d are", before, copies())
		}
		if _, err := s.Commit(ctx, nil); !errors.Is(err, store.ErrClosed) {
			t.Errorf("a commit after the end: %v", err)
		}
	}
	if _, _, err := store.OpenFrozen(ctx, "sqlite:"+filepath.Join(dir, "new.db"), store.Options{}); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("a store that is not there: %v", err)
	}
	sum := sha256.Sum256([]byte(filepath.Join(crashed, "a.db")))
	left := filepath.Join("/dev/shm", "skerry-read-only-"+hex.EncodeToString(sum[:8]), "left")
	if err := os.MkdirAll(left, 0o700); err != nil { // by who was killed
		t.Fatal(err)
	}
	s, _, err := store.OpenFrozen(ctx, url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed process left is there: %v", err)
	}
	watches, watched := make(chan struct{}), make(chan error, 1)
	go func() {
		watched <- s.Watch(ctx, "", rev-1, func([]store.Event) error {
			close(watches)
			return nil
		})
	}()
	<-watches
	remount(0)
	next, err := s.Commit(ctx, []store.Op{{Key: "b", Value: []byte("y")}})
	if err != nil || next <= rev || copies() != before {
		t.Fatalf("revision %d after %d, %v; %d copies of %d", next, rev, err, copies(), before)
	}
	if err := <-watched; !errors.Is(err, store.ErrCompacted) {
		t.Errorf("who watched the copy: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	s, thawed, err := store.OpenFrozen(ctx, url, store.Options{})
	if err != nil || !thawed {
		t.Fatal(thawed, err)
	}
	defer s.Close()
	if copies() != before {
		t.Error("what a killed process left is there, though the disk can be written by now")
	}
	if list, at, err := s.List(ctx, ""); err != nil || len(list) != 2 || at != next {
		t.Errorf("%+v at %d, %v", list, at, err)
	}
}
