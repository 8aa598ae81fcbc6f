//go:build linux

// Package userns makes user namespaces, and mounts in which files belong to the users of one. It changes no thread and keeps no state.
// Runtime drivers import it.
package userns

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
)

// Open makes a user namespace in which nothing runs. It lives as long as the file, or a mount that was made with it. It
// belongs to its own root, as whom nothing runs outside: the kernel counts what is used in it, such as inotify
// instances, for its owner, too. Where only the host's root may make namespaces it belongs to that.
func Open(m runtime.UserNamespace) (*os.File, error) {
	f, err := open(m, &syscall.Credential{Uid: m.First, Gid: m.First})
	if err != nil {
		f, err = open(m, nil)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS) {
		err = fmt.Errorf("%w: sysctl user.max_user_namespaces allows no more", err)
	}
	if err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	return f, nil
}

// open has a process enter a namespace, for that is how one begins, and keeps the namespace instead of the process.
func open(m runtime.UserNamespace, owner *syscall.Credential) (_ *os.File, err error) {
	code, ok := program(goruntime.GOARCH)
	if !ok {
		return nil, errors.New("there is no program for it on " + goruntime.GOARCH)
	}
	fd, err := unix.MemfdCreate("userns", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	exe := os.NewFile(uintptr(fd), "userns")
	defer exe.Close()
	if _, err := exe.Write(code); err != nil {
		return nil, err
	}
	var pipes [4]*os.File
	if pipes[0], pipes[1], err = os.Pipe(); err == nil {
		pipes[2], pipes[3], err = os.Pipe()
	}
	defer func() {
		for _, f := range pipes {
			f.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	p, err := os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", fd), []string{"userns"},
		&os.ProcAttr{Files: []*os.File{pipes[0], pipes[3]}, Sys: &syscall.SysProcAttr{Credential: owner}})
	if err != nil {
		return nil, err
	}
	ended := false
	defer func() {
		if !ended {
			_ = p.Kill()
			_, _ = p.Wait()
		}
	}()
	pipes[3].Close()
	var in [1]byte
	if n, _ := pipes[2].Read(in[:]); n == 0 {
		st, err := p.Wait()
		ended = true
		if err == nil {
			err = syscall.Errno(max(st.ExitCode(), 1)) // a signal is not expected
		}
		return nil, err
	}
	// Not waited for, the process keeps its number.
	dir := fmt.Sprintf("/proc/%d/", p.Pid)
	ids := fmt.Appendf(nil, "0 %d %d\n", m.First, m.Size)
	for _, file := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(dir+file, ids, 0); err != nil {
			return nil, err
		}
	}
	return os.Open(dir + "ns/user")
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
	if err == unix.ENOSYS { // before Linux 5.2
		return t.mountOld(target, err)
	}
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
	if err := unix.MountSetattr(fd, "", how, &attr); err == unix.ENOSYS { // before Linux 5.12
		return t.mountOld(target, err)
	} else if err != nil {
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

// mountOld attaches a tree where the kernel cannot change a whole one at once: what is mounted below Path stays out of
// one that is to be read only, for it could be written to.
func (t Tree) mountOld(target string, cause error) error {
	if t.Users != nil {
		return &unmappable{t.Path, cause}
	}
	flags := uintptr(unix.MS_BIND)
	if t.Recursive && !t.ReadOnly {
		flags |= unix.MS_REC
	}
	err := unix.Mount(t.Path, target, "", flags, "")
	if err == nil {
		err = unix.Mount("", target, "", unix.MS_PRIVATE|unix.MS_REC, "")
		if err == nil && t.ReadOnly {
			err = remountReadOnly(target)
		}
		if err != nil {
			_ = unix.Unmount(target, unix.MNT_DETACH)
		}
	}
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", t.Path, target, err)
	}
	return nil
}

// remountReadOnly keeps the other restrictions of a mount.
func remountReadOnly(target string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return err
	}
	const kept = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC // of the same values as the flags of a mount
	return unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|uintptr(st.Flags)&kept, "")
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
