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
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// setPorts brings the host ports, and the policies of egress, into the tables. The answer names the attachments whose port is not free;
// the empty name stands for the table itself.
func (n *Network) setPorts(ms []mapping, e *egress) map[string]error {
	errs := map[string]error{}
	gone, fresh := difference(n.ports, ms)
	if len(fresh) > 0 {
		_ = kernel.In(n.host, func() error {
			for _, m := range fresh {
				if err := probePort(m.HostPort); err != nil {
					errs[m.id] = err
				}
			}
			return nil
		})
		refused := func(m mapping) bool { return errs[m.id] != nil && slices.Contains(fresh, m) }
		ms = slices.DeleteFunc(slices.Clone(ms), refused)
		fresh = slices.DeleteFunc(fresh, func(m mapping) bool { return errs[m.id] != nil })
	}
	// Where br_netfilter is on, the bridge itself translates between two of its ports, and it does not send a frame back
	// to where it came from unless told to: an instance could not reach itself through a port of its host. Only those
	// with ports get it, because a reflected neighbour solicitation looks like a duplicate address.
	for _, m := range fresh {
		if l, err := n.nl.LinkByName(n.link(m.id)); err == nil {
			if err := n.nl.LinkSetHairpin(l, true); err != nil {
				errs[m.id] = fmt.Errorf("hairpin mode: %w", err)
			}
		}
	}
	if n.table && n.held == e.String() && n.changePorts(gone, fresh) == nil {
		n.ports = ms
		return errs
	}
	if err := n.writeTable(ms, e); err != nil {
		return map[string]error{"": err}
	}
	n.ports, n.held, n.table = ms, e.String(), true
	return errs
}

// difference gives what is in old or in now alone.
func difference(old, now []mapping) (gone, fresh []mapping) {
	in := map[mapping]bool{}
	for _, m := range old {
		in[m] = true
	}
	for _, m := range now {
		if !in[m] {
			fresh = append(fresh, m)
		}
		delete(in, m)
	}
	for _, m := range old {
		if in[m] {
			gone = append(gone, m)
		}
	}
	return gone, fresh
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

// portMap is the table's map of host ports: from an address of the host, a protocol and a port to an instance's address and port. The
// address is 0.0.0.0 for a port of all of the host's addresses. A port comes and goes as one element, whatever else the table holds.
//
// It is declared without the flag of concatenations, which only intervals need and kernels before 5.6 refuse.
func portMap(table *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: table, Name: "ports", IsMap: true,
		KeyType:  nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService),
		DataType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)}
}

// portElements are the elements of portMap.
func portElements(ms []mapping) (out []nftables.SetElement) {
	for _, m := range ms {
		host, proto := netip.IPv4Unspecified(), byte(unix.IPPROTO_TCP)
		if m.HostIP.IsValid() {
			host = m.HostIP
		}
		if m.Proto == UDP {
			proto = unix.IPPROTO_UDP
		}
		port := func(p uint16) []byte { return append(binaryutil.BigEndian.PutUint16(p), 0, 0) }
		out = append(out, nftables.SetElement{
			Key: slices.Concat(host.AsSlice(), []byte{proto, 0, 0, 0}, port(m.HostPort.HostPort)),
			Val: slices.Concat(m.to.AsSlice(), port(m.Port)),
		})
	}
	return out
}

// hostPorts fills the map of host ports and has chains translate by it.
func (w *writer) hostPorts(ms []mapping, chains ...*nftables.Chain) error {
	ports := portMap(w.t)
	delete(w.unset, ports.Name)
	if err := w.c.AddSet(ports, nil); err != nil {
		return err
	}
	w.c.FlushSet(ports)
	for part := range slices.Chunk(portElements(ms), atOnce) {
		if err := w.c.SetAddElements(ports, part); err != nil {
			return err
		}
	}
	// Registers of four bytes: the key has three of them, what it leads to replaces the first two.
	const first, second, third = unix.NFT_REG32_00, unix.NFT_REG32_01, unix.NFT_REG32_02
	one := []expr.Any{&expr.Payload{DestRegister: first, Base: expr.PayloadBaseNetworkHeader, Offset: daddr, Len: 4}}
	// Both look first whether the address is the host's, for it may have gone to another machine since it was probed, and a host with
	// ip_nonlocal_bind takes any for its own: a port of 8.8.8.8 would catch what others send there.
	local := []expr.Any{
		&expr.Fib{Register: first, ResultADDRTYPE: true, FlagDADDR: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
	all := []expr.Any{
		// 0.0.0.0 in a form that nft can show and read back: ip daddr & 0.0.0.0.
		one[0], &expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 4, Mask: make([]byte, 4), Xor: make([]byte, 4)},
	}
	for _, chain := range chains {
		for _, address := range [][]expr.Any{one, all} {
			w.rule(chain, local, address, []expr.Any{
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: second},
				&expr.Payload{DestRegister: third, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
				&expr.Lookup{SourceRegister: first, DestRegister: first, IsDestRegSet: true, SetName: ports.Name, SetID: ports.ID},
				&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: first, RegProtoMin: second, Specified: true},
			})
		}
	}
	return nil
}

// changePorts takes host ports out of the table and adds others, in one transaction. It fails if anybody else has changed tables since
// this process did, ours perhaps among them, as with a firewall that flushes all; then the tables are written anew.
func (n *Network) changePorts(gone, fresh []mapping) error {
	if len(gone)+len(fresh) == 0 {
		return nil
	}
	if n.commits == 0 || n.commits != n.transactions() {
		return errors.New("the tables may have been changed")
	}
	nft, err := n.nftables()
	if err != nil {
		return err
	}
	ports := portMap(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: n.opts.table()})
	for part := range slices.Chunk(portElements(gone), atOnce) {
		if err := nft.SetDeleteElements(ports, part); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(portElements(fresh), atOnce) {
		if err := nft.SetAddElements(ports, part); err != nil {
			return err
		}
	}
	return n.commit(nft, false)
}
