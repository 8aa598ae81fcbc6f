//go:build unix

package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// fileLock keeps a second process from the store: its writer counts revisions in memory.
type fileLock struct{ f *os.File }

func lockFile(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := heldBy(f); err != nil {
		return nil, err
	}
	// The number is a courtesy for the message above: a full disk must not keep the store from opening.
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, "pid %d\n", os.Getpid())
	}
	return &fileLock{f}, nil
}

// lockExisting takes a lock where nothing can be written.
func lockExisting(path string) (*fileLock, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := heldBy(f); err != nil {
		return nil, err
	}
	return &fileLock{f}, nil
}

// heldBy locks a file, or closes it and says who has locked it.
func heldBy(f *os.File) error {
	err := flock(f)
	if err == nil {
		return nil
	}
	defer f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		pid, _ := io.ReadAll(io.LimitReader(f, 32))
		return fmt.Errorf("%w (%s); stop it first", ErrInUse, strings.TrimSpace(string(pid)))
	}
	return err
}

// lockWait is how long a lock may take to come free. A process that was killed while it started another one leaves the
// lock with the child until that has replaced itself.
const lockWait = 3 * time.Second

func flock(f *os.File) error {
	for deadline := time.Now().Add(lockWait); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
	}
}

func (l *fileLock) release() error { return l.f.Close() }
