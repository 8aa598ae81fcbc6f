//go:build linux

package vm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime/vm/wire"
)

// copier gives a guest whose hypervisor shares no directories a copy of what it mounts from the host, and again of what changes there. The
// guest cannot write back.
type copier struct {
	shares []share
	send   func(kind wire.Kind, data []byte) error
	fail   func(wire.Failure)
	sent   map[string]stamp // by path in the guest
}

// stamp tells whether a file has changed.
type stamp struct {
	mode, uid, gid uint32
	ino            uint64
	size, changed  int64
}

// copyMax is the most that a guest gets: it takes the guest's memory. copyEvery is how often the host's files are looked at.
const (
	copyMax   = 16 * skerry.MiB
	copyEvery = time.Second
)

func newCopier(shares []share, s *session) *copier {
	return &copier{shares, func(k wire.Kind, data []byte) error { return s.send(k, 0, data) }, s.fail, map[string]stamp{}}
}

// run copies everything, says so, and goes on for as long as the guest listens.
func (c *copier) run() {
	if err := c.round(); err != nil {
		c.fail(wire.Failure{Message: err.Error()})
		return
	}
	for err := c.send(wire.KindFile, nil); err == nil; {
		time.Sleep(copyEvery)
		// What cannot be read now, or has become too much, stays as it was there.
		if e := c.round(); errors.Is(e, errGuestGone) {
			return
		}
	}
}

var errGuestGone = errors.New("the guest does not listen")

// round sends what is not there as it is here.
func (c *copier) round() error {
	seen, left := map[string]bool{}, int64(copyMax)
	for i, s := range c.shares {
		if err := c.share(s, seen, &left); err != nil {
			if errors.Is(err, errGuestGone) {
				return err
			}
			return fmt.Errorf("mounts[%d].source: %w", i, err)
		}
	}
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(c.sent))) { // what is in a directory comes before it
		if !seen[path] {
			if err := c.say(&wire.File{Path: path}); err != nil {
				return err
			}
			delete(c.sent, path)
		}
	}
	return nil
}

func (c *copier) share(s share, seen map[string]bool, left *int64) error {
	st, err := os.Stat(s.Source)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		f, err := os.Open(s.Source)
		if err != nil {
			return err
		}
		defer f.Close()
		return c.file(s.Name, st, f, seen, left)
	}
	root, err := os.OpenRoot(s.Source) // whatever links are in it, nothing outside of it is read
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has just gone
		}
		if err != nil {
			return err
		}
		name := s.Name
		if p != "." {
			name += "/" + p
		}
		return c.entry(root, p, name, seen, left)
	})
}

// entry copies a file, directory or link of a directory; other things have no copy.
func (c *copier) entry(root *os.Root, path, name string, seen map[string]bool, left *int64) error {
	st, err := root.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case st.Mode().IsRegular():
		f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		return c.file(name, st, f, seen, left)
	case st.IsDir():
		return c.whole(name, st, "", seen)
	case st.Mode()&fs.ModeSymlink != 0:
		to, err := root.Readlink(path)
		if err != nil {
			return err
		}
		return c.whole(name, st, to, seen)
	}
	return nil
}

// changed says whether the guest has a file otherwise.
func (c *copier) changed(name string, st fs.FileInfo, seen map[string]bool) (wire.File, stamp, bool) {
	sys := st.Sys().(*syscall.Stat_t)
	now := stamp{sys.Mode, sys.Uid, sys.Gid, sys.Ino, sys.Size, sys.Ctim.Nano()}
	if st.IsDir() {
		now.ino, now.size, now.changed = 0, 0, 0 // what is in it is looked at by itself
	}
	seen[name] = true
	return wire.File{Path: name, Mode: sys.Mode, UID: sys.Uid, GID: sys.Gid, Last: true}, now, c.sent[name] != now
}

func (c *copier) whole(name string, st fs.FileInfo, data string, seen map[string]bool) error {
	f, now, changed := c.changed(name, st, seen)
	if !changed {
		return nil
	}
	f.Data = data
	if err := c.say(&f); err != nil {
		return err
	}
	c.sent[name] = now
	return nil
}

func (c *copier) file(name string, st fs.FileInfo, from io.ReaderAt, seen map[string]bool, left *int64) error {
	if *left -= st.Size(); *left < 0 {
		return fmt.Errorf("more than %s would be copied into the machine", copyMax)
	}
	f, now, changed := c.changed(name, st, seen)
	if !changed {
		return nil
	}
	b := make([]byte, min(st.Size(), 8*wire.Chunk)+1)
	for size := uint64(st.Size()); ; f.Offset += uint64(len(f.Data)) {
		n, err := from.ReadAt(b[:min(uint64(len(b)), size-f.Offset)], int64(f.Offset))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		f.Data = string(b[:n])
		f.Last = err != nil || f.Offset+uint64(n) >= size // one that has become shorter is sent again
		if err := c.say(&f); err != nil {
			return err
		}
		if f.Last {
			break
		}
	}
	c.sent[name] = now
	return nil
}

func (c *copier) say(f *wire.File) error {
	if c.send(wire.KindFile, wire.Encode(f)) != nil {
		return errGuestGone
	}
	return nil
}
