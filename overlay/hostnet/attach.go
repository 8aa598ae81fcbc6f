//go:build linux

package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// ensureBase makes the bridge and its address once per process.
func (n *Network) ensureBase() error {
	if n.base {
		return nil
	}
	if err := os.MkdirAll(n.opts.RunDir, 0o711); err != nil {
		return err
	}
	routes, err := kernel.Whole(func() ([]netlink.Route, error) {
		return n.nl.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	name := n.opts.bridge()
	bridge, err := n.nl.LinkByName(name)
	if err != nil && !kernel.Gone(err) {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	own := 0
	if err == nil {
		own = bridge.Attrs().Index
	}
	if err := n.chooseSubnet(routes, own); err != nil {
		return err
	}
	n.mtu = n.outerMTU(routes)
	n.dns, n.search = resolvers(n.opts.ResolvConf)
	if own == 0 {
		if err := n.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: n.mtu, TxQLen: -1,
			HardwareAddr: n.opts.mac()}}); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make bridge %s: %w", name, err)
		}
		if bridge, err = n.nl.LinkByName(name); err != nil {
			return fmt.Errorf("bridge %s: %w", name, err)
		}
	}
	n.index = bridge.Attrs().Index
	gw := netip.PrefixFrom(n.state.gateway(), n.state.Subnet.Bits())
	if err := n.nl.AddrReplace(bridge, &netlink.Addr{IPNet: kernel.IPNet(gw)}); err != nil {
		return fmt.Errorf("address of bridge %s: %w", name, err)
	}
	// One that was given before the subnet was changed.
	addrs, err := kernel.Whole(func() ([]netlink.Addr, error) { return n.nl.AddrList(bridge, netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("addresses of bridge %s: %w", name, err)
	}
	for _, a := range addrs {
		if a.IPNet.String() != gw.String() {
			if err := n.nl.AddrDel(bridge, &a); err != nil {
				return fmt.Errorf("address %s of bridge %s: %w", a.IPNet, name, err)
			}
		}
	}
	if err := n.nl.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	err = kernel.In(n.host, func() error {
		return errors.Join(
			kernel.Sysctl("ipv4/ip_forward", "1"),
			// See the package comment for what goes with it.
			kernel.Sysctl("ipv4/conf/"+name+"/route_localnet", "1"),
		)
	})
	if err != nil {
		return err
	}
	n.base = true
	return nil
}

// pool is where subnets are taken from when none is given.
func pool() netip.Prefix { return netip.MustParsePrefix("10.31.0.0/16") }

// chooseSubnet makes sure that the subnet overlaps no route of the host but our own bridge's.
func (n *Network) chooseSubnet(routes []netlink.Route, own int) error {
	clash := func(p netip.Prefix) *netlink.Route {
		for i, r := range routes {
			if r.Dst == nil || own != 0 && r.LinkIndex == own {
				continue
			}
			a, ok := netip.AddrFromSlice(r.Dst.IP.To4())
			ones, _ := r.Dst.Mask.Size()
			if ok && ones > 0 && netip.PrefixFrom(a, ones).Overlaps(p) {
				return &routes[i]
			}
		}
		return nil
	}
	if n.opts.Subnet.IsValid() {
		if r := clash(n.opts.Subnet); r != nil {
			return fmt.Errorf("subnet %s overlaps the host's route to %s; give the worker another subnet", n.opts.Subnet, r.Dst)
		}
		n.state.Subnet = n.opts.Subnet
		return nil
	}
	if n.state.Subnet.IsValid() && (clash(n.state.Subnet) == nil || len(n.state.Addrs) > 0) {
		// One that is in use is kept even if somebody came across it later: moving would cut off what runs.
		return nil
	}
	b := pool().Addr().As4()
	for i := range 256 {
		b[2] = byte(i)
		if p := netip.PrefixFrom(netip.AddrFrom4(b), 24); clash(p) == nil {
			n.state.Subnet = p
			return n.state.save(&n.opts)
		}
	}
	return fmt.Errorf("no /24 of %s is free of the host's routes; give the worker a subnet", pool())
}

// outerMTU is that of the device that leads out; larger packets of instances would vanish there.
func (n *Network) outerMTU(routes []netlink.Route) int {
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones != 0 {
				continue
			}
		}
		if l, err := n.nl.LinkByIndex(r.LinkIndex); err == nil && l.Attrs().MTU >= 576 {
			return min(l.Attrs().MTU, 65535)
		}
	}
	return 1500
}

// attach makes an attachment, or finds it complete.
func (n *Network) attach(id string) error {
	name, path := n.link(id), n.path(id)
	if !isNS(path) {
		if err := removeNS(path); err != nil {
			return err
		}
	} else if l, err := n.nl.LinkByName(name); err == nil && l.Attrs().MasterIndex == n.index && n.complete(id) {
		return nil
	}
	// Something is there, but not all of it. Processes in the namespace keep it: only the cable is made anew.
	if l, err := n.nl.LinkByName(name); err == nil {
		if err := n.nl.LinkDel(l); err != nil && !kernel.Gone(err) {
			return fmt.Errorf("delete interface %s: %w", name, err)
		}
	} else if !kernel.Gone(err) {
		return err
	}
	if isNS(path) {
		ns, err := os.Open(path)
		if err != nil {
			return err
		}
		defer ns.Close()
		return kernel.In(ns, func() error { return n.wire(id, ns) })
	}
	return newNS(path, func(ns *os.File) error { return n.wire(id, ns) })
}

