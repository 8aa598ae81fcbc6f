//go:build unix

package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// fileLock keeps a second process from the store: its writer counts revisions in memory.
type fileLock struct{ f *os.File }

func lockFile(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			pid, _ := io.ReadAll(io.LimitReader(f, 32))
			return nil, fmt.Errorf("%w (%s); stop it first", ErrInUse, strings.TrimSpace(string(pid)))
		}
		return nil, err
	}
	// The number is a courtesy for the message above: a full disk must not keep the store from opening.
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, "pid %d\n", os.Getpid())
	}
	return &fileLock{f}, nil
}

func (l *fileLock) release() error { return l.f.Close() }
