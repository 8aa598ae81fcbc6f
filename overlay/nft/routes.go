//go:build linux

package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
)

// ensureTaps makes both taps, and says whether that of the tunnel was not there. The agent's is opened once in the life of a
// process.
func (d *Device) ensureTaps(mtu int) (made bool, err error) {
	if _, err := d.nl.LinkByName(d.opts.tunnelTap()); err != nil {
		if !kernel.Gone(err) {
			return false, err
		}
		made = true
		if _, err := kernel.OpenTap(d.host, d.opts.tunnelTap(), unix.IFF_VNET_HDR, false); err != nil && !errors.Is(err, unix.EBUSY) {
			return made, err
		}
	}
	if d.tap.Load() == nil {
		f, err := kernel.OpenTap(d.host, d.opts.agentTap(), 0, true)
		if errors.Is(err, unix.EBUSY) {
			return made, fmt.Errorf("%w; another agent of this worker runs", err)
		}
		if err != nil {
			return made, err
		}
		d.tap.Store(f)
		d.goroutines.Go(func() { panics.Again(d.opts.Log, "frames of the tap", func() { d.readTap(f) }) })
	}
	for _, name := range []string{d.opts.tunnelTap(), d.opts.agentTap()} {
		l, err := d.nl.LinkByName(name)
		if err != nil {
			return made, fmt.Errorf("device %s: %w", name, err)
		}
		if mtu != 0 && l.Attrs().MTU != mtu {
			// What is longer the kernel answers with "fragmentation needed", or cuts.
			if err := d.nl.LinkSetMTU(l, mtu); err != nil {
				return made, fmt.Errorf("device %s: MTU %d: %w", name, mtu, err)
			}
		}
	}
	return made, nil
}

// upTaps lets packets through the taps; what the tables say holds by now.
func (d *Device) upTaps() error {
	for _, name := range []string{d.opts.tunnelTap(), d.opts.agentTap()} {
		l, err := d.nl.LinkByName(name)
		if err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
		if l.Attrs().Flags&net.FlagUp != 0 {
			continue
		}
		if err := kernel.In(d.host, func() error { return quiet(name) }); err != nil {
			return err
		}
		if name == d.opts.agentTap() {
			if err := d.nl.LinkSetHardwareAddr(l, agentMAC()); err != nil {
				return fmt.Errorf("device %s: %w", name, err)
			}
		}
		// Nobody is to be asked for: the frame's header is written on the way out.
		if err := errors.Join(d.nl.LinkSetARPOff(l), d.nl.LinkSetUp(l)); err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
	}
	return nil
}

// agentMAC is the hardware address of the agent's tap, which tells what was routed there from what a peer sent.
func agentMAC() net.HardwareAddr { return net.HardwareAddr{6, 0, 0, 0, 0, 1} }

// quiet keeps the kernel from speaking on a device by itself.
func quiet(name string) error {
	six := "ipv6/conf/" + name + "/"
	return errors.Join(kernel.SysctlIfAny(six+"addr_gen_mode", "1"), kernel.SysctlIfAny(six+"accept_ra", "0"),
		kernel.SysctlIfAny(six+"router_solicitations", "0"), kernel.SysctlIfAny("ipv4/conf/"+name+"/rp_filter", "0"))
}

// forwarding sees to it that the host forwards IPv6. One that did not goes on heeding what routers announce to it, and does
// not become a router for others.
func (d *Device) forwarding() error {
	return kernel.In(d.host, func() error {
		const dir = "/proc/sys/net/ipv6/conf/"
		read := func(name string) string {
			b, _ := os.ReadFile(dir + name)
			return string(b)
		}
		if read("all/forwarding") != "0\n" {
			return nil // it does, or has no IPv6
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil
		}
		for _, e := range entries {
			if ra := filepath.Join(e.Name(), "accept_ra"); e.Name() != "all" && read(ra) == "1\n" {
				if err := kernel.SysctlIfAny("ipv6/conf/"+ra, "2"); err != nil {
					return err
				}
			}
		}
		if !d.guard {
			// Tables that are there were made without the rules for it.
			if err := d.dropTables(); err != nil {
				return err
			}
			d.guard = true
		}
		return kernel.SysctlIfAny("ipv6/conf/all/forwarding", "1")
	})
}

// reflect lets a bridge send packets back to the cable that they came by, where it translates by itself: an instance may be
// its own backend.
func (d *Device) reflect(cable netlink.Link) error {
	if v, err := d.readSysctl("net/bridge/bridge-nf-call-iptables"); err != nil || v != "1" {
		return nil
	}
	p, err := d.nl.LinkGetProtinfo(cable)
	if err == nil && p.Hairpin {
		return nil
	}
	if err := d.nl.LinkSetHairpin(cable, true); err != nil {
		return fmt.Errorf("device %s: hairpin mode: %w", cable.Attrs().Name, err)
	}
	return nil
}

