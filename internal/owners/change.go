//go:build linux

package owners

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// markAttr is, while a file's owner is exchanged, what the kernel takes away with that: its mode, and its capabilities as they are to be.
// Who goes on after a crash finds it.
const markAttr = "trusted.skerry.owners"

// maxDepth bounds the descriptors that are open at once. Only a program that wants it so nests directories further.
const maxDepth = 1024

// ErrDeep says that directories lie too deep inside one another.
var ErrDeep = fmt.Errorf("its directories are nested more than %d deep, which is more than its owner can be exchanged in; remove some of them", maxDepth)

// Change gives all files of a tree, and the tree's own directory last, to other users. Whoever wrote the tree may have
// made anything in it, but must not run. After a crash, or an error, it can be done again, with another To as well if
// that of the first attempt is in From.
func Change(ctx context.Context, dir string, m Map) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	c := changing{ctx: ctx, m: m, dev: st.Dev}
	if err := c.below(f, "", 0); err != nil {
		return err
	}
	return errors.Join(c.change(f, ".", &st), unix.Syncfs(int(f.Fd())))
}

type changing struct {
	ctx context.Context
	m   Map
	dev uint64 // what is mounted in the tree is left alone
}

func (c *changing) below(dir *os.File, name string, depth int) error {
	if depth > maxDepth {
		return ErrDeep
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	list, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, base := range list {
		if err := c.entry(dir, base, path.Join(name, base), depth); err != nil {
			if errors.Is(err, ErrDeep) {
				return err
			}
			return fmt.Errorf("%.200q: %w", base, err)
		}
	}
	return nil
}

func (c *changing) entry(dir *os.File, base, full string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Dev != c.dev {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		sub, err := openAt(dir, base, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer sub.Close()
		if err := c.below(sub, full, depth+1); err != nil {
			return err
		}
	}
	return c.change(dir, base, &st)
}

// change exchanges the owner of one file.
func (c *changing) change(dir *os.File, base string, st *unix.Stat_t) error {
	file, kind := through(dir, base), st.Mode&unix.S_IFMT
	id := func(n uint32) (uint32, bool) { return c.m.ID(n), true }
	if kind == unix.S_IFREG || kind == unix.S_IFDIR {
		for _, name := range []string{accessAttr, defaultAttr} {
			old, err := getAttr(file, name)
			if err != nil {
				return err
			}
			if list := accessList(old, id); list != nil && !bytes.Equal(list, old) {
				if err := unix.Lsetxattr(file, name, list, 0); err != nil {
					return err
				}
			}
		}
	}
	uid, gid := c.m.ID(st.Uid), c.m.ID(st.Gid)
	same := uid == st.Uid && gid == st.Gid
	if kind != unix.S_IFREG {
		if same {
			return nil
		}
		if err := unix.Fchownat(int(dir.Fd()), base, int(uid), int(gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		return c.restoreMode(dir, base, st)
	}
	mark, err := getAttr(file, markAttr)
	if err != nil {
		return err
	}
	if same && mark == nil {
		return nil
	}
	if mark == nil {
		caps, err := getAttr(file, capsAttr)
		if err != nil {
			return err
		}
		if caps = fileCaps(caps, id); caps != nil || st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
			mark = append(binary.LittleEndian.AppendUint32(nil, st.Mode&0o7777), caps...)
			if err := unix.Lsetxattr(file, markAttr, mark, 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
				return err
			}
		}
	}
	if err := unix.Fchownat(int(dir.Fd()), base, int(uid), int(gid), unix.AT_SYMLINK_NOFOLLOW); err != nil || len(mark) < 4 {
		return err
	}
	if err := chmod(dir, base, binary.LittleEndian.Uint32(mark)&0o7777); err != nil {
		return err
	}
	// A mark of another attempt may have been for another root.
	if caps := fileCaps(mark[4:], id); caps != nil {
		if err := unix.Lsetxattr(file, capsAttr, caps, 0); err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if err := unix.Lremovexattr(file, markAttr); err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

// restoreMode gives back what some kernels take from pipes and devices, too. Directories keep theirs, and links have none.
func (c *changing) restoreMode(dir *os.File, base string, st *unix.Stat_t) error {
	if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFLNK || kind == unix.S_IFDIR || st.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
		return nil
	}
	return chmod(dir, base, st.Mode&0o7777)
}
