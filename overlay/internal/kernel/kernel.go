//go:build linux

// Package kernel has what the overlay's parts ask of the kernel in the same way: namespaces, settings, devices and lists.
package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/thread"
)

// In runs f on a thread of its own in a network namespace.
func In(ns *os.File, f func() error) error {
	return thread.Do(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("join network namespace: %w", err)
		}
		return f()
	})
}

// Sysctl sets one of the kernel's settings below net, such as "ipv4/ip_forward", in the thread's namespace; fs.ErrNotExist if
// the kernel does not have it.
func Sysctl(name, value string) error {
	path := "/proc/sys/net/" + name
	if data, err := os.ReadFile(path); err == nil && string(data) == value+"\n" {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set net.%s to %s: %w", name, value, err)
	}
	return nil
}

// SysctlIfAny is Sysctl for a setting that matters only to kernels that have it.
func SysctlIfAny(name, value string) error {
	if err := Sysctl(name, value); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// OpenTap makes a tap device that stays, or opens it. The program of the other side may have it open: then there is no file,
// and no error when keep is false.
func OpenTap(ns *os.File, name string, flags uint16, keep bool) (*os.File, error) {
	var file *os.File
	err := In(ns, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("open /dev/net/tun: %w", err)
		}
		ifr, err := unix.NewIfreq(name)
		if err == nil {
			ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | flags)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
		}
		if err == nil {
			err = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
		}
		if err != nil || !keep {
			unix.Close(fd)
			return err
		}
		file = os.NewFile(uintptr(fd), name)
		if err := awaitQueue(name); err != nil {
			file.Close()
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("tap device %s: %w", name, err)
	}
	return file, nil
}

// awaitQueue waits until the kernel queues packets for a device that was just opened. It drops them until one of its threads has
// seen that the device has a reader, which on a busy machine takes a while.
func awaitQueue(name string) error {
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		a := l.Attrs()
		queues := a.OperState == netlink.OperUp || a.OperState == netlink.OperUnknown
		if queues || a.Flags&net.FlagUp == 0 || time.Now().After(end) {
			return nil
		}
	}
}

// Gone says whether an error is that there is no such device.
func Gone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.As(err, &netlink.LinkNotFoundError{})
}

// Whole asks for a list until the kernel gives it in one piece: devices that come and go interrupt it. After many tries it
// takes what there is.
func Whole[T any](list func() ([]T, error)) ([]T, error) {
	for range 50 {
		out, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	out, err := list()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		err = nil
	}
	return out, err
}

// IPNet is a prefix as netlink has it.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Claim reserves a name of the kind in a network namespace, as long as the file is open and this process lives: two workers of one name
// would take each other's tables and devices. A program of another user has no say in it: what it holds is passed over, and the claim is nil.
func Claim(ns *os.File, kind, worker string) (claim *os.File, err error) {
	err = In(ns, func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		claim = os.NewFile(uintptr(fd), "claim")
		// A name that begins so is in no file system, but in the namespace alone.
		name := &unix.SockaddrUnix{Name: "@skerry/" + kind + "/" + worker}
		// What a process that has let go of it started at that moment has it until it executes its program.
		end := time.Now().Add(claimWait)
		for err = unix.Bind(fd, name); errors.Is(err, unix.EADDRINUSE) && time.Now().Before(end); err = unix.Bind(fd, name) {
			time.Sleep(10 * time.Millisecond)
		}
		if errors.Is(err, unix.EADDRINUSE) && !listens(name, os.Geteuid()) {
			claim.Close()
			claim = nil
			return nil
		}
		if err == nil {
			err = unix.Listen(fd, 1) // so that it can be asked whose it is
		}
		return err
	})
	if err != nil && claim != nil {
		claim.Close()
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, skerry.Errorf(skerry.CodeConflict, "another worker %s runs in the same network", worker).
			WithHint("give each worker of a machine its own name (--name)")
	}
	if err != nil {
		return nil, fmt.Errorf("claim the name of worker %s: %w", worker, err)
	}
	return claim, nil
}

// claimWait is how long a claim waits for another to end.
const claimWait = 3 * time.Second

// listens reports whether a user listens at a name in the thread's network namespace.
func listens(name unix.Sockaddr, user int) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if unix.Connect(fd, name) != nil {
		return false
	}
	who, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && int(who.Uid) == user
}
