package devices

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Host is this machine's tree, or one of a test with nodes of its own. One goroutine at a time looks at it.
func Host(sys, dev string) *Tree {
	return &Tree{Sys: sys, Dev: dev, Number: number, Captures: capturing(captures)}
}

// capturing asks each node once. One that is somebody's alone is in use, which is what it is there for: an agent that is restarted finds it
// like that.
func capturing(ask func(node string) (bool, error)) func(node string) bool {
	known := map[plugged]bool{}
	return func(node string) bool {
		var st unix.Stat_t
		if unix.Stat(node, &st) != nil {
			return false
		}
		at := plugged{uint64(st.Ino), uint64(st.Rdev), st.Ctim}
		if can, ok := known[at]; ok {
			return can
		}
		can, err := ask(node)
		if err == nil {
			if len(known) > 256 { // of those that were plugged in before
				clear(known)
			}
			known[at] = can
		}
		return can || errors.Is(err, unix.EBUSY)
	}
}

// plugged is a device for as long as it is plugged in: then the kernel makes another node. To be opened wakes a camera up, so each is asked
// once.
type plugged struct {
	inode, number uint64
	made          unix.Timespec
}

// number gives the number of a character device.
func number(node string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(node, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return "", fmt.Errorf("%s is no character device", node)
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), nil
}

// v4lCapability is struct v4l2_capability of linux/videodev2.h.
type v4lCapability struct {
	driver       [16]byte
	card         [32]byte
	busInfo      [32]byte
	version      uint32
	capabilities uint32
	deviceCaps   uint32
	reserved     [3]uint32
}

// Of linux/videodev2.h.
const (
	vidiocQuerycap      = 0x80685600
	v4lCapture          = 0x1
	v4lCaptureMultiPlan = 0x1000
	v4lDeviceCaps       = 0x80000000
)

// captures asks a V4L node what it does; that starts nothing.
func captures(node string) (bool, error) {
	fd, err := unix.Open(node, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	var answer v4lCapability
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), vidiocQuerycap, uintptr(unsafe.Pointer(&answer))); errno != 0 {
		return false, errno
	}
	can := answer.capabilities
	if can&v4lDeviceCaps != 0 {
		can = answer.deviceCaps
	}
	return can&(v4lCapture|v4lCaptureMultiPlan) != 0, nil
}
