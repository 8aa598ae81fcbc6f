//go:build linux

package wasm

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// nobody is the user as whom modules run, and are compiled.
const nobody = 65534

// enter leaves everything behind but a directory, which becomes the root, and gives up every privilege. It is called in a mount
// namespace of this process's own; it changes every thread.
func enter(root string) error {
	fail := func(what string, err error) error { return fmt.Errorf("sandbox: %s: %w", what, err) }
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fail("keep mounts apart", err)
	}
	var st, up unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return fail("root", err)
	}
	if err := unix.Stat(root+"/..", &up); err != nil || st.Dev == up.Dev {
		if err := unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fail("root", err)
		}
	}
	if err := os.Chdir(root); err != nil {
		return fail("root", err)
	}
	if err := unix.PivotRoot(".", "."); err == nil {
		if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
			return fail("leave the host's files", err)
		}
	} else if err == unix.EINVAL { // the host runs from its initial RAM disk, which nothing can be pivoted away from
		if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
			return fail("leave the host's files", err)
		}
		if err := unix.Chroot("."); err != nil {
			return fail("leave the host's files", err)
		}
	} else {
		return fail("leave the host's files", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fail("root", err)
	}
	for _, step := range []func() error{
		func() error {
			if os.Getgid() == nobody { // in a spare it is done
				return nil
			}
			return errors.Join(syscall.Setgroups(nil), syscall.Setresgid(nobody, nobody, nobody))
		},
		func() error { return syscall.Setresuid(nobody, nobody, nobody) }, // with it go the capabilities
		func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) },
		func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) },
	} {
		if err := step(); err != nil {
			return fail("give up privileges", err)
		}
	}
	return nil
}
