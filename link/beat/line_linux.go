package beat

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// line is the way to a parent. Its socket is with Go's poller only once an answer did not come at once: the poller wakes two threads for
// each datagram, and that is most of what an idle worker does.
type line struct {
	fd     int
	polled net.Conn // the same socket, or nil
}

func dial(to netip.AddrPort) (*line, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &line{}
	var failed error
	err = raw.Control(func(fd uintptr) { l.fd, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *line) close() {
	if l.polled != nil {
		l.polled.Close()
	}
	unix.Close(l.fd)
}

// send sends a beat. It does not block.
func (l *line) send(out []byte) error {
	if _, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(l.fd), uintptr(unsafe.Pointer(unsafe.SliceData(out))), uintptr(len(out))); e != 0 {
		return e
	}
	return nil
}

// exchange sends a beat and waits for what comes within a time, in the thread that it is called in and without telling Go's scheduler.
// n is 0 if nothing came.
func (l *line) exchange(out, in []byte, wait time.Duration) (n int, err error) {
	if l.polled != nil {
		l.polled.Close()
		l.polled = nil
	}
	for range mostLate { // what came late is no answer to this beat, and would stand before it
		if n, err := l.take(in); n == 0 || err != nil {
			break
		}
	}
	if err := l.send(out); err != nil {
		return 0, err
	}
	for end := time.Now().Add(wait); ; {
		poll, span := unix.PollFd{Fd: int32(l.fd), Events: unix.POLLIN}, unix.NsecToTimespec(int64(max(time.Until(end), 0)))
		ready, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&span)), 0, 0, 0)
		if e == syscall.EINTR {
			continue // Go's scheduler wants the thread, which it gets in a moment
		}
		if e != 0 || ready == 0 {
			return 0, nil
		}
		return l.take(in)
	}
}

// take reads what has come already.
func (l *line) take(in []byte) (n int, err error) {
	got, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(l.fd), uintptr(unsafe.Pointer(unsafe.SliceData(in))), uintptr(len(in)))
	switch e {
	case 0:
		return int(got), nil
	case syscall.EAGAIN:
		return 0, nil
	default:
		return 0, e
	}
}

// receive waits for what comes until a time, or until ctx ends.
func (l *line) receive(ctx context.Context, in []byte, until time.Time) (n int, err error) {
	if l.polled == nil {
		if l.polled, err = pollable(l.fd); err != nil { // there are too many descriptors, say: it is looked at now and then
			select {
			case <-ctx.Done():
			case <-time.After(min(time.Until(until), lookAgain)):
			}
			if n, _ = l.take(in); n > 0 {
				err = nil
			}
			return n, err
		}
	}
	conn := l.polled
	if err := conn.SetReadDeadline(until); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return conn.Read(in)
}

// pollable gives a socket to Go's poller, which has a descriptor of its own for it.
func pollable(fd int) (net.Conn, error) {
	other, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(other), "beats")
	defer f.Close()
	return net.FileConn(f)
}

// mostLate is how many datagrams are thrown away before a beat. Who sends more in the parent's name holds up no thread by that.
const mostLate = 64

// lookAgain is how often a socket is looked at that the poller could not be given.
const lookAgain = 10 * time.Millisecond

// quickRTT is up to which round trip a beat waits for its answer in its thread.
const quickRTT = 2 * time.Millisecond
