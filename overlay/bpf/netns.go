//go:build linux

package bpf

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

// cookie gives the number of a network namespace, which no other one has until the machine is started anew.
func cookie(ns *os.File) (n uint64, err error) {
	err = in(ns, func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		n, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("number of the network namespace: %w", err)
	}
	return n, nil
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
