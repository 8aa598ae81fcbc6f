package plugin

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// become gives up what root may, and turns into the program. It returns only when that does not work.
func become(c *cage) error {
	runtime.LockOSThread() // privileges belong to threads; the one that calls execve is the one that stays
	if c.Namespaces {
		if err := syscall.Setgroups(nil); err != nil {
			return fmt.Errorf("leave groups: %w", err)
		}
		if err := syscall.Setresgid(nobody, nobody, nobody); err != nil {
			return fmt.Errorf("become group nobody: %w", err)
		}
		if err := syscall.Setresuid(nobody, nobody, nobody); err != nil {
			return fmt.Errorf("become nobody: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	// A change of the user forgets it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	err := syscall.Exec(c.Args[0], c.Args, os.Environ())
	if errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("run %s: %w; it runs as nobody, who must be able to read it and the directories above it", c.Args[0], err)
	}
	return fmt.Errorf("run %s: %w", c.Args[0], err)
}
