package files

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Kept is a file of /proc, /sys or a control group that is read again and again. It stays open, and each read takes what it says now. Such
// files never block, so the runtime's poller, which os.File registers them with, only costs: an epoll_ctl on opening and on closing. The
// zero value is closed.
type Kept struct{ fd int } // the descriptor and 1

// Keep opens a file.
func Keep(path string) (Kept, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0) })
	if err != nil {
		return Kept{}, err
	}
	return Kept{fd + 1}, nil
}

// Open reports whether the file is open.
func (k Kept) Open() bool { return k.fd > 0 }

// Read reads the whole file into buf, or into more where that does not suffice. The file of a control group that is gone gives ENODEV.
func (k Kept) Read(buf []byte) ([]byte, error) {
	n := 0
	for {
		if n == len(buf) {
			buf = append(buf, make([]byte, max(len(buf), 4<<10))...)
		}
		m, err := k.readAt(buf[n:], n)
		if err != nil {
			return nil, err
		}
		// The kernel ends a read early only where the next line does not fit into a page: what is much shorter was the whole.
		if n += m; m == 0 || n < shortest && n < len(buf) {
			return buf[:n], nil
		}
	}
}

// shortest is less than what a read gives of a file that has more: a page without its longest line.
const shortest = 2 << 10

// Head reads the beginning of the file, as much as buf takes.
func (k Kept) Head(buf []byte) ([]byte, error) {
	n, err := k.readAt(buf, 0)
	return buf[:max(n, 0)], err
}

func (k Kept) readAt(buf []byte, at int) (int, error) {
	if k.fd == 0 {
		return 0, unix.EBADF
	}
	return retry(func() (int, error) { return unix.Pread(k.fd-1, buf, int64(at)) })
}

// Close closes the file. A second call does nothing.
func (k *Kept) Close() error {
	if k.fd == 0 {
		return nil
	}
	fd := k.fd - 1
	k.fd = 0
	return unix.Close(fd)
}

// Peek reads a file as Kept does, once.
func Peek(path string, buf []byte) ([]byte, error) {
	k, err := Keep(path)
	if err != nil {
		return nil, err
	}
	data, err := k.Read(buf)
	return data, errors.Join(err, k.Close())
}

func retry(f func() (int, error)) (int, error) {
	for {
		if n, err := f(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
