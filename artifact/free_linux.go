package artifact

import "golang.org/x/sys/unix"

// freeBytes is how much a process without privileges may still write to the file system of a directory.
func freeBytes(dir string) (int64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}
