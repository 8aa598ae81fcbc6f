//go:build linux

package hostnet

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// openMark is the mark of sockets of the host that instances may reach.
const openMark = 0x736b7279

// OpenToInstances is the Control of a net.ListenConfig: it opens a listener of the host to the instances of its workers, as an
// ingress needs, which is where names of the outside lead.
func OpenToInstances(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, openMark) }); e != nil {
		return e
	}
	return err
}

// linkLocal are networks that belong to the host's own links, where clouds tell machines their credentials.
func linkLocal() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fd00:ec2::254/128")}
}

// guard closes the host to instances, the networks of its links, and those that its operator names. Left open are name servers, ICMP,
// what answers, and sockets with openMark; marks says whether the kernel can look at these.
func (n *Network) guard(c *nftables.Conn, marks bool) {
	t := &nftables.Table{Family: nftables.TableFamilyINet, Name: n.opts.table()}
	c.AddTable(t)
	c.DelTable(t)
	if n.opts.OpenHost && len(n.opts.Closed) == 0 {
		return
	}
	c.AddTable(t)
	from := ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq, n.opts.bridge())
	rule := func(ch *nftables.Chain, exprs ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: slices.Concat(append([][]expr.Any{from}, exprs...)...)})
	}
	closed := n.opts.Closed
	if !n.opts.OpenHost {
		closed = append(linkLocal(), closed...)
		n.closeHost(c, t, rule, marks)
	}
	out := c.AddChain(&nftables.Chain{Table: t, Name: "forward", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
	rule(out, ifname(expr.MetaKeyOIFNAME, expr.CmpOpEq, n.opts.bridge()), accept()) // to another instance
	rule(out, established(), accept())
	n.openNames(out, rule, n.dns) // a cloud's name server may have such an address
	for _, p := range closed {
		rule(out, to(p), protocol(unix.IPPROTO_TCP), reset())
		rule(out, to(p), reject())
	}
}

// closeHost has the host refuse what instances send to it.
func (n *Network) closeHost(c *nftables.Conn, t *nftables.Table, rule func(*nftables.Chain, ...[]expr.Any), marks bool) {
	in := c.AddChain(&nftables.Chain{Table: t, Name: "input", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	rule(in, established(), accept())
	rule(in, protocol(unix.IPPROTO_ICMP), accept())
	rule(in, protocol(unix.IPPROTO_ICMPV6), accept())
	n.openNames(in, rule, append([]netip.Addr{n.state.gateway()}, n.dns...))
	if marks {
		rule(in, []expr.Any{
			&expr.Socket{Key: expr.SocketKeyMark, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(openMark)},
		}, accept())
	}
	rule(in, protocol(unix.IPPROTO_TCP), reset())
	rule(in, reject())
}

// openNames lets questions for names through.
func (n *Network) openNames(ch *nftables.Chain, rule func(*nftables.Chain, ...[]expr.Any), servers []netip.Addr) {
	for _, a := range servers {
		for _, p := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			rule(ch, to(netip.PrefixFrom(a, a.BitLen())), protocol(p), port53(), accept())
		}
	}
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }
func reset() []expr.Any  { return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}} }
func reject() []expr.Any {
	return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}}
}

// to matches packets to a network, of whatever family it is.
func to(p netip.Prefix) []expr.Any {
	family, offset, size := byte(unix.NFPROTO_IPV4), daddr, uint32(4)
	if p.Addr().Is6() {
		family, offset, size = unix.NFPROTO_IPV6, 24, 16
	}
	mask := make([]byte, size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

func protocol(p byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{p}}}
}

func port53() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(53)},
	}
}

// established matches what belongs to connections that have been let through, or that the host began.
func established() []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}
