//go:build linux

package main

import (
	"strconv"
	"syscall"
	"unsafe"

	"skerry.dev/skerry/runtime/vm/wire"
)

const (
	prCapBSetDrop   = 24
	prSetNoNewPrivs = 38
)

func prctl(option, arg uintptr) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, arg, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func finitModule(fd, flags int) error {
	empty := [1]byte{}
	if _, _, errno := syscall.Syscall(sysFinitModule, uintptr(fd), uintptr(unsafe.Pointer(&empty)), uintptr(flags)); errno != 0 {
		return errno
	}
	return nil
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// setrlimit is not the one of package syscall, which also remembers.
func setrlimit(resource int, limit *syscall.Rlimit) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, uintptr(resource), uintptr(unsafe.Pointer(limit)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// connectHost connects to vm-run by a virtio socket.
func connectHost() (int, error) {
	const afVsock = 40
	fd, err := syscall.Socket(afVsock, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	to := struct {
		family, reserved uint16
		port, cid        uint32
		zero             [4]byte
	}{family: afVsock, port: wire.SocketPort, cid: wire.HostCID}
	if _, _, errno := syscall.Syscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&to)), unsafe.Sizeof(to)); errno != 0 {
		syscall.Close(fd)
		return -1, errno
	}
	return fd, nil
}

func openAt(dir int, name string) (int, error) {
	return syscall.Openat(dir, name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
}

// seed gives the kernel's random numbers a start, and has them begin there at once: a machine that has just been made has nothing to draw
// from, and one that began with a template would draw what others do.
func seed(s string) error {
	const words = 64
	var pool struct {
		bits, size int32
		data       [words]byte
	}
	n := copy(pool.data[:], s)
	pool.bits, pool.size = int32(n*8), int32(n)
	fd, err := syscall.Open("/dev/random", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	const addEntropy, reseed = 0x40085203, 0x5207
	if err := ioctl(fd, addEntropy, unsafe.Pointer(&pool)); err != nil {
		return err
	}
	return ioctl(fd, reseed, nil)
}

// setClock sets the time of day: a machine that began with a template has the template's.
func setClock(nanoseconds uint64) error {
	now := syscall.NsecToTimeval(int64(nanoseconds))
	return syscall.Settimeofday(&now)
}

// streams are the ends of a process's pipes, or its terminal. A descriptor that is not there is -1.
type streams struct {
	child  []uintptr
	in     int
	out    [2]int
	master int
	null   int
}

// openStreams makes them. The program of a task has no input; what is executed beside it has.
func openStreams(proc *wire.Process, input bool) (*streams, error) {
	s := &streams{in: -1, out: [2]int{-1, -1}, master: -1, null: -1}
	if proc.TTY {
		master, slave, err := openTerminal(proc.Size)
		if err != nil {
			return s, wrap("open a terminal", err)
		}
		s.master, s.in, s.out[0] = master, master, master
		s.child = []uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
		// Whoever reads closes its descriptor; the one that is written to is another.
		if s.in, err = syscall.Dup(master); err != nil {
			return s, err
		}
		syscall.CloseOnExec(s.in)
		s.master = s.in
		return s, nil
	}
	var fds [3][2]int
	for i := range fds {
		if i == 0 && !input {
			fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
			if err != nil {
				return s, wrap("/dev/null", err)
			}
			fds[0] = [2]int{fd, -1}
			continue
		}
		if err := syscall.Pipe2(fds[i][:], syscall.O_CLOEXEC); err != nil {
			return s, wrap("pipe", err)
		}
	}
	s.in, s.out = fds[0][1], [2]int{fds[1][0], fds[2][0]}
	s.child = []uintptr{uintptr(fds[0][0]), uintptr(fds[1][1]), uintptr(fds[2][1])}
	return s, nil
}

func (s *streams) closeChild() {
	last := uintptr(0)
	for _, fd := range s.child {
		if fd != last {
			syscall.Close(int(fd))
		}
		last = fd
	}
	s.child = nil
}

func (s *streams) close() {
	if s == nil {
		return
	}
	s.closeChild()
	for _, fd := range []int{s.in, s.out[0], s.out[1]} {
		if fd >= 0 {
			syscall.Close(fd)
		}
	}
}

func openTerminal(size wire.Size) (master, slave int, err error) {
	master, err = syscall.Open("/dev/pts/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	var n, unlock int32
	if err = ioctl(master, syscall.TIOCGPTN, unsafe.Pointer(&n)); err == nil {
		err = ioctl(master, syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	}
	if err == nil {
		setSize(master, size)
		slave, err = syscall.Open("/dev/pts/"+strconv.Itoa(int(n)), syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		syscall.Close(master)
	}
	return master, slave, err
}

func setSize(terminal int, size wire.Size) {
	if terminal >= 0 && size != (wire.Size{}) {
		w := [4]uint16{uint16(size.Rows), uint16(size.Cols)}
		_ = ioctl(terminal, syscall.TIOCSWINSZ, unsafe.Pointer(&w))
	}
}
