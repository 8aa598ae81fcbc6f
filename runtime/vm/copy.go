//go:build linux

package vm

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
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

// copyMax is the most that a guest gets: it takes the guest's memory, a page at least for whatever has a name. Directories within more than
// copyDeepest others are not copied. copyEvery is how often the host's files are looked at.
const (
	copyMax     = 16 * skerry.MiB
	copyPage    = 4096
	copyNames   = int(copyMax / copyPage)
	copyDeepest = 64
	copyEvery   = time.Second
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
	fine := true
	for err := c.send(wire.KindFile, nil); err == nil; {
		time.Sleep(copyEvery)
		e := c.round()
		if errors.Is(e, errGuestGone) {
			return
		}
		if e != nil && fine { // into the task's log
			fmt.Fprintf(os.Stderr, "vm-run: %v; the machine keeps what it has of it\n", e)
		}
		fine = e == nil
	}
}

var (
	errGuestGone = errors.New("the guest does not listen")
	errTooMuch   = fmt.Errorf("more than %s, or %d files, would be copied into the machine", copyMax, copyNames)
)

// round sends what is not there as it is here. A share that cannot be read, or has become too much, stays as it was
// there: whoever writes to one must not keep the others from being copied.
func (c *copier) round() (failed error) {
	seen, left := map[string]bool{}, int64(copyMax)
	for i, shared := range c.shares {
		weight, err := shared.weigh(left)
		if err == nil {
			weight = 0
			err = shared.walk(func(in *os.Root, path, name string, st fs.FileInfo) error {
				if weight += weightOf(st); weight > left { // it has just grown
					return errTooMuch
				}
				return c.entry(in, path, name, st, seen)
			})
			left -= min(weight, left)
		}
		if errors.Is(err, errGuestGone) {
			return err
		}
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("mounts[%d].source: %w", i, err))
			for path := range c.sent {
				seen[path] = seen[path] || within(path, shared.Name)
			}
		}
	}
	return cmp.Or(c.drop(func(path string) bool { return !seen[path] }), failed)
}

// drop removes what the guest has of some paths.
func (c *copier) drop(gone func(path string) bool) error {
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(c.sent))) { // what is in a directory comes before it
		if gone(path) {
			if err := c.say(&wire.File{Path: path}); err != nil {
				return err
			}
			delete(c.sent, path)
		}
	}
	return nil
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// weightOf gives how much of the guest's memory a file takes, with what the guest's kernel keeps of it.
func weightOf(st fs.FileInfo) int64 {
	if !st.Mode().IsRegular() {
		return copyPage
	}
	return (min(st.Size(), int64(copyMax)) + copyPage) &^ (copyPage - 1)
}

// weigh gives how much of the guest's memory a copy takes, or an error if that is more than left, or if there can be no copy.
func (s share) weigh(left int64) (weight int64, err error) {
	err = s.walk(func(_ *os.Root, _, _ string, st fs.FileInfo) error {
		if weight += weightOf(st); weight > left {
			return errTooMuch
		}
		return nil
	})
	return weight, err
}

// visit is called with where a file is, how the guest calls it, and what it is. Without a root path is the host's.
type visit func(in *os.Root, path, name string, st fs.FileInfo) error

// walk visits a share and what is in it. Others may write to it meanwhile: nothing outside of it is looked at, and only so much of it.
func (s share) walk(do visit) error {
	st, err := os.Stat(s.Source)
	switch {
	case err != nil:
		return err
	case st.Mode().IsRegular():
		return do(nil, s.Source, s.Name, st)
	case !st.IsDir():
		return fmt.Errorf("%s is neither a file nor a directory, and cannot be copied into the machine", s.Source)
	}
	root, err := os.OpenRoot(s.Source)
	if err != nil {
		return err
	}
	defer root.Close()
	return walkIn(root, ".", s.Name, 0, do)
}

func walkIn(root *os.Root, at, name string, depth int, do visit) error {
	st, err := root.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has just gone
	}
	if err != nil {
		return err
	}
	if err := do(root, at, name, st); err != nil || !st.IsDir() {
		return err
	}
	if depth > copyDeepest {
		return fmt.Errorf("directories that are more than %d deep cannot be copied into the machine", copyDeepest)
	}
	dir, err := root.OpenFile(at, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return unlessGone(err)
	}
	entries, err := dir.ReadDir(copyNames + 1) // a directory of millions is not read
	dir.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(entries) > copyNames {
		return errTooMuch
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := walkIn(root, path.Join(at, e.Name()), name+"/"+e.Name(), depth+1, do); err != nil {
			return err
		}
	}
	return nil
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// entry copies a file, directory or link; other things have no copy.
func (c *copier) entry(in *os.Root, path, name string, st fs.FileInfo, seen map[string]bool) error {
	// What was something else goes first, with what is in it: the guest would follow a link to where there is now a directory.
	if had, ok := c.sent[name]; ok && had.mode&syscall.S_IFMT != st.Sys().(*syscall.Stat_t).Mode&syscall.S_IFMT {
		if err := c.drop(func(p string) bool { return within(p, name) }); err != nil {
			return err
		}
	}
	switch {
	case st.Mode().IsRegular():
		open := os.OpenFile
		if in != nil {
			open = in.OpenFile
		}
		f, err := open(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return unlessGone(err)
		}
		defer f.Close()
		return c.file(name, st, f, seen)
	case st.IsDir():
		return c.whole(name, st, "", seen)
	case st.Mode()&fs.ModeSymlink != 0:
		to, err := in.Readlink(path)
		if err != nil {
			return unlessGone(err)
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

func (c *copier) file(name string, st fs.FileInfo, from io.ReaderAt, seen map[string]bool) error {
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
