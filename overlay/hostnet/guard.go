//go:build linux

package hostnet

import (
	"net/netip"
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

// linkLocal are networks that belong to the host's own links, and other addresses at which clouds tell machines their
// credentials: of AWS by IPv6, of Google by IPv6, of Azure (which serves names there, too), of Alibaba, and of Oracle.
func linkLocal() []netip.Prefix {
	out := []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}
	for _, a := range []string{"fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "100.100.100.200", "192.0.0.192"} {
		a := netip.MustParseAddr(a)
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// guard closes the host to instances, the networks of its links, and those that its operator names, and holds instances to their
// policies of egress. Left open are name servers, ICMP to the host, what answers, and sockets with openMark; marks says whether the kernel
// can look at these.
func (n *Network) guard(nft *nftables.Conn, marks bool, e *egress) error {
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: n.opts.table()}
	if n.opts.OpenHost && len(n.opts.Closed) == 0 && e == nil {
		nft.AddTable(table)
		nft.DelTable(table)
		return nil
	}
	w, err := newWriter(nft, table)
	if err != nil {
		return err
	}
	from := ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq, n.opts.bridge())
	rule := func(ch *nftables.Chain, exprs ...[]expr.Any) { w.rule(ch, append([][]expr.Any{from}, exprs...)...) }
	if !n.opts.OpenHost || e != nil {
		if err := n.closeHost(w, rule, e, marks); err != nil {
			return err
		}
	}
	out := w.chain(&nftables.Chain{Name: "forward", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter})
	rule(out, ifname(expr.MetaKeyOIFNAME, expr.CmpOpEq, n.opts.bridge()), accept()) // to another instance
	rule(out, n.overlayDevice(), accept())
	rule(out, established(), accept())
	if e == nil {
		n.openNames(out, rule, n.dns) // a cloud's name server may have such an address
		n.close(out, rule)
	} else {
		free := w.chain(&nftables.Chain{Name: "out"})
		n.openNames(free, w.rule, n.dns)
		n.close(free, w.rule)
		w.rule(free, accept())
		err := w.dispatch(out, rule, e, "egress", free.Name, func(own *nftables.Chain) {
			if n.overlay == nil || !n.overlay.Resolver { // else the gateway answers
				n.openNames(own, w.rule, n.dns)
			}
			n.close(own, w.rule)
		}, accept())
		if err != nil {
			return err
		}
	}
	w.end()
	return nil
}

// close refuses the networks that no instance reaches.
func (n *Network) close(ch *nftables.Chain, rule addRule) {
	closed := n.opts.Closed
	if !n.opts.OpenHost {
		closed = append(linkLocal(), closed...)
	}
	for _, p := range closed {
		rule(ch, to(p), protocol(unix.IPPROTO_TCP), reset())
		rule(ch, to(p), reject())
	}
}

// closeHost has the host refuse what instances send to it, unless it is open to them and to their policy.
func (n *Network) closeHost(out *writer, rule addRule, e *egress, marks bool) error {
	in := out.chain(&nftables.Chain{Name: "input", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter})
	n.errors(out, in, rule)
	rule(in, established(), accept())
	rule(in, protocol(unix.IPPROTO_ICMP), accept())
	rule(in, protocol(unix.IPPROTO_ICMPV6), accept())
	n.openNames(in, rule, []netip.Addr{n.state.gateway()})
	rest := func(ch *nftables.Chain, rule addRule) {
		if n.opts.OpenHost {
			rule(ch, accept())
			return
		}
		n.openNames(ch, rule, n.dns)
		if marks {
			rule(ch, []expr.Any{
				&expr.Socket{Key: expr.SocketKeyMark, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(openMark)},
			}, accept())
		}
		rule(ch, protocol(unix.IPPROTO_TCP), reset())
		rule(ch, reject())
	}
	if e == nil {
		rest(in, rule)
		return nil
	}
	host := out.chain(&nftables.Chain{Name: "host"})
	rest(host, out.rule)
	return out.dispatch(in, rule, e, "host", host.Name, func(*nftables.Chain) {}, jump(host.Name))
}

// errors has the host hear ICMP errors of instances about what it sent to instances, and about nothing else: they could say that another
// machine is not there, or takes small packets alone.
func (n *Network) errors(out *writer, in *nftables.Chain, rule addRule) {
	ch := out.chain(&nftables.Chain{Name: "errors"})
	of := func(op expr.CmpOp, t byte) []expr.Any {
		return []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1},
			&expr.Cmp{Op: op, Register: 1, Data: []byte{t}},
		}
	}
	for _, t := range []byte{3, 4, 5, 11, 12} {
		rule(in, protocol(unix.IPPROTO_ICMP), of(expr.CmpOpEq, t), jump(ch.Name))
	}
	rule(in, protocol(unix.IPPROTO_ICMPV6), of(expr.CmpOpLt, 128), jump(ch.Name))
	ours := []netip.Prefix{n.state.Subnet}
	if n.overlay != nil {
		ours = append(append(ours, n.overlay.Blocks...), n.overlay.V6)
	}
	for _, p := range ours {
		if p.IsValid() {
			out.rule(ch, within(p, expr.PayloadBaseTransportHeader, 8), accept())
		}
	}
	out.rule(ch, []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
}

// openNames lets questions for names through.
func (n *Network) openNames(ch *nftables.Chain, rule addRule, servers []netip.Addr) {
	for _, a := range servers {
		for _, p := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			rule(ch, to(netip.PrefixFrom(a, a.BitLen())), protocol(p), toPort(53), accept())
		}
	}
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }
func reset() []expr.Any  { return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}} }
func reject() []expr.Any {
	return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}}
}

// to matches packets to a network, of whatever family it is.
func to(p netip.Prefix) []expr.Any { return within(p, expr.PayloadBaseNetworkHeader, 0) }

// within matches packets that have an address in a network as the destination of a header, which begins so many bytes after base.
func within(p netip.Prefix, base expr.PayloadBase, begins uint32) []expr.Any {
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
		&expr.Payload{DestRegister: 1, Base: base, Offset: begins + offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

func protocol(p byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{p}}}
}

// established matches what belongs to connections that have been let through, or that the host began.
func established() []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}
