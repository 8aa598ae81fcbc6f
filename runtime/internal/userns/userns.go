//go:build linux

// Package userns makes user namespaces, and mounts in which files belong to the users of one. It changes no thread and keeps no state.
// Runtime drivers import it.
package userns

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
)

// Open makes a user namespace in which nothing runs. It lives as long as the file, or a mount that was made with it.
func Open(m runtime.UserNamespace) (*os.File, error) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(m.First), Size: int(m.Size)}}
	// A namespace begins with a process. This one stops before its program's first instruction and is killed there. Should this thread
	// end before that, it dies as well.
	p, err := os.StartProcess("/proc/self/exe", []string{"userns"}, &os.ProcAttr{
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Ptrace: true, Pdeathsig: unix.SIGKILL},
	})
	if err != nil {
		if errors.Is(err, unix.ENOSPC) {
			err = fmt.Errorf("%w: sysctl user.max_user_namespaces allows no more", err)
		}
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	// Not waited for yet, the process keeps its number.
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	_ = p.Kill()
	_, _ = p.Wait()
	if err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	return f, nil
}

// Tree says what a mount is to show, and how.
type Tree struct {
	Path string
	// Users maps who files belong to, on disk 0 to Size-1, by a namespace; nil: as they are.
	Users *os.File
	// ReadOnly and Recursive count for Users as well: of all that is mounted below Path, or of Path alone.
	ReadOnly, Recursive bool
}

// Mount attaches a tree at a target, a directory or a file as Path is. Nothing is mounted after an error; IsUnmappable tells whether
// it would be without Users.
func Mount(t Tree, target string) error {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	how := uint(unix.AT_EMPTY_PATH)
	if t.Recursive {
		flags, how = flags|unix.AT_RECURSIVE, how|unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, t.Path, flags)
	if err != nil {
		return fmt.Errorf("open %s: %w", t.Path, err)
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if t.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if t.Users != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(t.Users.Fd())
	}
	if err := unix.MountSetattr(fd, "", how, &attr); err != nil {
		if t.Users != nil {
			return &unmappable{t.Path, err}
		}
		return fmt.Errorf("mount %s: %w", t.Path, err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s at %s: %w", t.Path, target, err)
	}
	return nil
}

type unmappable struct {
	path string
	err  error
}

func (e *unmappable) Error() string {
	return fmt.Sprintf("map the owners of files in %s: %v", e.path, e.err)
}
func (e *unmappable) Unwrap() error { return e.err }

// IsUnmappable reports whether a file system, or the kernel, cannot map the owners of files.
func IsUnmappable(err error) bool {
	_, ok := errors.AsType[*unmappable](err)
	return ok
}
