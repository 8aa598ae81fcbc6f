package testenv

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Recvfrom waits for a datagram on a blocking socket. Go's scheduler interrupts threads by a signal; a wait that has a limit
// (SO_RCVTIMEO) is not begun again by the kernel then, as others are.
func Recvfrom(fd int, buf []byte) (n int, from unix.Sockaddr, err error) {
	for {
		n, from, err = unix.Recvfrom(fd, buf, 0)
		if !errors.Is(err, unix.EINTR) {
			return n, from, err
		}
	}
}
