//go:build linux

package owners

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Copy copies what is in a directory into another one, which is empty, for the users from first on: user 0 becomes first. What belongs to a
// user of 65536 or above becomes nobody's, and has no set-user-ID bit then. Contents are shared where the file system can do that.
// Nothing may change meanwhile. It is not on the disk yet afterwards.
func Copy(ctx context.Context, from, to string, first uint32) error {
	c := copying{ctx: ctx, id: copied(first), links: map[[2]uint64]string{}}
	var err error
	if c.from, err = os.OpenRoot(from); err != nil {
		return err
	}
	defer c.from.Close()
	if c.to, err = os.OpenRoot(to); err != nil {
		return err
	}
	defer c.to.Close()
	dirs := []string{"."}
	for i := 0; i < len(dirs); i++ {
		below, err := c.folder(dirs[i])
		if err != nil {
			return err
		}
		dirs = append(dirs, below...)
	}
	// When nothing is put into them any more.
	for _, name := range slices.Backward(dirs) {
		if err := c.at(name, func(from, to *os.File) error { return c.attributes(from, to, ".") }); err != nil {
			return err
		}
	}
	return nil
}

type copying struct {
	ctx      context.Context
	from, to *os.Root
	id       func(uint32) (uint32, bool)
	links    map[[2]uint64]string // the first name of a file that has more, by device and inode
}

// at opens a folder that both have.
func (c *copying) at(name string, do func(from, to *os.File) error) error {
	from, err := openDir(c.from, name)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := openDir(c.to, name)
	if err != nil {
		return err
	}
	defer to.Close()
	return do(from, to)
}

func openDir(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// folder copies what is in a folder, but of the folders there only that they are, and gives their names.
func (c *copying) folder(name string) (below []string, err error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	err = c.at(name, func(from, to *os.File) error {
		list, err := from.Readdirnames(-1)
		if err != nil {
			return err
		}
		for _, base := range list {
			full := path.Join(name, base)
			isDir, err := c.entry(from, to, base, full)
			if err != nil {
				return fmt.Errorf("copy %.200q: %w", full, err)
			}
			if isDir {
				below = append(below, full)
			}
		}
		return nil
	})
	return below, err
}

func (c *copying) entry(from, to *os.File, base, full string) (isDir bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(from.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	key := [2]uint64{st.Dev, st.Ino}
	if first, ok := c.links[key]; ok {
		return false, c.to.Link(first, full)
	}
	switch kind := st.Mode & unix.S_IFMT; kind {
	case unix.S_IFDIR:
		return true, unix.Mkdirat(int(to.Fd()), base, 0o700)
	case unix.S_IFREG:
		err = c.content(from, to, base)
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, e := unix.Readlinkat(int(from.Fd()), base, buf)
		if e != nil {
			return false, e
		}
		err = unix.Symlinkat(string(buf[:n]), int(to.Fd()), base)
	default: // a whiteout of overlayfs, a pipe, where images may have them a device
		err = unix.Mknodat(int(to.Fd()), base, kind|0o600, int(st.Rdev))
	}
	if err != nil {
		return false, err
	}
	if st.Nlink > 1 {
		c.links[key] = full
	}
	return false, c.attributes(from, to, base)
}

func (c *copying) content(from, to *os.File, base string) error {
	src, err := openAt(from, base, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := openAt(to, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) != nil {
		_, err = io.Copy(dst, src)
	}
	return errors.Join(err, dst.Close())
}

func openAt(dir *os.File, base string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), base, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), base), nil
}

// attributes gives a copy owner, attributes, mode and times, in the order in which one does not undo the other.
func (c *copying) attributes(from, to *os.File, base string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(from.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	uid, mine := c.id(st.Uid)
	gid, group := c.id(st.Gid)
	at := int(to.Fd())
	if err := unix.Fchownat(at, base, int(uid), int(gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if err := c.xattrs(through(from, base), through(to, base)); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK { // after the owner: changing that clears set-user-ID
		mode := st.Mode & 0o7777
		if !mine {
			mode &^= unix.S_ISUID
		}
		if !group && st.Mode&unix.S_IFMT == unix.S_IFREG {
			mode &^= unix.S_ISGID
		}
		if err := chmod(to, base, mode); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(at, base, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// chmod changes the mode of what is no link; one that has come into its place is not followed.
func chmod(dir *os.File, base string, mode uint32) error {
	fd, err := unix.Openat(int(dir.Fd()), base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}

// through names a file by the folder that it is in, for calls that take no descriptor of that.
func through(dir *os.File, base string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), base)
}

func (c *copying) xattrs(from, to string) error {
	names, err := listAttrs(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		value, err := getAttr(from, name)
		if err != nil {
			return err
		}
		switch {
		case name == capsAttr:
			value = fileCaps(value, c.id)
		case name == accessAttr || name == defaultAttr:
			value = accessList(value, c.id)
		case !strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "trusted."):
			value = nil // labels, which the kernel makes anew
		}
		if value == nil {
			continue
		}
		// A kernel before 4.14 does not know capabilities for a namespace: without, they would count for none.
		if err := unix.Lsetxattr(to, name, value, 0); err != nil && !errors.Is(err, unix.ENOTSUP) &&
			!(name == capsAttr && errors.Is(err, unix.EINVAL)) {
			return fmt.Errorf("set xattr %s: %w", name, err)
		}
	}
	return nil
}

func listAttrs(file string) ([]string, error) {
	list := make([]byte, 64<<10) // the kernel's bound
	n, err := unix.Llistxattr(file, list)
	if errors.Is(err, unix.ENOTSUP) || n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00"), nil
}

// getAttr gives an attribute, nil where there is none.
func getAttr(file, name string) ([]byte, error) {
	n, err := unix.Lgetxattr(file, name, nil)
	if err == nil && n > 0 {
		value := make([]byte, n)
		if n, err = unix.Lgetxattr(file, name, value); err == nil {
			return value[:n], nil
		}
	}
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return nil, err
}
