package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RemoveTree removes a file or a directory with what is in it, but nothing that is mounted there: os.RemoveAll would go on into it. Where
// something is mounted, mounted unmounts it or returns why not. One that is not there is no error.
//
// The kernel says where that is: it removes no mount point of its caller's mount namespace. So nobody has to read the list of all mounts,
// which is as long as the machine has containers.
func RemoveTree(path string, mounted func(path string) error) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(dir)
	return removeTree(dir, path, unix.AT_REMOVEDIR, mounted)
}

// removeTree removes what has the last name of a path in an open directory. flags are those with which it is tried first: AT_REMOVEDIR for
// what is probably a directory.
func removeTree(dir int, path string, flags int, mounted func(path string) error) error {
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
			if removed, err := emptyDir(dir, path, mounted); err != nil {
				return err
			} else if removed == 0 { // somebody goes on writing there, or does not show all
				return &os.PathError{Op: "remove", Path: path, Err: unix.ENOTEMPTY}
			}
		case unix.EBUSY:
			if unmounted++; unmounted > maxMounts {
				return &os.PathError{Op: "remove", Path: path, Err: err}
			}
			if err := mounted(path); err != nil {
				return err
			}
		default:
			return &os.PathError{Op: "remove", Path: path, Err: err}
		}
	}
}

// maxMounts is how many mounts may lie on one another.
const maxMounts = 100

// emptyDir removes what is in a directory, at which itself nothing is mounted, and says how much that was.
func emptyDir(parent int, path string, mounted func(path string) error) (removed int, err error) {
	fd, err := unix.Openat(parent, filepath.Base(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	for {
		list, err := dir.ReadDir(1024)
		for _, e := range list {
			flags := 0
			if e.IsDir() {
				flags = unix.AT_REMOVEDIR
			}
			if err := removeTree(fd, filepath.Join(path, e.Name()), flags, mounted); err != nil {
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