// complete says whether the inner end has its address.
func (n *Network) complete(id string) bool {
	ns, err := os.Open(n.path(id))
	if err != nil {
		return false
	}
	defer ns.Close()
	ok := false
	_ = kernel.In(ns, func() error {
		eth, err := net.InterfaceByName("eth0")
		if err != nil || eth.Flags&net.FlagUp == 0 {
			return err
		}
		addrs, err := eth.Addrs()
		for _, a := range addrs {
			if p, ok2 := a.(*net.IPNet); ok2 && p.IP.Equal(n.state.Addrs[id].AsSlice()) {
				ok = true
			}
		}
		return err
	})
	return ok
}

// wire runs on a thread inside the namespace.
func (n *Network) wire(id string, ns *os.File) error {
	inner, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer inner.Close()
	if old, err := inner.LinkByName("eth0"); err == nil {
		if err := inner.LinkDel(old); err != nil && !kernel.Gone(err) {
			return fmt.Errorf("delete eth0: %w", err)
		}
	}
	name := n.link(id)
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, MTU: n.mtuOf(id), MasterIndex: n.index, TxQLen: -1, Flags: net.FlagUp},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(int(ns.Fd())), PeerMTU: uint32(n.mtuOf(id)),
	}
	if err := n.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("make interface %s: %w", name, err)
	}
	lo := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: 1}}
	if err := inner.LinkSetUp(lo); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	eth, err := inner.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("eth0: %w", err)
	}
	for _, addr := range n.addresses(id) {
		// Nobody else can have it: to wait for a doubt about that would only delay the start.
		if err := inner.AddrReplace(eth, &netlink.Addr{IPNet: kernel.IPNet(addr), Flags: noDAD(addr)}); err != nil {
			return fmt.Errorf("address %s: %w", addr, err)
		}
	}
	if err := inner.LinkSetUp(eth); err != nil {
		return fmt.Errorf("eth0: %w", err)
	}
	if err := n.routes(inner, eth.Attrs().Index, id); err != nil {
		return err
	}
	if err := n.nl.NeighSet(stays(veth.Index, eth.Attrs().HardwareAddr)); err != nil {
		return fmt.Errorf("hardware address of %s at the bridge: %w", name, err)
	}
	// The tunnel sends a large segment with one system call, which takes 64 KiB with all headers. Larger ones would need two,
	// the second of which carries next to nothing. An older kernel cannot be told, and is only slower for it.
	_ = inner.LinkSetGSOMaxSize(eth, maxSegment)
	return errors.Join(
		// Instances have no CAP_NET_RAW and may run as anybody; inside a namespace of their own both are harmless.
		kernel.Sysctl("ipv4/ping_group_range", "0\t2147483647"),
		kernel.Sysctl("ipv4/ip_unprivileged_port_start", "0"),
	)
}

// stays is the bridge's note of where a hardware address is. It is not learned, and does not move when another port uses the address
// (before Linux 4.20 it does).
func stays(port int, addr net.HardwareAddr) *netlink.Neigh {
	const sticky = 0x40 // NTF_STICKY
	return &netlink.Neigh{LinkIndex: port, Family: unix.AF_BRIDGE, State: netlink.NUD_NOARP, Flags: netlink.NTF_MASTER | sticky,
		HardwareAddr: addr}
}

// maxSegment is the largest segment, in bytes, that an instance hands to the network at once.
const maxSegment = 60000

// detach takes an attachment down and frees its address. The cable goes with the namespace; see reap.
func (n *Network) detach(id string) (cable int, err error) {
	delete(n.up, id)
	delete(n.shaped, id)
	if _, ok := n.state.Addrs[id]; ok {
		if way, err := n.nl.LinkByName(n.shaper(id)); err == nil {
			if err := n.nl.LinkDel(way); err != nil && !kernel.Gone(err) {
				return 0, fmt.Errorf("delete device %s: %w", n.shaper(id), err)
			}
		}
	}
	if _, ok := n.state.Addrs[id]; ok {
		if l, err := n.nl.LinkByName(n.link(id)); err == nil {
			cable = l.Attrs().Index
		}
	}
	if err := removeNS(n.path(id)); err != nil {
		return 0, err
	}
	delete(n.state.Addrs, id)
	return cable, nil
}

// reap sees to it that cables go. Deleting one takes the kernel some 25 ms, in which it does nothing else to the
// network; left alone, it deletes those of all namespaces that ended at once, together. So it is given a while, and
// only what a process holds on to by staying in its namespace is deleted one by one.
func (n *Network) reap(cables []int) {
	nl, err := netlink.NewHandleAt(netns.NsHandle(n.host.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return // the next one to get the address deletes it, or CleanUp
	}
	defer nl.Close()
	// By index: a name may belong to somebody new by now, an index does not.
	there := func() []int {
		return slices.DeleteFunc(cables, func(i int) bool {
			_, err := nl.LinkByIndex(i)
			return err != nil
		})
	}
	for range 20 {
		if cables = there(); len(cables) == 0 {
			return
		}
		select {
		case <-time.After(25 * time.Millisecond):
		case <-n.closing:
		}
	}
	for _, i := range cables {
		_ = nl.LinkDel(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: i}})
	}
}

// forgetFlows ends translations to addresses that are gone: a client that goes on sending datagrams would keep its
// entry alive for ever. Without conntrack over netlink they time out.
func (n *Network) forgetFlows(addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	var filters []netlink.CustomConntrackFilter
	for _, a := range addrs {
		f := &netlink.ConntrackFilter{}
		if f.AddIP(netlink.ConntrackReplySrcIP, a.AsSlice()) == nil {
			filters = append(filters, f)
		}
	}
	_, _ = n.nl.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, filters...)
}
