//go:build linux

package bpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
)

// quiet keeps the kernel from speaking on a device by itself.
func (d *Device) quiet(name string) error {
	return kernel.In(d.host, func() error {
		return errors.Join(kernel.SysctlIfAny("ipv6/conf/"+name+"/disable_ipv6", "1"), kernel.SysctlIfAny("ipv4/conf/"+name+"/rp_filter", "0"))
	})
}

// ensureTaps makes both taps. The agent's is opened once in the life of a process.
func (d *Device) ensureTaps() error {
	if _, err := d.nl.LinkByName(d.opts.tunnelTap()); err != nil {
		if !kernel.Gone(err) {
			return err
		}
		if _, err := kernel.OpenTap(d.host, d.opts.tunnelTap(), unix.IFF_VNET_HDR, false); err != nil && !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	if d.tap.Load() == nil {
		f, err := kernel.OpenTap(d.host, d.opts.agentTap(), 0, true)
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%w; another agent of this worker runs", err)
		}
		if err != nil {
			return err
		}
		d.tap.Store(f)
		d.goroutines.Go(func() { panics.Again(d.opts.Log, "frames of the tap", func() { d.readTap(f) }) })
	}
	for _, name := range []string{d.opts.tunnelTap(), d.opts.agentTap()} {
		l, err := d.nl.LinkByName(name)
		if err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
		if l.Attrs().Flags&net.FlagUp != 0 {
			continue
		}
		if err := d.quiet(name); err != nil {
			return err
		}
		if err := d.nl.LinkSetUp(l); err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
	}
	return nil
}

// ensureVXLAN makes the device for whose port the kernel puts segments together on arrival, and which unwraps what the
// program on the wire cannot; or takes it away.
func (d *Device) ensureVXLAN(plain netip.AddrPort) error {
	name := d.opts.vxlan()
	l, err := d.nl.LinkByName(name)
	if err != nil && !kernel.Gone(err) {
		return err
	}
	if l != nil {
		v, ok := l.(*netlink.Vxlan)
		if ok && plain.IsValid() && v.Port == int(plain.Port()) && l.Attrs().Flags&net.FlagUp != 0 {
			return nil
		}
		if err := d.nl.LinkDel(l); err != nil && !kernel.Gone(err) {
			return fmt.Errorf("delete device %s: %w", name, err)
		}
	}
	if !plain.IsValid() {
		return nil
	}
	if err := d.nl.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1}, FlowBased: true, UDP6ZeroCSumRx: true,
		Port: int(plain.Port())}); err != nil {
		return fmt.Errorf("make device %s: %w", name, err)
	}
	if err := d.quiet(name); err != nil {
		return err
	}
	if l, err = d.nl.LinkByName(name); err == nil {
		err = d.nl.LinkSetUp(l)
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("UDP port %d of the plain endpoint is used by another process of the host or another VXLAN device; stop it or choose another port: %w", plain.Port(), err)
	}
	if err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	return nil
}

// machine is what a configuration meets on the host.
type machine struct {
	byName   map[string]netlink.Link
	byIndex  map[int]netlink.Link
	limitsIn map[int]bool // devices with a limit on what goes out of them
}

func (d *Device) look() (machine, error) {
	m := machine{map[string]netlink.Link{}, map[int]netlink.Link{}, map[int]bool{}}
	links, err := kernel.Whole(d.nl.LinkList)
	if err != nil {
		return m, fmt.Errorf("list devices: %w", err)
	}
	for _, l := range links {
		m.byName[l.Attrs().Name], m.byIndex[l.Attrs().Index] = l, l
	}
	queues, err := kernel.Whole(func() ([]netlink.Qdisc, error) { return d.nl.QdiscList(nil) })
	if err != nil {
		return m, fmt.Errorf("list queues: %w", err)
	}
	for _, q := range queues {
		if q.Attrs().Parent == netlink.HANDLE_ROOT && q.Type() == "tbf" {
			m.limitsIn[q.Attrs().LinkIndex] = true
		}
	}
	return m, nil
}

// settled reports whether the devices of the data plane are there as they should be, so that nobody need ask for each.
func (d *Device) settled(m machine, plain netip.AddrPort) bool {
	up := func(name string) bool {
		l := m.byName[name]
		return l != nil && l.Attrs().Flags&net.FlagUp != 0
	}
	v, ok := m.byName[d.opts.vxlan()].(*netlink.Vxlan)
	wrapped := m.byName[d.opts.vxlan()] == nil
	if plain.IsValid() {
		wrapped = ok && v.Port == int(plain.Port()) && up(d.opts.vxlan())
	}
	return d.tap.Load() != nil && up(d.opts.tunnelTap()) && up(d.opts.agentTap()) && wrapped
}

// detour is the device through which overlay/hostnet leads what an instance sends when that is limited.
func detour(device string) string { return strings.Replace(device, ".", ".i", 1) }

// uplinks are the devices that have an address.
func (d *Device) uplinks(a netip.Addr) ([]int, error) {
	addrs, err := kernel.Whole(func() ([]netlink.Addr, error) { return d.nl.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []int
	for _, x := range addrs {
		if b, ok := netip.AddrFromSlice(x.IP); ok && b.Unmap() == a {
			out = append(out, x.LinkIndex)
		}
	}
	return out, nil
}

// path works out by which device and neighbour a plain endpoint is reached.
func (d *Device) path(v *peerValue, local overlay.Local) error {
	to := from16(v.Endpoint)
	routes, err := d.nl.RouteGet(to.AsSlice())
	if err == nil && len(routes) == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return fmt.Errorf("plain endpoint %s: no route: %w", to, err)
	}
	r := routes[0]
	if r.Type == unix.RTN_LOCAL {
		return fmt.Errorf("plain endpoint %s is an address of this host", to)
	}
	hop := to
	if g, ok := netip.AddrFromSlice(r.Gw); ok {
		hop = g.Unmap()
	} else if via, ok := r.Via.(*netlink.Via); ok {
		if g, ok := netip.AddrFromSlice(via.Addr); ok {
			hop = g.Unmap()
		}
	}
	src, ok := netip.AddrFromSlice(r.Src)
	src = src.Unmap()
	// The peer knows this worker by the address of its endpoint.
	if p := local.Plain.Addr(); p.IsValid() && p.Is4() == to.Is4() {
		src, ok = p, true
	}
	if !ok {
		return fmt.Errorf("plain endpoint %s: the route has no source address", to)
	}
	v.Index, v.Source, v.Hop = uint32(r.LinkIndex), src.As16(), hop.As16()
	if hop.Is6() {
		v.V6 = 1
	}
	return nil
}

// link leads to the WireGuard device what goes to peers by it. Without the device they are reached by the tunnel.
func (w *wanted) link(l netlink.Link, name string, hooks map[hook]bool) (err error) {
	if l == nil {
		err = fmt.Errorf("device %s of WireGuard does not exist", name)
	} else {
		hooks[hook{"from_link", l.Attrs().Index}] = true
	}
	for id, v := range w.peers {
		if v.Way != byLink {
			continue
		}
		if v = (peerValue{}); l != nil {
			v = w.peers[id]
			v.Index = uint32(l.Attrs().Index)
		}
		w.peers[id] = v
	}
	return err
}
