package devices

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Host is this machine's tree, or one of a test with nodes of its own.
func Host(sys, dev string) *Tree {
	return &Tree{Sys: sys, Dev: dev, Captures: captures, Number: number}
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
func captures(node string) bool {
	fd, err := unix.Open(node, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var answer v4lCapability
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), vidiocQuerycap, uintptr(unsafe.Pointer(&answer))); errno != 0 {
		return false
	}
	can := answer.capabilities
	if can&v4lDeviceCaps != 0 {
		can = answer.deviceCaps
	}
	return can&(v4lCapture|v4lCaptureMultiPlan) != 0
}