// gateway is whom packets are sent to by a tap; there is nobody else, and nobody is asked.
func gateway(six bool) net.IP {
	if six {
		return net.ParseIP("fe80::1")
	}
	return net.IPv4(169, 254, 7, 45).To4()
}

// setRoutes leads what instances, and peers, send: to instances here, to those of peers, and what else is of the overlay to the
// agent. The host's own packets go their own ways.
func (d *Device) setRoutes(conf overlay.Config, bridges map[string]netlink.Link) error {
	taps := map[string]int{}
	for _, name := range []string{d.opts.tunnelTap(), d.opts.agentTap()} {
		l, err := d.nl.LinkByName(name)
		if err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
		taps[name] = l.Attrs().Index
	}
	want := map[string]*netlink.Route{}
	add := func(p netip.Prefix, link, mtu int, by bool) {
		p = p.Masked()
		r := &netlink.Route{Table: d.opts.routes(), Dst: kernel.IPNet(p), LinkIndex: link, MTU: mtu, Protocol: unix.RTPROT_STATIC,
			Scope: netlink.SCOPE_LINK}
		if by {
			r.Gw, r.Flags, r.Scope = gateway(p.Addr().Is6()), int(netlink.FLAG_ONLINK), netlink.SCOPE_UNIVERSE
		}
		want[p.String()] = r
	}
	for _, p := range append(append([]netip.Prefix{}, conf.Local.Instances...), conf.Local.Services...) {
		add(p, taps[d.opts.agentTap()], 0, true)
	}
	for _, p := range conf.Peers {
		for _, x := range p.Prefixes {
			add(x, taps[d.opts.tunnelTap()], 0, true)
		}
	}
	for _, b := range bridges {
		for _, p := range conf.Local.Blocks {
			add(p, b.Attrs().Index, conf.Local.MTU, false)
		}
	}
	for _, i := range conf.Instances {
		l, err := d.nl.LinkByName(i.Device)
		if err != nil {
			continue
		}
		for _, a := range i.Addrs {
			add(netip.PrefixFrom(a, a.BitLen()), l.Attrs().MasterIndex, conf.Local.MTU, false)
		}
	}
	for a := range d.dead {
		add(netip.PrefixFrom(a, a.BitLen()), taps[d.opts.agentTap()], 0, true)
	}
	var errs []error
	have, err := d.listRoutes()
	if err != nil {
		return err
	}
	for _, r := range have {
		w := want[r.Dst.String()]
		if w == nil {
			if err := d.nl.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("delete route to %s: %w", r.Dst, err))
			}
		} else if w.LinkIndex == r.LinkIndex && w.MTU == r.MTU {
			delete(want, r.Dst.String())
		}
	}
	for _, r := range want {
		if err := d.nl.RouteReplace(r); err != nil && !(r.Dst.IP.To4() == nil &&
			(errors.Is(err, unix.EACCES) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENETDOWN))) {
			errs = append(errs, fmt.Errorf("route to %s: %w", r.Dst, err))
		}
	}
	names := map[string]bool{d.opts.tunnelTap(): true, d.opts.agentTap(): true}
	for b := range bridges {
		names[b] = true
	}
	return errors.Join(append(errs, d.setRules(names))...)
}

func (d *Device) listRoutes() (out []netlink.Route, err error) {
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := kernel.Whole(func() ([]netlink.Route, error) {
			return d.nl.RouteListFiltered(f, &netlink.Route{Table: d.opts.routes()}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			if r.Dst != nil {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// setRules leads what comes from devices to the table of routes, and nothing else.
func (d *Device) setRules(devices map[string]bool) error {
	var errs []error
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := kernel.Whole(func() ([]netlink.Rule, error) { return d.nl.RuleList(f) })
		if err != nil {
			return fmt.Errorf("list routing rules: %w", err)
		}
		there := map[string]bool{}
		for _, r := range list {
			if r.Table != d.opts.routes() {
				continue
			}
			if devices[r.IifName] && !there[r.IifName] {
				there[r.IifName] = true
			} else if err := d.nl.RuleDel(&r); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("delete routing rule: %w", err))
			}
		}
		for name := range devices {
			if there[name] {
				continue
			}
			r := netlink.NewRule()
			r.Family, r.Table, r.Priority, r.IifName = f, d.opts.routes(), rulePriority, name
			if err := d.nl.RuleAdd(r); err != nil && !(f == netlink.FAMILY_V6 && errors.Is(err, unix.EAFNOSUPPORT)) {
				errs = append(errs, fmt.Errorf("routing rule for %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (d *Device) dropRoutes() error {
	errs := []error{d.setRules(nil)}
	have, err := d.listRoutes()
	errs = append(errs, err)
	for _, r := range have {
		if err := d.nl.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("delete route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}
