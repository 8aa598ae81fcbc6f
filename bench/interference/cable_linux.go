package interference

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	goruntime "runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
)

// cable joins a network namespace, with a path, to the machine.
type cable struct {
	path, device string
	inside       netip.Addr
	attachment   *skerry.Attachment
}

// newCable lays a cable. Its addresses are of the range that is kept for benchmarks (RFC 2544), another for each process.
func newCable(path string) (c *cable, err error) {
	n := os.Getpid()
	block := netip.AddrFrom4([4]byte{198, 18 + byte(n>>14&1), byte(n >> 6), byte(n << 2)})
	outer := block.Next()
	c = &cable{path: path, device: fmt.Sprintf("skbi%d", n), inside: outer.Next()}
	c.attachment = &skerry.Attachment{NetNS: path, Device: c.device, MTU: 1500, Addresses: []netip.Prefix{netip.PrefixFrom(c.inside, 30)}}
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	host, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer host.Close()
	done := make(chan error)
	go func() {
		goruntime.LockOSThread() // the thread ends with the goroutine
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
				return err
			}
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 1500}, PeerName: c.device, PeerMTU: 1500, PeerNamespace: netlink.NsFd(int(host.Fd()))}); err != nil {
				return err
			}
			return errors.Join(up("lo", netip.Prefix{}), up("eth0", netip.PrefixFrom(c.inside, 30)))
		}()
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("network of the service: %w", err)
	}
	return c, up(c.device, netip.PrefixFrom(outer, 30))
}

// up gives an interface an address, unless that is empty, and starts it.
func up(name string, addr netip.Prefix) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if addr.IsValid() {
		if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: addr.Addr().AsSlice(), Mask: net.CIDRMask(addr.Bits(), 32)}}); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

// close takes the cable away, the interface of the machine first: the namespace may live a little longer.
func (c *cable) close() (err error) {
	if l, e := netlink.LinkByName(c.device); e == nil {
		err = netlink.LinkDel(l)
	}
	if e := unix.Unmount(c.path, unix.MNT_DETACH); e != nil && !errors.Is(e, unix.EINVAL) {
		err = errors.Join(err, e)
	}
	return errors.Join(err, os.Remove(c.path))
}
