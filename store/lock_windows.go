package store

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// fileLock keeps a second process from the store: its writer counts revisions in memory.
type fileLock struct{ f *os.File }

func lockFile(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
		new(windows.Overlapped))
	if err != nil {
		f.Close()
		if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
			return nil, ErrInUse
		}
		return nil, err
	}
	return &fileLock{f}, nil
}

// lockExisting takes a lock where nothing can be written, which Windows does not tell apart.
func lockExisting(path string) (*fileLock, error) { return lockFile(path) }

func (l *fileLock) release() error { return l.f.Close() }
