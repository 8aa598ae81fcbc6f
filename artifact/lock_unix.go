//go:build unix

package artifact

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const lockWait = 3 * time.Second

func lockDir(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, unix.EROFS) {
		file, err = os.Open(path) // that of the last start locks as well
	}
	if err != nil {
		return nil, diskError(err)
	}
	// A process that was killed while it started another one leaves the lock with the child until that has replaced itself.
	for deadline := time.Now().Add(lockWait); ; time.Sleep(20 * time.Millisecond) {
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, err
	}
	return file, nil
}
