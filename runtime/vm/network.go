//go:build linux

package vm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime/vm/wire"
)

// nic is a guest's only interface: it takes the place of the one in the instance's namespace.
type nic struct {
	Tap *os.File
	MAC net.HardwareAddr
	MTU int
	// Addresses and Routes are those that the guest is to have, for one that is told them in other words.
	Addresses []netip.Prefix
	Routes    []hop
}

// hop is a route by a gateway. OnLink: the gateway is on the wire, though no address of the card says so.
type hop struct {
	To, Via string
	OnLink  bool
}

const (
	tapName = "vm0"
	// guestIndex is the number of the guest's interface, after the loopback's.
	guestIndex = 2
)

// joinNetwork leads everything that arrives at the interface of this thread's network namespace to a tap device, and
// everything from there out of it, so that the guest is what the interface was: with its link address, and what is told of
// its addresses and routes. It gives nil where the namespace has no interface. The tap ends with its descriptor, and with it
// what leads there.
func joinNetwork() (*nic, *wire.Net, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, nil, err
	}
	defer nl.Close()
	links, err := nl.LinkList()
	if err != nil {
		return nil, nil, err
	}
	var eth netlink.Link
	for _, l := range links {
		if l.Attrs().Name == tapName && dropTap() != nil {
			return nil, nil, errors.New("another machine has the instance's network; a service in virtual machines has one container with a network at a time")
		}
		if l.Type() == "veth" && l.Attrs().Flags&net.FlagUp != 0 {
			eth = l
		}
	}
	if eth == nil {
		return nil, nil, nil
	}
	tap, err := openTap()
	if err != nil {
		return nil, nil, err
	}
	n := &nic{Tap: tap, MAC: eth.Attrs().HardwareAddr, MTU: eth.Attrs().MTU}
	config, err := func() (*wire.Net, error) {
		t, err := nl.LinkByName(tapName)
		if err != nil {
			return nil, err
		}
		if err := nl.LinkSetMTU(t, n.MTU); err != nil {
			return nil, err
		}
		if err := nl.LinkSetUp(t); err != nil {
			return nil, err
		}
		if err := errors.Join(lead(nl, eth, t), lead(nl, t, eth)); err != nil {
			return nil, fmt.Errorf("lead packets to the machine: %w", err)
		}
		return describe(nl, eth, n)
	}()
	if err != nil {
		tap.Close()
		return nil, nil, err
	}
	return n, config, nil
}

// openTap makes a tap device that carries large segments and unfinished checksums.
func openTap() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(tapName)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make a tap device: %w", err)
	}
	return os.NewFile(uintptr(fd), "tap"), nil
}

// leave makes the tap one that a user may open by its name, and that stays until somebody has.
func (n *nic) leave(uid int) error {
	fd := int(n.Tap.Fd())
	for request, arg := range map[uint]int{unix.TUNSETOWNER: uid, unix.TUNSETPERSIST: 1} {
		if err := unix.IoctlSetInt(fd, request, arg); err != nil {
			return fmt.Errorf("leave the tap device to the machine: %w", err)
		}
	}
	return n.Tap.Close()
}

// endTapWith has a tap that a process has opened by its name end with that process, as it would with a descriptor that was handed down.
func endTapWith(pid int) error {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	for _, path := range fds {
		if to, _ := os.Readlink(path); to != "/dev/net/tun" {
			continue
		}
		n, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			return err
		}
		tap, err := unix.PidfdGetfd(process, n, 0)
		if err != nil {
			return fmt.Errorf("look at the machine's tap device: %w", err)
		}
		defer unix.Close(tap)
		return unix.IoctlSetInt(tap, unix.TUNSETPERSIST, 0)
	}
	return nil // it has ended
}

// dropTap removes a tap that nobody has open: one that was left, and whose machine has ended.
func dropTap() error {
	tap, err := openTap()
	if err != nil {
		return err
	}
	defer tap.Close()
	return unix.IoctlSetInt(int(tap.Fd()), unix.TUNSETPERSIST, 0)
}

// lead sends on whatever arrives at one device by another. What a machine before this one left is replaced.
func lead(nl *netlink.Handle, from, to netlink.Link) error {
	index := from.Attrs().Index
	in := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT}}
	_ = nl.QdiscDel(in)
	if err := nl.QdiscAdd(in); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nl.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)},
	})
}

