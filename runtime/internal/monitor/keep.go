//go:build linux

package monitor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
// It also wakes those who follow a log, so that one inotify instance serves a whole runtime: a machine lets a user have only 128 of
// them, and a worker has many runtimes of which most never run anything. It watches from the first directory on.
type keeper struct {
	log  *slog.Logger
	done chan struct{}

	mu     sync.Mutex // protects what follows
	file   *os.File   // nil until the first directory
	fd     int        // the same; File.Fd would make it blocking
	dirs   map[int]*logDir
	closed bool
}

// logDir is a log's directory that is watched.
type logDir struct {
	path      string
	kept      bool
	followers []chan<- struct{}
}

func newKeeper(log *slog.Logger) *keeper {
	return &keeper{log: log, done: make(chan struct{}), dirs: map[int]*logDir{}}
}

// openLocked begins to watch, unless it does already.
func (k *keeper) openLocked() error {
	if k.closed {
		return os.ErrClosed
	}
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
			k.take(ev)
		}
	}
}

// take does what an event asks for. One without a directory says that events were lost, so that anything may have happened anywhere.
func (k *keeper) take(ev event) {
	lost := ev.wd < 0
	var touched, rotated []*logDir
	k.mu.Lock()
	if d := k.dirs[ev.wd]; d != nil {
		touched = []*logDir{d}
	} else if lost {
		touched = slices.Collect(maps.Values(k.dirs))
	}
	for _, d := range touched {
		for _, f := range d.followers {
			wake(f)
		}
		if d.kept && (lost || ev.name == "log" && ev.mask&unix.IN_MOVED_TO != 0) {
			rotated = append(rotated, d)
		}
	}
	k.mu.Unlock()
	for _, d := range rotated {
		k.rotate(d.path)
	}
}

func wake(f chan<- struct{}) {
	select {
	case f <- struct{}{}:
	default: // it will look anyway
	}
}

// add watches a log directory and catches up with what happened before.
func (k *keeper) add(dir string) {
	err := k.change(dir, func(d *logDir) { d.kept = true })
	if errors.Is(err, os.ErrClosed) {
		return
	}
	if err != nil {
		k.log.Warn("log rotation is not watched; the log stays bounded, but only its newest part is kept", "dir", dir, "err", err)
	}
	k.rotate(dir)
}

func (k *keeper) remove(dir string) {
	_ = k.change(dir, func(d *logDir) { d.kept = false })
}

// follow has a channel of one place told of changes in a log directory, until unfollow.
func (k *keeper) follow(dir string, f chan<- struct{}) error {
	err := k.change(dir, func(d *logDir) { d.followers = append(d.followers, f) })
	if err != nil {
		k.unfollow(dir, f)
	}
	return err
}

func (k *keeper) unfollow(dir string, f chan<- struct{}) {
	_ = k.change(dir, func(d *logDir) {
		d.followers = slices.DeleteFunc(d.followers, func(g chan<- struct{}) bool { return g == f })
	})
}

// change changes what is wanted of a directory, and what the kernel watches there.
func (k *keeper) change(dir string, f func(*logDir)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	wd, d := -1, &logDir{path: dir}
	for at, known := range k.dirs {
		if known.path == dir {
			wd, d = at, known
		}
	}
	f(d)
	switch {
	case d.kept || len(d.followers) > 0:
		mask := uint32(unix.IN_MOVED_TO | unix.IN_ONLYDIR)
		if len(d.followers) > 0 {
			mask |= unix.IN_MODIFY | unix.IN_CREATE
		}
		err := k.openLocked()
		var now int
		if err == nil {
			now, err = unix.InotifyAddWatch(k.fd, dir, mask)
		}
		if err != nil {
			return err
		}
		if now != wd { // another directory of that name
			delete(k.dirs, wd)
		}
		k.dirs[now] = d
	case wd >= 0:
		if !k.closed {
			_, _ = unix.InotifyRmWatch(k.fd, uint32(wd))
		}
		delete(k.dirs, wd)
	}
	return nil
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
	mask uint32
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
		evs = append(evs, event{int(int32(binary.NativeEndian.Uint32(b))), binary.NativeEndian.Uint32(b[4:]), string(name)})
		b = b[unix.SizeofInotifyEvent+n:]
	}
	return evs
}
