//go:build linux

package nft

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// in runs f on a thread of its own in a network namespace.
func in(ns *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked, so that the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("join network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

func sysctl(name, value string) error {
	path := "/proc/sys/net/" + name
	if data, err := os.ReadFile(path); err == nil && string(data) == value+"\n" {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("set net.%s to %s: %w", name, value, err)
	}
	return nil
}
