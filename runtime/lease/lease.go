//go:build linux

package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/files"
)

// The files of a guard's directory.
const (
	leasesFile = "leases.json"
	endedDir   = "ended"
	turnFile   = "turn"  // locked by whoever decides whether there is a guard
	aliveFile  = "alive" // locked by the guard
)

// Uptime is the time since the machine was switched on, sleep included. Nobody can set it.
func Uptime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano()), err
}

// Contact is a file in memory with the moment in which the cluster was heard last, in the machine's uptime.
type Contact struct {
	Path string
	boot string
}

// NewContact names the file; it need not exist.
func NewContact(path string) (*Contact, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("this boot's id: %w", err)
	}
	return &Contact{path, strings.TrimSpace(string(boot))}, nil
}

// Write keeps that the cluster was heard so long ago.
func (f *Contact) Write(ago time.Duration) error {
	up, err := Uptime()
	if err != nil {
		return err
	}
	return replace(f.Path, fmt.Appendf(nil, "%s %d\n", f.boot, up-ago))
}

// Read gives how long ago the cluster was heard; ok is false where that is not known, or was before the machine started.
func (f *Contact) Read() (ago time.Duration, ok bool) {
	up, err := Uptime()
	if err != nil {
		return 0, false
	}
	at, ok := f.at()
	if !ok || at > up {
		return 0, false
	}
	return up - at, true
}

func (f *Contact) at() (at time.Duration, ok bool) {
	data, err := os.ReadFile(f.Path)
	if err != nil {
		return 0, false
	}
	return parseContact(string(data), f.boot)
}

func parseContact(text, boot string) (at time.Duration, ok bool) {
	var of string
	var n int64
	if k, err := fmt.Sscanf(text, "%s %d", &of, &n); k != 2 || err != nil || of != boot || n < 0 {
		return 0, false
	}
	return time.Duration(n), true
}

// readLeases gives none for a file that is not there.
func readLeases(dir string) (list []Lease, err error) {
	data, err := os.ReadFile(filepath.Join(dir, leasesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	return list, err
}

// replace writes a small file as a whole.
func replace(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return files.Swap(path, data, 0o600)
}

// lock takes a lock on a file, which is held until it is closed; without wait it gives nil where another holds it.
func lock(path string, wait bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(f.Fd()), how)
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if err == unix.EWOULDBLOCK {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}
