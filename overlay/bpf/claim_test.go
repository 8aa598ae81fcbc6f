//go:build linux

package bpf

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// Two workers of one name in one network would take each other's tables: the second is refused while the first lives.
func TestOneOfAName(t *testing.T) {
	t.Parallel()
	h := newWorld(t, tunnel).hosts[0]
	if _, err := New(h.opts); skerry.AsError(err).Code != skerry.CodeConflict || !strings.Contains(err.Error(), "another worker "+h.opts.Worker) {
		t.Errorf("a second one: %v", err)
	}
	planetest.Must(t, h.dev.Close())
	h.Open()
}

// A program of another user cannot keep a worker from starting by holding its name, whether it listens there or not.
func TestNameHeldByAnotherUser(t *testing.T) {
	t.Parallel()
	for _, listens := range []bool{false, true} {
		h := newWorld(t, tunnel).hosts[0]
		planetest.Must(t, h.dev.Close())
		ns, err := os.Open(h.opts.NetNS)
		planetest.Must(t, err)
		defer ns.Close()
		planetest.Must(t, kernel.In(ns, func() error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(fd) })
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@skerry/ebpf/" + h.opts.Worker})
			if err == nil && listens {
				// The kernel notes who listens; the thread ends with this.
				if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); e != 0 {
					return e
				}
				err = unix.Listen(fd, 1)
			}
			return err
		}))
		h.Open()
	}
}
