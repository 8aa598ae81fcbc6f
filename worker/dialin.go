//go:build linux

package worker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/thread"
)

// dialIn connects by TCP from within a network namespace. A socket belongs to the namespace that it was made in, so only
// that takes place there.
func dialIn(ctx context.Context, netns string, to netip.AddrPort) (net.Conn, error) {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Unmap().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().Unmap().As4()}
	}
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: err}
	}
	fd, err := socketIn(netns, family)
	if err != nil {
		return fail(err)
	}
	// Not yet watched by the runtime: of a socket that is not connected the kernel would tell that it hung up.
	if err := unix.Connect(fd, sa); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return fail(os.NewSyscallError("connect", err))
	}
	file := os.NewFile(uintptr(fd), "tcp")
	defer file.Close() // FileConn has a copy
	if err := connected(ctx, file); err != nil {
		return fail(err)
	}
	c, err := net.FileConn(file)
	if err != nil {
		return fail(err)
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetNoDelay(true)
		_ = t.SetKeepAlive(true)
	}
	return c, nil
}

// connected waits until a socket is connected.
func connected(ctx context.Context, file *os.File) error {
	if d, ok := ctx.Deadline(); ok {
		if err := file.SetWriteDeadline(d); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			failed = os.NewSyscallError("getsockopt", err)
		case n != 0:
			failed = os.NewSyscallError("connect", unix.Errno(n))
		default:
			_, err := unix.Getpeername(int(fd))
			return err == nil // else not yet
		}
		return true
	})
	if failed == nil {
		failed = err
	}
	if failed != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return failed
}

// socketIn makes a TCP socket in a network namespace.
func socketIn(netns string, family int) (fd int, err error) {
	err = inNetNS(netns, func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return os.NewSyscallError("socket", err)
	})
	return fd, err
}

// inNetNS calls f on a thread in a network namespace, which ends with it.
func inNetNS(netns string, f func() error) error {
	ns, err := os.Open(netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	return thread.Do(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("join network namespace: %w", err)
		}
		return f()
	})
}
