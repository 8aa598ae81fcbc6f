package files

import (
	"os"

	"golang.org/x/sys/unix"
)

// exchange gives a file another's name, as a rename does, and removes the other. When one file is renamed over another, ext4, btrfs and
// others begin to write the new one to the disk, for programs that forget to: milliseconds for whoever waits, and wear of the flash, for a
// file that is not to be there after the next start. When they change places, nothing is written.
func exchange(from, to string) error {
	if unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE) == nil {
		_ = os.Remove(from) // else whoever replaces the file next does it
		return nil
	}
	return os.Rename(from, to) // there is no other file, or the file system cannot do it
}
