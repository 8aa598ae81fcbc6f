//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/nfsmount"
	"skerry.dev/skerry/spec"
)

// mountPart mounts a part of a volume at a place, in place of what is mounted there from an earlier attempt.
func mountPart(volume, sub, at string, missing bool) error {
	part, err := detach(volume, sub, missing)
	if err != nil {
		return err
	}
	return part.attach(sub, at)
}

// mountRemotePart is mountPart of a volume on a server, which may hang. Whatever asks the server is done apart: opening the part, and
// looking what it is. It is mounted as it was opened then, which asks nobody.
func mountRemotePart(ctx context.Context, table *nfsmount.Table, volume *spec.NFSVolume, root, sub, at string) error {
	part, err := within(ctx, table, volume.Server, serverPatience, &nfsmount.NoAnswer{Source: volume.Source(), After: serverPatience},
		func() (*detached, error) { return detach(root, sub, false) }, func(part *detached) { unix.Close(part.tree) })
	if err != nil {
		return err
	}
	return part.attach(sub, at)
}

// detached is a part of a volume, mounted nowhere yet.
type detached struct {
	tree int // of open_tree(2)
	dir  bool
}

// detach opens a part of a volume as openPart does. What is mounted is what was found then, whatever becomes of the path.
func detach(volume, sub string, missing bool) (*detached, error) {
	file, err := openPart(volume, sub, missing)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var st unix.Statx_t // as it was found
	if err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: sub, Err: err}
	}
	tree, err := unix.OpenTree(int(file.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", sub, err)
	}
	return &detached{tree, st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

// attach mounts what is detached at a place, and closes it.
func (d *detached) attach(sub, at string) error {
	defer unix.Close(d.tree)
	if err := vacate(at); err != nil {
		return err
	}
	if err := makePoint(d.dir, at); err != nil {
		return err
	}
	if err := unix.MoveMount(d.tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", sub, err)
	}
	err := unix.MountSetattr(d.tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Propagation: unix.MS_PRIVATE})
	if err == unix.ENOSYS { // before Linux 5.12; by its path, the server may be asked
		err = unix.Mount("", at, "", unix.MS_PRIVATE, "")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("mount %s: %w", sub, err), unix.Unmount(at, unix.MNT_DETACH))
	}
	return nil
}

// vacate takes away what an earlier attempt has mounted at a place.
func vacate(at string) error {
	if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	return nil
}

// openPart opens a file or directory of a volume, for nothing but mounting. No link leads out of the volume. With missing, directories that
// are not there are made, for the same users as the volume.
func openPart(volume, sub string, missing bool) (*os.File, error) {
	root, err := unix.Open(volume, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: volume, Err: err}
	}
	defer unix.Close(root)
	fd, err := beneath(root, sub, unix.O_PATH)
	parts := strings.Split(sub, "/")
	for n := 1; missing && err == unix.ENOENT && n <= len(parts); n++ {
		if made := makeBeneath(root, strings.Join(parts[:n-1], "/"), parts[n-1]); made != nil {
			err = made
			break
		}
		if n == len(parts) {
			fd, err = beneath(root, sub, unix.O_PATH)
		}
	}
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
		return nil, impossible(fmt.Sprintf("%s is, or goes through, a symbolic link that leads out of the volume", sub))
	case errors.Is(err, unix.ENOSYS):
		return nil, impossible("parts of volumes need Linux 5.6 or newer, which finds them without following links out of the volume")
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: sub, Err: err}
	}
	file := os.NewFile(uintptr(fd), sub)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		file.Close()
		return nil, &os.PathError{Op: "stat", Path: sub, Err: err}
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		file.Close()
		return nil, impossible(sub + " is neither a file nor a directory")
	}
	return file, nil
}

// beneath opens a path below a directory. Another process that renames something there has the kernel ask for another try.
func beneath(root int, sub string, flags uint64) (fd int, err error) {
	for range 8 {
		fd, err = unix.Openat2(root, sub, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
		if err != unix.EAGAIN && err != unix.EINTR {
			break
		}
	}
	return fd, err
}

// makeBeneath makes a directory with the owner and the permissions of the volume, if nothing is there.
func makeBeneath(root int, parent, name string) error {
	if parent == "" {
		parent = "."
	}
	in, err := beneath(root, parent, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	if err := unix.Mkdirat(in, name, 0o700); err == unix.EEXIST {
		return nil
	} else if err != nil {
		return err
	}
	// What is there now may be another one, but nothing out of the volume, and a directory.
	made, err := unix.Openat2(in, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return err
	}
	defer unix.Close(made)
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return err
	}
	return errors.Join(unix.Fchown(made, int(st.Uid), int(st.Gid)), unix.Fchmod(made, st.Mode&0o777))
}

// mountPoint makes a directory or an empty file to mount on, as what is to be mounted is.
func mountPoint(f *os.File, at string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	return makePoint(st.Mode&unix.S_IFMT == unix.S_IFDIR, at)
}

// makePoint makes a directory or an empty file to mount on.
func makePoint(dir bool, at string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	_ = os.Remove(at) // an empty one of the other kind
	if dir {
		return os.Mkdir(at, 0o755)
	}
	return os.WriteFile(at, nil, 0o600)
}

// impossible is why an instance, or a volume of it, cannot be made here, however often it is tried.
type impossible string

func (e impossible) Error() string { return string(e) }
