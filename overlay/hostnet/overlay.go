//go:build linux

package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// ensureOverlay takes up the overlay's addresses: blocks lead to the bridge, and are translated on their way out as the
// subnet is. An attachment that is there keeps the address that it has.
func (n *Network) ensureOverlay(f *Overlay) error {
	n.overlay = f
	if f == nil {
		return nil
	}
	before := len(n.routed)
	for _, b := range f.Blocks {
		if !slices.Contains(n.state.Blocks, b) {
			if err := n.free(b); err != nil {
				return err
			}
		}
	}
	if err := n.state.hold(f.Blocks); err != nil {
		return err
	}
	for _, b := range n.state.Blocks {
		if slices.Contains(n.routed, b) {
			continue
		}
		route := &netlink.Route{LinkIndex: n.index, Dst: kernel.IPNet(b), Scope: netlink.SCOPE_LINK, Src: n.state.gateway().AsSlice()}
		if err := n.nl.RouteReplace(route); err != nil {
			return fmt.Errorf("route to %s: %w", b, err)
		}
		n.routed = append(n.routed, b)
	}
	if f.V6.IsValid() {
		bridge, err := n.nl.LinkByIndex(n.index)
		if err == nil {
			gw := netip.PrefixFrom(f.V6.Addr().Next(), 64)
			err = n.nl.AddrReplace(bridge, &netlink.Addr{IPNet: kernel.IPNet(gw), Flags: noDAD(gw)})
		}
		switch {
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EAFNOSUPPORT):
			without := *f
			without.V6 = netip.Prefix{} // the host has no IPv6, so its instances have none
			n.overlay = &without
		case err != nil:
			return fmt.Errorf("address in %s: %w", f.V6, err)
		}
	}
	if len(n.routed) != before {
		n.table = false // new blocks are translated, too
	}
	return nil
}

// Overlap is a block of addresses that the host cannot take up, because it has a route to some of them. Who gave the block must be told
// of the host's networks, and gives another one.
type Overlap struct{ Block, Route netip.Prefix }

func (e *Overlap) Error() string {
	return fmt.Sprintf("block %s of the overlay overlaps the host's route to %s; its cluster is told, and gives another one", e.Block, e.Route)
}

// free says whether a block is none of the host's own networks.
func (n *Network) free(b netip.Prefix) error {
	routes, err := kernel.Whole(func() ([]netlink.Route, error) {
		return n.nl.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil || r.LinkIndex == n.index {
			continue
		}
		a, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		ones, _ := r.Dst.Mask.Size()
		if ok && ones > 0 && netip.PrefixFrom(a, ones).Overlaps(b) {
			return &Overlap{Block: b, Route: netip.PrefixFrom(a, ones)}
		}
	}
	return nil
}

// Networks lists the prefixes that the host itself uses, so that no block is chosen among them.
func (n *Network) Networks() []netip.Prefix {
	routes, err := kernel.Whole(func() ([]netlink.Route, error) {
		return n.nl.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	own := n.opts.bridge()
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		if l, err := n.nl.LinkByIndex(r.LinkIndex); err == nil && l.Attrs().Name == own {
			continue
		}
		a, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		if ones, _ := r.Dst.Mask.Size(); ok && ones > 0 {
			out = append(out, netip.PrefixFrom(a, ones).Masked())
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// Gateway is the bridge's address, at which instances reach this host; the zero value before the first Set.
func (n *Network) Gateway() netip.Addr {
	n.busy <- struct{}{}
	defer func() { <-n.busy }()
	if !n.base {
		return netip.Addr{}
	}
	return n.state.gateway()
}

// give finds an attachment its address.
func (n *Network) give(id string) error {
	var err error
	if n.overlay != nil && len(n.overlay.Blocks) > 0 {
		_, err = n.state.allocateOf(id, n.overlay.Blocks)
	} else {
		_, err = n.state.allocate(id)
	}
	return err
}

// subnets are all prefixes that instances may have addresses of.
func (n *Network) subnets() []netip.Prefix {
	return append([]netip.Prefix{n.state.Subnet}, n.state.Blocks...)
}

// addresses are those of an attachment. One of the overlay stands alone, so that everything goes by the gateway.
func (n *Network) addresses(id string) []netip.Prefix {
	a := n.state.Addrs[id]
	if n.state.block(a) < 0 {
		return []netip.Prefix{netip.PrefixFrom(a, n.state.Subnet.Bits())}
	}
	out := []netip.Prefix{netip.PrefixFrom(a, 32)}
	if n.overlay != nil && n.overlay.V6.IsValid() {
		out = append(out, netip.PrefixFrom(n.overlay.v6(a), 128))
	}
	return out
}

func (n *Network) mtuOf(id string) int {
	if n.overlay != nil && n.state.block(n.state.Addrs[id]) >= 0 {
		return max(n.mtu-n.overlay.Overhead, 576)
	}
	return n.mtu
}

// ula are the addresses that the overlay's IPv6 ones are of. Instances have no other way out by IPv6.
func ula() netip.Prefix { return netip.MustParsePrefix("fd00::/8") }

// routes gives an attachment its ways out; inner is a handle inside its namespace.
func (n *Network) routes(inner *netlink.Handle, eth int, id string) error {
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	out := &netlink.Route{LinkIndex: eth, Dst: kernel.IPNet(all), Gw: n.state.gateway().AsSlice()}
	addrs := n.addresses(id)
	if addrs[0].Bits() == 32 {
		out.Flags = int(netlink.FLAG_ONLINK)
	}
	if err := inner.RouteReplace(out); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	if len(addrs) > 1 {
		six := &netlink.Route{LinkIndex: eth, Dst: kernel.IPNet(ula()), Gw: n.overlay.V6.Addr().Next().AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
		if err := inner.RouteReplace(six); err != nil {
			return fmt.Errorf("route to %s: %w", ula(), err)
		}
	}
	return nil
}

// noDAD keeps an IPv6 address from being doubted before its first use.
func noDAD(p netip.Prefix) int {
	if p.Addr().Is6() {
		return unix.IFA_F_NODAD
	}
	return 0
}
