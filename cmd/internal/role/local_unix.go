//go:build !windows

package role

import (
	"fmt"
	"os"
	"syscall"
)

// owned refuses a folder that somebody else made or may write to.
func owned(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.IsDir() || int(st.Uid) != os.Getuid() || fi.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a private directory of this user; remove it", dir)
	}
	return nil
}
