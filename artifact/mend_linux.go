package artifact

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// sameOwner compares the owners, and the numbers of devices.
func sameOwner(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, too := b.Sys().(*syscall.Stat_t)
	return ok && too && x.Uid == y.Uid && x.Gid == y.Gid && x.Rdev == y.Rdev
}

// sameAttributes compares the extended attributes that an unpacked layer has of its archive, and of overlayfs.
func sameAttributes(want, have string) bool {
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(want, names)
	if err != nil {
		return true // the file system has none
	}
	for len(names[:n]) > 0 {
		name := unix.ByteSliceToString(names[:n])
		names, n = names[len(name)+1:], n-len(name)-1
		a, b := make([]byte, 64<<10), make([]byte, 64<<10)
		x, err := unix.Lgetxattr(want, name, a)
		if err != nil {
			continue
		}
		y, err := unix.Lgetxattr(have, name, b)
		if err != nil || string(a[:x]) != string(b[:y]) {
			return false
		}
	}
	return true
}
