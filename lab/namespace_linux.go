package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"skerry.dev/skerry/internal/thread"
)

// kinds are the namespaces that a host has of its own.
var kinds = []struct {
	name string
	flag int
}{{"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}}

func (l *Lab) nsFile(host, kind string) string { return l.path("ns", host+"."+kind) }

// prepareSpaces makes the directory in which namespaces are kept by mounts. Mount namespaces can only be kept where
// mounts are not propagated.
func (l *Lab) prepareSpaces() error {
	dir := l.path("ns")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make %s private: %w", dir, err)
	}
	return nil
}

// makeSpaces makes the namespaces of a host and keeps them. setUp runs inside.
func (l *Lab) makeSpaces(host string, setUp func() error) error {
	tid := make(chan int)
	kept := make(chan error)
	made := make(chan error, 1)
	go thread.Run(func() {
		err := unshare(host)
		if err == nil {
			err = l.dress()
		}
		if err == nil {
			err = setUp()
		}
		if err != nil {
			tid <- 0
			made <- err
			return
		}
		tid <- unix.Gettid()
		made <- <-kept
	})
	if id := <-tid; id != 0 {
		kept <- l.keep(host, id)
	}
	if err := <-made; err != nil {
		return fmt.Errorf("namespaces of %s: %w", host, err)
	}
	return nil
}

func unshare(host string) error {
	flags := 0
	for _, k := range kinds {
		flags |= k.flag
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	// What the host unmounts must not stay in use for as long as the lab stands.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts from the host: %w", err)
	}
	return unix.Sethostname([]byte(host))
}

// keep binds the namespaces of a thread to files.
func (l *Lab) keep(host string, tid int) error {
	for _, k := range kinds {
		file := l.nsFile(host, k.name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/%s", tid, k.name), file, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep %s: %w", file, err)
		}
	}
	return nil
}

// dress gives the calling thread's mount namespace a /sys that shows its own devices, with cgroups where they were and a BPF
// file system of its own, and a hosts file with the lab's names.
func (l *Lab) dress() error {
	below, err := mountsBelow("/sys")
	if err != nil {
		return err
	}
	var tops []string // those that hold the others
	for _, m := range below {
		if !slices.ContainsFunc(tops, func(t string) bool { return strings.HasPrefix(m, t+"/") }) && !slices.Contains(tops, m) {
			tops = append(tops, m)
		}
	}
	aside := make([]string, len(tops))
	for i, m := range tops {
		aside[i] = l.path("sys", fmt.Sprint(i))
		if err := os.MkdirAll(aside[i], 0o700); err != nil {
			return err
		}
		if err := unix.Mount(m, aside[i], "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("set %s aside: %w", m, err)
		}
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	for i, m := range tops {
		if _, err := os.Stat(m); err != nil {
			continue // a mount point that only the other namespace has
		}
		if m == bpffs {
			continue // what workers pin there is named after them, and other labs have workers of the same names
		}
		if err := unix.Mount(aside[i], m, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("put %s back: %w", m, err)
		}
	}
	if _, err := os.Stat(bpffs); err == nil {
		// Without it the host's worker says what it lacks.
		_ = unix.Mount("bpf", bpffs, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700")
	}
	if _, err := os.Stat("/etc/hosts"); err == nil {
		if err := unix.Mount(l.path("hosts"), "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount /etc/hosts: %w", err)
		}
	}
	return nil
}

// bpffs is where programs and tables are pinned.
const bpffs = "/sys/fs/bpf"

// mountsBelow lists mount points below a directory in the order in which they were mounted.
func mountsBelow(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			out = append(out, f[4])
		}
	}
	return out, nil
}

// errOff says that a host has no namespaces: it is powered off.
var errOff = errors.New("the host is powered off")

// enter makes the calling thread one of the host's. It cannot go back.
func (l *Lab) enter(host string) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, k := range kinds {
		fd, err := unix.Open(l.nsFile(host, k.name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil || !isNamespace(fd) {
			if err == nil {
				unix.Close(fd)
			}
			return fmt.Errorf("%s: %w", host, errOff)
		}
		fds = append(fds, fd)
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	for i, k := range kinds { // the mount namespace last: the files are in this one
		if err := unix.Setns(fds[i], k.flag); err != nil {
			return fmt.Errorf("enter %s namespace of %s: %w", k.name, host, err)
		}
	}
	return nil
}

func isNamespace(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// spaces names the namespaces of a host as /proc does; none when it is off.
func (l *Lab) spaces(host string) (out []string) {
	for _, k := range kinds {
		fd, err := unix.Open(l.nsFile(host, k.name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if isNamespace(fd) && unix.Fstat(fd, &st) == nil {
			out = append(out, fmt.Sprintf("%s:[%d]", k.name, st.Ino))
		}
		unix.Close(fd)
	}
	return out
}

// dropSpaces lets go of a host's namespaces; they end with their last process.
func (l *Lab) dropSpaces(host string) error {
	for _, k := range kinds {
		if err := release(l.nsFile(host, k.name)); err != nil {
			return err
		}
	}
	return nil
}

// release unmounts a file, as often as it is mounted upon, and removes it.
func release(file string) error {
	for {
		err := unix.Unmount(file, unix.MNT_DETACH)
		if err == unix.EINVAL || err == unix.ENOENT {
			break
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", file, err)
		}
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// unmountAll unmounts everything below a directory and at it.
func unmountAll(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	list, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(append([]string{dir}, list...)) {
		if err := unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL && err != unix.ENOENT {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	return nil
}
