package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// RemoveTree removes a file or a directory with what is in it, but nothing that is mounted there: os.RemoveAll would go on into it. Where
// something is mounted, mounted unmounts it or returns why not. One that is not there is no error.
//
// The kernel says where that is: it removes no mount point of its caller's mount namespace, and opens no directory across one. So nobody
// has to read the list of all mounts, which is as long as the machine has containers, and what is mounted meanwhile is safe, too.
//
// However deep a tree is, it takes few open files and little memory: what is in it may be a container's, made to harm who removes it.
func RemoveTree(path string, mounted func(path string) error) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(dir)
	t := tree{mounted: mounted, top: -1}
	return t.remove(dir, path, unix.AT_REMOVEDIR, 0)
}

// RemoveUnmounted is RemoveTree of a directory in which whatever is mounted may be unmounted.
func RemoveUnmounted(path string) error {
	return RemoveTree(path, func(at string) error {
		if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", at, err)
		}
		return nil
	})
}

// tree is one that is being removed.
type tree struct {
	mounted func(path string) error
	top     int // the tree's own directory, open; -1: it was not opened yet
	lifted  int // how many directories were moved there
}

const (
	maxMounts = 100 // how many mounts may lie on one another
	maxDepth  = 32  // how many directories are open; what is deeper is moved to the top first
)

// remove removes what has the last name of a path in an open directory, depth directories below the top. flags are those with which it is
// tried first: AT_REMOVEDIR for what is probably a directory.
func (t *tree) remove(dir int, path string, flags, depth int) error {
	name, unmounted := filepath.Base(path), 0
	for {
		err := unix.Unlinkat(dir, name, flags)
		switch err {
		case nil, unix.ENOENT:
			return nil
		case unix.ENOTDIR:
			flags = 0
		case unix.EISDIR:
			flags = unix.AT_REMOVEDIR
		case unix.ENOTEMPTY, unix.EEXIST:
			if depth >= maxDepth && t.lift(dir, name) {
				return nil
			}
			removed, err := t.empty(dir, path, depth)
			if errors.Is(err, errMounted) {
				if unmounted++; unmounted <= maxMounts {
					continue // the kernel says so now
				}
			}
			if err != nil {
				return err
			}
			if removed == 0 { // somebody goes on writing there, or does not show all
				return &os.PathError{Op: "remove", Path: path, Err: unix.ENOTEMPTY}
			}
		case unix.EBUSY:
			if unmounted++; unmounted > maxMounts {
				return &os.PathError{Op: "remove", Path: path, Err: err}
			}
			if err := t.mounted(path); err != nil {
				return err
			}
		default:
			return &os.PathError{Op: "remove", Path: path, Err: err}
		}
	}
}

// lift moves a directory to the top, where it is found again, and reports whether it could.
func (t *tree) lift(dir int, name string) bool {
	for {
		t.lifted++
		switch unix.Renameat(dir, name, t.top, ".lifted-"+strconv.Itoa(t.lifted)) {
		case nil:
			return true
		case unix.EEXIST, unix.ENOTEMPTY, unix.ENOTDIR: // a name that the tree has
		default: // such as that of another quota, or a mount point
			return false
		}
	}
}

// empty removes what is in a directory, at which itself nothing is mounted, and says how much that was.
func (t *tree) empty(parent int, path string, depth int) (removed int, err error) {
	fd, err := openUnmounted(parent, filepath.Base(path))
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	if depth == 0 {
		t.top = fd
	}
	for {
		list, err := dir.ReadDir(1024)
		for _, e := range list {
			flags := 0
			if e.IsDir() {
				flags = unix.AT_REMOVEDIR
			}
			if err := t.remove(fd, filepath.Join(path, e.Name()), flags, depth+1); err != nil {
				return removed, err
			}
			removed++
		}
		if err == io.EOF {
			return removed, nil
		}
		if err != nil {
			return removed, err
		}
	}
}

// errMounted says that something was mounted at a directory just when it was to be opened.
var errMounted = errors.New("something was mounted meanwhile")

const openFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// openUnmounted opens a directory, but not what is mounted there.
func openUnmounted(parent int, name string) (int, error) {
	fd, err := unix.Openat2(parent, name, &unix.OpenHow{Flags: openFlags, Resolve: unix.RESOLVE_NO_XDEV})
	switch err {
	case unix.EXDEV:
		return -1, errMounted
	case unix.ENOSYS, unix.EPERM: // before Linux 5.6, or hidden by a filter
		return openCompared(parent, name)
	}
	return fd, err
}

// openCompared is openUnmounted by the numbers of mounts, which the kernel has long shown.
func openCompared(parent int, name string) (int, error) {
	fd, err := unix.Openat(parent, name, openFlags, 0)
	if err != nil {
		return -1, err
	}
	of, err := mountOf(parent)
	if err == nil {
		var at string
		if at, err = mountOf(fd); err == nil && at != of {
			err = errMounted
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// mountOf gives the number of the mount on which an open file is.
func mountOf(fd int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", errors.ErrUnsupported
}
