package beat

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// quickly sends a beat and waits for what comes within a time, in the thread that it is called in: it sends, waits and reads without
// telling Go's scheduler, which would wake two more threads for each. That is most of what an idle worker does. n is 0 if nothing came.
func quickly(raw syscall.RawConn, out, in []byte, wait time.Duration) (n int, err error) {
	failed := raw.Control(func(fd uintptr) {
		if _, _, e := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(out))), uintptr(len(out))); e != 0 {
			err = e
			return
		}
		poll, span := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}, unix.NsecToTimespec(int64(wait))
		ready, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&span)), 0, 0, 0)
		if e != 0 || ready == 0 {
			return
		}
		got, _, e := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(in))), uintptr(len(in)))
		if e != 0 {
			err = e
			return
		}
		n = int(got)
	})
	if failed != nil {
		err = failed
	}
	return n, err
}

// quickRTT is up to which round trip a beat waits for its answer in its thread.
const quickRTT = 2 * time.Millisecond