// describe writes down what the guest is to ask of its kernel to have the addresses and routes of an interface.
func describe(nl *netlink.Handle, eth netlink.Link, card *nic) (*wire.Net, error) {
	index := eth.Attrs().Index
	n := &wire.Net{Index: guestIndex}
	say := func(kind int, header []byte, attrs ...[]byte) {
		n.Requests = append(n.Requests, request(kind, header, attrs...))
	}
	up := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(up[4:], guestIndex)
	binary.NativeEndian.PutUint32(up[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(up[12:], unix.IFF_UP)
	// A machine that began with a template has another one.
	say(unix.RTM_NEWLINK, up, attribute(unix.IFLA_ADDRESS, card.MAC), attribute(unix.IFLA_MTU, number(uint32(eth.Attrs().MTU))))
	addrs, err := nl.AddrList(eth, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if a.IP.IsLinkLocalUnicast() {
			continue // the guest's kernel makes its own
		}
		ip, family := bytesOf(a.IP)
		ones, _ := a.Mask.Size()
		if addr, ok := netip.AddrFromSlice(ip); ok {
			card.Addresses = append(card.Addresses, netip.PrefixFrom(addr, ones))
		}
		h := []byte{family, byte(ones), 0, 0, guestIndex, 0, 0, 0}
		binary.NativeEndian.PutUint32(h[4:], guestIndex)
		attrs := [][]byte{attribute(unix.IFA_LOCAL, ip), attribute(unix.IFA_ADDRESS, ip)}
		if family == unix.AF_INET6 {
			attrs = append(attrs, attribute(unix.IFA_FLAGS, number(unix.IFA_F_NODAD))) // nobody else can have it
		}
		say(unix.RTM_NEWADDR, h, attrs...)
	}
	routes, err := nl.RouteList(eth, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	// A route to a gateway needs one to where that is: those without come first.
	for _, direct := range []bool{true, false} {
		for _, r := range routes {
			if (r.Gw == nil) != direct || r.Protocol == unix.RTPROT_KERNEL || r.LinkIndex != index {
				continue
			}
			n.Requests = append(n.Requests, route(r))
			card.Routes = append(card.Routes, hopOf(r))
		}
	}
	return n, nil
}

func route(r netlink.Route) string {
	h := make([]byte, unix.SizeofRtMsg)
	h[4], h[5], h[6], h[7] = unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, byte(r.Scope), unix.RTN_UNICAST
	binary.NativeEndian.PutUint32(h[8:], uint32(r.Flags)&unix.RTNH_F_ONLINK)
	attrs := [][]byte{attribute(unix.RTA_OIF, number(guestIndex))}
	if r.Dst != nil {
		ones, _ := r.Dst.Mask.Size()
		h[1] = byte(ones)
		if ones > 0 {
			var dst []byte
			dst, h[0] = bytesOf(r.Dst.IP)
			attrs = append(attrs, attribute(unix.RTA_DST, dst))
		}
	}
	if r.Gw != nil {
		var gw []byte
		gw, h[0] = bytesOf(r.Gw)
		attrs = append(attrs, attribute(unix.RTA_GATEWAY, gw))
	}
	if r.Priority != 0 {
		attrs = append(attrs, attribute(unix.RTA_PRIORITY, number(uint32(r.Priority))))
	}
	return request(unix.RTM_NEWROUTE, h, attrs...)
}

// hopOf gives a route in words; without a gateway Via is empty.
func hopOf(r netlink.Route) (h hop) {
	h.To = "0.0.0.0/0"
	if r.Dst != nil {
		h.To = r.Dst.String()
	} else if r.Gw.To4() == nil && r.Gw != nil {
		h.To = "::/0"
	}
	if r.Gw != nil {
		h.Via, h.OnLink = r.Gw.String(), r.Flags&unix.RTNH_F_ONLINK != 0
	}
	return h
}

func bytesOf(ip net.IP) ([]byte, byte) {
	if four := ip.To4(); four != nil {
		return four, unix.AF_INET
	}
	return ip.To16(), unix.AF_INET6
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// attribute is one of rtnetlink(7), padded.
func attribute(kind int, data []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	b = binary.NativeEndian.AppendUint16(b, uint16(kind))
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// request is a message of netlink(7) that is to be acknowledged. Host and guest are of one architecture.
func request(kind int, header []byte, attrs ...[]byte) string {
	body := header
	for _, a := range attrs {
		body = append(body, a...)
	}
	b := number(uint32(unix.SizeofNlMsghdr + len(body)))
	b = binary.NativeEndian.AppendUint16(b, uint16(kind))
	flags := uint16(unix.NLM_F_REQUEST | unix.NLM_F_ACK)
	if kind != unix.RTM_NEWLINK { // that one is there
		flags |= unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	}
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = append(b, make([]byte, 8)...) // sequence and port
	return string(append(b, body...))
}
