// Package cable lays network cables for benchmarks: namespaces of their own, with paths, and veth pairs between them.
// It measures nothing. Only packages below bench import it.
package cable

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"skerry.dev/skerry/internal/thread"
)

// Space is a network namespace. The zero value is that of this process.
type Space struct{ path string }

// Make makes a namespace with loopback up, which is there as long as path is.
func Make(path string) (s *Space, err error) {
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		return nil, err
	}
	s = &Space{path}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("network namespace: %w", err), s.Close())
		}
	}()
	return s, thread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		return up("lo", netip.Prefix{})
	})
}

// At is the namespace at a path that others have made, and close.
func At(path string) *Space { return &Space{path} }

// Path is where the namespace is; empty for this process's.
func (s *Space) Path() string { return s.path }

func (s *Space) file() string {
	if s.path == "" {
		return "/proc/thread-self/ns/net"
	}
	return s.path
}

// Do runs fn inside, on a thread of its own. What fn starts is inside too.
func (s *Space) Do(fn func() error) error {
	if s.path == "" {
		return fn()
	}
	return thread.Do(func() error {
		f, err := os.Open(s.path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return fn()
	})
}

// Close takes the path away; the namespace ends with the last process in it.
func (s *Space) Close() error {
	err := unix.Unmount(s.path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) {
		err = nil
	}
	return errors.Join(err, os.Remove(s.path))
}

// End is one end of a cable.
type End struct {
	Space  *Space
	Device string
	Addr   netip.Prefix
}

// Lay lays a cable between two ends, for packets of up to 1500 bytes.
func Lay(a, b End) error {
	file, err := os.Open(b.Space.file())
	if err != nil {
		return err
	}
	defer file.Close()
	err = a.Space.Do(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: a.Device, MTU: 1500}, PeerName: b.Device, PeerMTU: 1500,
			PeerNamespace: netlink.NsFd(int(file.Fd()))}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return up(a.Device, a.Addr)
	})
	if err == nil {
		err = b.Space.Do(func() error { return up(b.Device, b.Addr) })
	}
	for _, e := range []End{a, b} {
		if err == nil {
			err = e.Space.Do(func() error { return running(e.Device) })
		}
	}
	if err != nil {
		return fmt.Errorf("cable %s to %s: %w", a.Device, b.Device, err)
	}
	return nil
}

// up gives an interface an address, unless that is empty, and starts it.
func up(name string, addr netip.Prefix) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if addr.IsValid() {
		bits := 32
		if addr.Addr().Is6() {
			bits = 128
		}
		if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: addr.Addr().AsSlice(),
			Mask: net.CIDRMask(addr.Bits(), bits)}}); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

// running waits until an interface carries packets: what is sent before, such as the first packet of a connection, is lost.
func running(name string) error {
	for range 200 {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if l.Attrs().OperState == netlink.OperUp {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("%s does not come up", name)
}

// Cut takes a cable away by one of its ends; one that is not there is no error.
func (e End) Cut() error {
	return e.Space.Do(func() error {
		l, err := netlink.LinkByName(e.Device)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
}

// Unsegmented has an end send packets as a wire carries them, none of more than 1500 bytes that is cut later. What puts
// them together on arrival stays as it is.
func (e End) Unsegmented() error {
	return e.Space.Do(func() error {
		out, err := exec.Command("ethtool", "-K", e.Device, "tso", "off", "gso", "off", "tx-udp-segmentation", "off").CombinedOutput()
		if err != nil {
			return fmt.Errorf("ethtool %s: %w: %s", e.Device, err, out)
		}
		return nil
	})
}

// Block gives the addresses of the two ends of a cable: of the range that is kept for benchmarks (RFC 2544), others for each process.
func Block() (near, far netip.Prefix) {
	n := os.Getpid()
	a := netip.AddrFrom4([4]byte{198, 18 + byte(n>>14&1), byte(n >> 6), byte(n << 2)}).Next()
	return netip.PrefixFrom(a, 30), netip.PrefixFrom(a.Next(), 30)
}
