//go:build linux

package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// setPorts brings the host ports, and the policies of egress, into the tables. The answer names the attachments whose port is not free;
// the empty name stands for the table itself.
func (n *Network) setPorts(ms []mapping, e *egress) map[string]error {
	errs := map[string]error{}
	fresh := slices.DeleteFunc(slices.Clone(ms), func(m mapping) bool { return slices.Contains(n.ports, m) })
	if len(fresh) > 0 {
		_ = kernel.In(n.host, func() error {
			for _, m := range fresh {
				if err := probePort(m.HostPort); err != nil {
					errs[m.id] = err
				}
			}
			return nil
		})
		ms = slices.DeleteFunc(slices.Clone(ms), func(m mapping) bool { return errs[m.id] != nil && slices.Contains(fresh, m) })
	}
	// Where br_netfilter is on, the bridge itself translates between two of its ports, and it does not send a frame back
	// to where it came from unless told to: an instance could not reach itself through a port of its host. Only those
	// with ports get it, because a reflected neighbour solicitation looks like a duplicate address.
	for _, m := range fresh {
		if l, err := n.nl.LinkByName(n.link(m.id)); err == nil && errs[m.id] == nil {
			if err := n.nl.LinkSetHairpin(l, true); err != nil {
				errs[m.id] = fmt.Errorf("hairpin mode: %w", err)
			}
		}
	}
	if n.table && slices.Equal(ms, n.ports) && n.held == e.String() {
		return errs
	}
	if err := n.writeTable(ms, e); err != nil {
		return map[string]error{"": err}
	}
	n.ports, n.held, n.table = ms, e.String(), true
	return errs
}

// probePort says whether a process of the host uses the port; taking it over would cut that process off.
func probePort(p HostPort) error {
	host := ""
	if p.HostIP.IsValid() {
		host = p.HostIP.String()
	}
	addr := net.JoinHostPort(host, fmt.Sprint(p.HostPort))
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	var err error
	if p.Proto == UDP {
		var c net.PacketConn
		if c, err = lc.ListenPacket(context.Background(), "udp4", addr); err == nil {
			c.Close()
		}
	} else {
		var l net.Listener
		if l, err = lc.Listen(context.Background(), "tcp4", addr); err == nil {
			l.Close()
		}
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("host port %s is used by a process of the host; stop it or choose another port", p)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("host port %s: the host has no such address; use one of its own, or none for all", p)
	}
	return nil
}

// tableBuffer is room for a transaction of some ten thousand host ports: it is sent as one message, and the kernel
// acknowledges each rule in it before the first answer is read.
const tableBuffer = 32 << 20

func (n *Network) nftables() (*nftables.Conn, error) {
	return nftables.New(nftables.WithNetNSFd(int(n.host.Fd())), nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetReadBuffer(tableBuffer), c.SetWriteBuffer(tableBuffer))
	}))
}

// writeTable replaces the tables in one transaction: no packet sees half of them.
func (n *Network) writeTable(ms []mapping, e *egress) error {
	err := n.writeTables(ms, e, true)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) { // the kernel has no nft_socket
		err = n.writeTables(ms, e, false)
	}
	return err
}

func (n *Network) writeTables(ms []mapping, e *egress, marks bool) error {
	nft, err := n.nftables()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: n.opts.table()}
	w, err := newWriter(nft, table)
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, prio *nftables.ChainPriority) *nftables.Chain {
		return w.chain(&nftables.Chain{Name: name, Type: kind, Hooknum: hook, Priority: prio})
	}
	raw := chain("raw", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
	pre := chain("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	out := chain("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	post := chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	rule := w.rule
	bridge, loopback := n.opts.bridge(), netip.MustParsePrefix("127.0.0.0/8")
	masquerade := []expr.Any{&expr.Masq{}}
	rule(raw, ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq, bridge), ipIn(daddr, loopback), []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
	for _, subnet := range n.subnets() {
		rule(post, ipIn(saddr, subnet), ifname(expr.MetaKeyOIFNAME, expr.CmpOpNeq, bridge), masquerade)
	}
	rule(post, ipIn(saddr, loopback), ifname(expr.MetaKeyOIFNAME, expr.CmpOpEq, bridge), masquerade)
	// An instance that reaches another one through a host port would get the answer from an address it never asked.
	for _, subnet := range n.subnets() {
		rule(post, ipIn(saddr, subnet), ifname(expr.MetaKeyOIFNAME, expr.CmpOpEq, bridge), translated(), masquerade)
	}
	if err := n.shunPorts(w, pre, e); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	for _, m := range ms {
		for _, ch := range []*nftables.Chain{pre, out} {
			rule(ch, toHost(m.HostPort), dnat(m))
		}
	}
	w.end()
	if err := n.guard(nft, marks, e); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	if err := nft.Flush(); err != nil {
		return fmt.Errorf("nftables table %s: %w", table.Name, err)
	}
	return nil
}

func (n *Network) dropTable() error {
	c, err := n.nftables()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyINet} {
		c.DelTable(c.AddTable(&nftables.Table{Family: family, Name: n.opts.table()}))
	}
	c.DelTable(c.AddTable(n.sharesTable()))
	if err := c.Flush(); err != nil {
		return fmt.Errorf("delete nftables table %s: %w", n.opts.table(), err)
	}
	return nil
}

// Offsets in the IPv4 header.
const (
	saddr uint32 = 12
	daddr uint32 = 16
)

func ipIn(offset uint32, p netip.Prefix) []expr.Any {
	mask := net.CIDRMask(p.Bits(), 32)
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

func ifname(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: data}}
}

// translated matches connections whose destination was changed.
func translated() []expr.Any {
	const dstNAT = 1 << 5 // IPS_DST_NAT
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(dstNAT), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// toHost matches packets to a port of the host.
func toHost(p HostPort) []expr.Any {
	var es []expr.Any
	if p.HostIP.IsValid() && !p.HostIP.IsUnspecified() {
		es = ipIn(daddr, netip.PrefixFrom(p.HostIP, 32))
	} else {
		es = []expr.Any{
			&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
		}
	}
	proto := byte(unix.IPPROTO_TCP)
	if p.Proto == UDP {
		proto = unix.IPPROTO_UDP
	}
	return append(es,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(p.HostPort)},
	)
}

func dnat(m mapping) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: m.to.AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(m.Port)},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
	}
}
