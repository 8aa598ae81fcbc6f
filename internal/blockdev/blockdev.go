//go:build linux

// Package blockdev finds the block device that a directory is on, as control groups want it named. The worker and tests of
// drivers import it.
package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Of gives the numbers of the whole device that the file system of a directory is on, as "254:0": limits are set for disks, not
// for partitions. File systems without a device of their own, such as btrfs, are looked up by what they were mounted from.
func Of(dir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	number := name(st.Dev)
	if unix.Major(st.Dev) == 0 {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return "", err
		}
		source := mountedFrom(string(mounts), number)
		if unix.Stat(source, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
			return "", fmt.Errorf("%s is on no block device", dir)
		}
		number = name(st.Rdev)
	}
	return whole("/sys/dev/block", number)
}

func name(dev uint64) string { return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)) }

// mountedFrom gives the source of a mount by the number of its file system.
func mountedFrom(mountinfo, number string) string {
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if ok && len(l) > 2 && len(r) > 1 && l[2] == number {
			return r[1]
		}
	}
	return ""
}

// whole gives the disk of a partition, and anything else itself.
func whole(sys, number string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(sys, number))
	if err != nil {
		return "", fmt.Errorf("block device %s: %w", number, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err != nil {
		return number, nil
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "dev"))
	return strings.TrimSpace(string(data)), err
}
