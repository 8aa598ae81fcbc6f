package tunnel

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offloads that a tap's reader takes on itself.
const (
	tunCsum = 0x01
	tunTSO4 = 0x02
	tunTSO6 = 0x04
	tunUSO4 = 0x20
	tunUSO6 = 0x40
)

// openTap opens a tap device, makes it when it is not there, and has it stay when it is closed.
func openTap(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("tap %s: open /dev/net/tun: %w; the kernel needs TUN, and the process the right to use it", name, err)
	}
	fail := func(what string, err error) (int, error) {
		unix.Close(fd)
		return -1, fmt.Errorf("tap %s: %s: %w", name, what, err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return fail("name", err)
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return fail("attach", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, vnetLen); err != nil {
		return fail("set the length of headers", err)
	}
	// USO needs Linux 6.2.
	if unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tunCsum|tunTSO4|tunTSO6|tunUSO4|tunUSO6) != nil {
		if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tunCsum|tunTSO4|tunTSO6); err != nil {
			return fail("set offloads", err)
		}
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fail("make it stay", err)
	}
	return fd, nil
}

// wake is a descriptor by which one goroutine ends another's wait.
type wake struct{ fd int }

func newWake() (wake, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return wake{-1}, os.NewSyscallError("eventfd", err)
	}
	return wake{fd}, nil
}

func (w wake) wake() {
	one := [8]byte{1}
	_, _ = unix.Write(w.fd, one[:])
}

// wait waits until a descriptor can be read; false: the wait was ended.
func (w wake) wait(fd int) bool {
	fds := [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(w.fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds[:], -1)
		if err == unix.EINTR || err == nil && n == 0 {
			continue
		}
		return err == nil && fds[1].Revents == 0
	}
}

// readTap reads a frame, without waiting for one.
func readTap(fd int, b []byte) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if e != syscall.EINTR {
			return int(n), e
		}
	}
}

// yield lets other threads of this processor run.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// writev writes a frame to the tap. The array of vectors is the caller's to keep.
func writev(fd int, iov [][]byte, vec []unix.Iovec) ([]unix.Iovec, error) {
	vec = vec[:0]
	for _, b := range iov {
		v := unix.Iovec{Base: unsafe.SliceData(b)}
		v.SetLen(len(b))
		vec = append(vec, v)
	}
	for {
		_, _, e := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&vec[0])), uintptr(len(vec)))
		switch e {
		case 0:
			return vec, nil
		case syscall.EINTR:
			continue
		}
		return vec, e
	}
}
