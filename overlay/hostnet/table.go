//go:build linux

package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableBuffer is room for a transaction of some ten thousand policies: it is sent as one message, and the kernel
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
	answers := chain("raw-output", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityRaw)
	rule := w.rule
	bridge, loopback := n.opts.bridge(), netip.MustParsePrefix("127.0.0.0/8")
	masquerade := []expr.Any{&expr.Masq{}}
	// Nobody but the host itself: neither instances, because of route_localnet, nor neighbours, whose packets a port of 127.0.0.1 would
	// translate before the kernel sees where they were going.
	rule(raw, ifname(expr.MetaKeyIIFNAME, expr.CmpOpNeq, "lo"), ipIn(daddr, loopback), []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
	// The kernel takes a question for a name for a connection of half a minute: an instance that asks for a few hundred a second would use
	// up its share of them, and get no answer. Nothing is translated here, and the answers are let through as they are.
	gateway := netip.PrefixFrom(n.state.gateway(), 32)
	rule(raw, ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq, bridge), ipIn(daddr, gateway), protocol(unix.IPPROTO_UDP), toPort(53), untracked())
	rule(answers, ifname(expr.MetaKeyOIFNAME, expr.CmpOpEq, bridge), ipIn(saddr, gateway), protocol(unix.IPPROTO_UDP), fromPort(53),
		untracked())
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
	if err := w.hostPorts(ms, pre, out); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	w.end()
	if err := n.guard(nft, marks, e); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	if err := n.commit(nft, true); err != nil {
		return fmt.Errorf("nftables table %s: %w", table.Name, err)
	}
	return nil
}

// commit carries out a transaction; whole says that it writes all of the tables of ports and policies. It keeps count of the kernel's
// transactions, so that a later change of a part knows whether anybody else may have touched the rest.
func (n *Network) commit(nft *nftables.Conn, whole bool) error {
	before := n.transactions()
	known := whole || n.commits == before
	n.commits = 0
	if err := nft.Flush(); err != nil {
		return err
	}
	if after := n.transactions(); known && before != 0 && after == before+1 {
		n.commits = after
	}
	return nil
}

// transactions is the kernel's count of the transactions of anybody in this namespace; 0 if it does not say.
func (n *Network) transactions() uint32 {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(n.host.Fd())})
	if err != nil {
		return 0
	}
	defer conn.Close()
	const header = 4 // struct nfgenmsg
	answer, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   make([]byte, header),
	})
	if err != nil || len(answer) != 1 || len(answer[0].Data) < header {
		return 0
	}
	attrs, err := netlink.NewAttributeDecoder(answer[0].Data[header:])
	if err != nil {
		return 0
	}
	attrs.ByteOrder = binary.BigEndian
	for attrs.Next() {
		if attrs.Type() == unix.NFTA_GEN_ID {
			return attrs.Uint32()
		}
	}
	return 0
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

// untracked has the kernel keep no connection for a packet.
func untracked() []expr.Any { return []expr.Any{&expr.Notrack{}} }

// translated matches connections whose destination was changed.
func translated() []expr.Any {
	const dstNAT = 1 << 5 // IPS_DST_NAT
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(dstNAT), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}
