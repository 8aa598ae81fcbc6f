//go:build linux

package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// dirWatch sees what changes in directories that may come and go. For one that does not exist it watches the nearest directory above that
// does, for the next name on the way. It fits what there was when it was made: after a change a new one is needed.
type dirWatch struct {
	file  *os.File // inotify(7)
	fd    int      // of file
	names map[watchedName]bool
}

// watchedName is a name that matters in a directory that is watched; empty: all do.
type watchedName struct {
	watch int
	name  string
}

// What changes in a directory, and, where files are read, in one of them.
const (
	dirChanges  = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	fileChanges = unix.IN_CLOSE_WRITE
)

// watchDirs watches directories whose files are read, and others of which only the names count: opening a device is no change.
func watchDirs(read, listed []string) (*dirWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	w := &dirWatch{file: os.NewFile(uintptr(fd), "inotify"), fd: fd, names: map[watchedName]bool{}}
	for _, dir := range read {
		err = errors.Join(err, w.add(dir, dirChanges|fileChanges))
	}
	for _, dir := range listed {
		err = errors.Join(err, w.add(dir, dirChanges))
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// add watches a directory, or the nearest one above it.
func (w *dirWatch) add(dir string, mask uint32) error {
	at, below := filepath.Clean(dir), ""
	for tries := 0; tries < 100; {
		changes := mask
		if below != "" {
			changes = dirChanges
		}
		wd, err := unix.InotifyAddWatch(w.fd, at, changes|unix.IN_ONLYDIR|unix.IN_MASK_ADD)
		up := filepath.Dir(at)
		switch {
		case (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)) && up != at:
			at, below = up, at
		case err != nil:
			return &os.PathError{Op: "watch", Path: at, Err: err}
		default:
			if below == "" {
				w.names[watchedName{wd, ""}] = true
				return nil
			}
			w.names[watchedName{wd, filepath.Base(below)}] = true
			if info, err := os.Stat(below); err != nil || !info.IsDir() {
				return nil
			}
			at, below = filepath.Clean(dir), "" // it has come since it was looked for
			tries++
		}
	}
	return &os.PathError{Op: "watch", Path: dir, Err: errors.New("it comes and goes")}
}

// wait returns when something has changed since the watch was made, after a time, or when ctx ends.
func (w *dirWatch) wait(ctx context.Context, most time.Duration) {
	_ = w.file.SetReadDeadline(time.Now().Add(most))
	defer context.AfterFunc(ctx, func() { _ = w.file.SetReadDeadline(time.Now()) })()
	buf := make([]byte, 4096)
	for {
		n, err := w.file.Read(buf)
		if err != nil || w.concerns(buf[:n]) {
			return
		}
	}
}

// concerns reports whether one of the events matters. Those without a name are about the directory itself, or say that events were lost.
func (w *dirWatch) concerns(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		if end > len(events) {
			return true
		}
		name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:end], []byte{0})
		wd := int(int32(binary.NativeEndian.Uint32(events)))
		if len(name) == 0 || w.names[watchedName{wd, ""}] || w.names[watchedName{wd, string(name)}] {
			return true
		}
		events = events[end:]
	}
	return false
}

func (w *dirWatch) close() { w.file.Close() }
