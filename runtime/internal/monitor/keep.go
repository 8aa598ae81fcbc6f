//go:build linux

package monitor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// keeper keeps the file that conmon throws away when a log is full. Conmon bounds a log by renaming a new file over it,
// which destroys the old one unless it has a second name:
//
//	log ── file B (conmon writes)       log ── file B
//	keep ─ file A (the one before)  =>  keep ─ file B
//	                                    old ── file A
//
// A rename is the only event it wakes for. While no agent runs, the log stays bounded all the same and "keep" holds
// the first file that was full.
//
// It watches from the first directory on: a worker has many runtimes of which most never run anything, and a machine lets a user have only
// 128 watches of this kind.
type keeper struct {
	log  *slog.Logger
	done chan struct{}

	mu     sync.Mutex // protects what follows
	file   *os.File   // nil until the first directory
	fd     int        // the same; File.Fd would make it blocking
	dirs   map[int]string
	closed bool
}

func newKeeper(log *slog.Logger) *keeper {
	return &keeper{log: log, done: make(chan struct{}), dirs: map[int]string{}}
}

// openLocked begins to watch, unless it does already.
func (k *keeper) openLocked() error {
	if k.file != nil {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	k.file, k.fd = os.NewFile(uintptr(fd), "inotify"), fd
	go k.run(k.file)
	return nil
}

func (k *keeper) run(file *os.File) {
	defer close(k.done)
	buf := make([]byte, 8192)
	for {
		n, err := file.Read(buf)
		if err != nil {
			return
		}
		for _, ev := range parseEvents(buf[:n]) {
			if ev.name != "log" {
				continue
			}
			k.mu.Lock()
			dir := k.dirs[ev.wd]
			k.mu.Unlock()
			if dir != "" {
				k.rotate(dir)
			}
		}
	}
}

// add watches a log directory and catches up with what happened before.
func (k *keeper) add(dir string) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	err := k.openLocked()
	if err == nil {
		var wd int
		if wd, err = unix.InotifyAddWatch(k.fd, dir, unix.IN_MOVED_TO|unix.IN_ONLYDIR); err == nil {
			k.dirs[wd] = dir
		}
	}
	k.mu.Unlock()
	if err != nil {
		k.log.Warn("log rotation is not watched; the log stays bounded, but only its newest part is kept", "dir", dir, "err", err)
	}
	k.rotate(dir)
}

func (k *keeper) remove(dir string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for wd, d := range k.dirs {
		if d == dir && !k.closed {
			_, _ = unix.InotifyRmWatch(k.fd, uint32(wd))
			delete(k.dirs, wd)
		}
	}
}

// rotate brings the names in order; it may be called at any time.
func (k *keeper) rotate(dir string) {
	log, keep, old := filepath.Join(dir, "log"), filepath.Join(dir, "keep"), filepath.Join(dir, "old")
	a, errA := os.Stat(log)
	b, errB := os.Stat(keep)
	if errA != nil || errB == nil && os.SameFile(a, b) {
		return
	}
	if errB == nil {
		if err := os.Rename(keep, old); err != nil {
			k.log.Warn("keep rotated log", "dir", dir, "err", err)
			return
		}
	}
	if err := os.Link(log, keep); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("keep log", "dir", dir, "err", err)
	}
}

func (k *keeper) close() error {
	k.mu.Lock()
	closed, file := k.closed, k.file
	k.closed = true
	k.mu.Unlock()
	if file == nil {
		return nil
	}
	if !closed {
		file.Close()
	}
	<-k.done
	return nil
}

type event struct {
	wd   int
	name string
}

// parseEvents reads what inotify(7) gives.
func parseEvents(b []byte) []event {
	var evs []event
	for len(b) >= unix.SizeofInotifyEvent {
		n := int(binary.NativeEndian.Uint32(b[12:]))
		if n < 0 || len(b) < unix.SizeofInotifyEvent+n {
			break
		}
		name := b[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+n]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		evs = append(evs, event{int(int32(binary.NativeEndian.Uint32(b))), string(name)})
		b = b[unix.SizeofInotifyEvent+n:]
	}
	return evs
}
