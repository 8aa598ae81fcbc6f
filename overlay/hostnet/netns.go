//go:build linux

package hostnet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	"skerry.dev/skerry/internal/thread"
)

// nsfsMagic is the file system of namespace files.
const nsfsMagic = 0x6e736673

// newNS makes a namespace with a name in the file system and runs f in it.
func newNS(path string, f func(ns *os.File) error) error {
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	file.Close()
	err = thread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("name the network namespace %s: %w", path, err)
		}
		ns, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer ns.Close()
		return f(ns)
	})
	if err != nil {
		return errors.Join(err, removeNS(path))
	}
	return nil
}

// removeNS takes the name away; the namespace ends with its last process. Half-made ones are removed too.
func removeNS(path string) error {
	for {
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			break // EINVAL when nothing is mounted there
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// isNS says whether a namespace has this name.
func isNS(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == nsfsMagic
}
