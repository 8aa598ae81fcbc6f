//go:build linux

package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/spec"
)

// bounded reports whether what an organisation mounts of the host is held to directories that the site names. An assignment without
// a level is of a cluster of before, which told of none.
func bounded(a *spec.Assignment) bool {
	return a.Level != "" && a.Level != spec.LevelPrivileged
}

// openHostPath opens a path of the host as the site grants it: beneath the outermost directory that covers it, then beneath each one
// within that. A link that leads out of one of them is refused, since whoever may write there may have made it. The file is open
// for nothing but mounting. Nothing that happens to the path afterwards changes what it stands for.
func openHostPath(grants []spec.HostPath, path string) (file *os.File, writable bool, err error) {
	covers := spec.HostPathsFor(grants, path)
	if len(covers) == 0 {
		return nil, false, impossible(fmt.Sprintf("the site opens no directory with %s to this organisation; its operator may name it in hostPaths of the site's admission policy", path))
	}
	at := covers[0].Path
	fd, err := unix.Open(at, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, &os.PathError{Op: "open", Path: at, Err: err}
	}
	next := []string{}
	for _, h := range covers[1:] {
		next = append(next, h.Path)
	}
	for _, to := range append(next, filepath.Clean(path)) {
		if to == at {
			continue
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(to, at), "/")
		inner, err := unix.Openat2(fd, rel, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
		unix.Close(fd)
		switch {
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
			return nil, false, impossible(fmt.Sprintf("%s is, or goes through, a symbolic link that leads out of %s, which is all that the site opens there; name the place that is meant, "+
				"or ask the site's operator, who grants it by hostPaths in the admission policy", path, at))
		case errors.Is(err, unix.ENOSYS):
			return nil, false, impossible("host paths of this organisation need Linux 5.6 or newer, " +
				"which finds them without following links out of " + at)
		case err != nil:
			return nil, false, &os.PathError{Op: "open", Path: path, Err: err}
		}
		fd, at = inner, to
	}
	return os.NewFile(uintptr(fd), path), covers[len(covers)-1].Writable, nil
}

// mountHostPath mounts what a volume names of the host at a place of the instance's, from where containers get it: without device nodes
// and set-user-ID programs, and to be read only unless the site lets it be written. It is idempotent.
func (pl places) mountHostPath(assigned *spec.Assignment, v *spec.Volume) error {
	file, writable, err := openHostPath(assigned.HostPaths, v.Host.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	at := pl.hostDir(assigned.ID, v.Name)
	if mounted(file, at, writable) {
		return nil
	}
	if err := vacate(at); err != nil {
		return err
	}
	if err := mountPoint(file, at); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if !writable {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	tree, err := unix.OpenTree(int(file.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err == nil {
		defer unix.Close(tree)
		if err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err == nil {
			return unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
	}
	if err != unix.ENOSYS {
		return fmt.Errorf("mount %s: %w", v.Host.Path, err)
	}
	// Before Linux 5.12: what is mounted below stays out, for it could not be restricted with the rest.
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NOSUID | unix.MS_NODEV)
	if !writable {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", v.Host.Path, err)
	}
	if err := errors.Join(unix.Mount("", at, "", flags, ""), unix.Mount("", at, "", unix.MS_PRIVATE, "")); err != nil {
		return errors.Join(fmt.Errorf("mount %s: %w", v.Host.Path, err), unix.Unmount(at, unix.MNT_DETACH))
	}
	return nil
}

// mounted reports whether a file is mounted at a place already, with the right restrictions.
func mounted(f *os.File, at string, writable bool) bool {
	var want, have unix.Stat_t
	var fs unix.Statfs_t
	if unix.Fstat(int(f.Fd()), &want) != nil || unix.Lstat(at, &have) != nil || unix.Statfs(at, &fs) != nil {
		return false
	}
	const restricted = unix.ST_NOSUID | unix.ST_NODEV
	return want.Dev == have.Dev && want.Ino == have.Ino && fs.Flags&restricted == restricted && (fs.Flags&unix.ST_RDONLY == 0) == writable
}
