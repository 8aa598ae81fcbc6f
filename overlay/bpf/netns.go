//go:build linux

package bpf

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// cookie gives the number of a network namespace, which no other one has until the machine is started anew.
func cookie(ns *os.File) (n uint64, err error) {
	err = kernel.In(ns, func() error {
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
