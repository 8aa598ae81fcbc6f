//go:build linux

package nft

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// match is a part of a rule. Parts are written one after another; a rule ends at the first that does not hold.
type match []expr.Any

// family is what differs between IPv4 and IPv6.
type family struct {
	name     string // ends the names of sets and chains
	six      bool
	src, dst uint32 // offsets of the addresses
	size     uint32 // of one
	typ      nftables.SetDatatype
	ether    []byte
	proto    byte
}

func families() []family {
	return []family{
		{"4", false, 12, 16, 4, nftables.TypeIPAddr, []byte{8, 0}, unix.NFPROTO_IPV4},
		{"6", true, 8, 24, 16, nftables.TypeIP6Addr, []byte{0x86, 0xdd}, unix.NFPROTO_IPV6},
	}
}

func (f family) words() uint32         { return f.size / 4 }
func (f family) has(a netip.Addr) bool { return a.Is6() == f.six }
func (f family) icmp() byte {
	return map[bool]byte{false: unix.IPPROTO_ICMP, true: unix.IPPROTO_ICMPV6}[f.six]
}
func (f family) source(reg uint32) match {
	return load(expr.PayloadBaseNetworkHeader, f.src, f.size, reg)
}
func (f family) dest(reg uint32) match {
	return load(expr.PayloadBaseNetworkHeader, f.dst, f.size, reg)
}

// reg names one of the 16 registers of four bytes; longer values take those that follow.
func reg(n uint32) uint32 { return unix.NFT_REG32_00 + n }

func load(base expr.PayloadBase, off, size, to uint32) match {
	return match{&expr.Payload{DestRegister: reg(to), Base: base, Offset: off, Len: size}}
}

func link(off, size, to uint32) match { return load(expr.PayloadBaseLLHeader, off, size, to) }

func writeLink(off, size, from uint32) match {
	return match{&expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: reg(from), Base: expr.PayloadBaseLLHeader, Offset: off,
		Len: size}}
}

func is(n uint32, data ...byte) match {
	return match{&expr.Cmp{Op: expr.CmpOpEq, Register: reg(n), Data: data}}
}

func isNot(n uint32, data ...byte) match {
	return match{&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(n), Data: data}}
}

func mask(n uint32, m []byte) match {
	return match{&expr.Bitwise{SourceRegister: reg(n), DestRegister: reg(n), Len: uint32(len(m)), Mask: m, Xor: make([]byte, len(m))}}
}

func set(n uint32, data ...byte) match {
	return match{&expr.Immediate{Register: reg(n), Data: data}}
}

func inSet(n uint32, s *nftables.Set) match {
	return match{&expr.Lookup{SourceRegister: reg(n), SetName: s.Name, SetID: s.ID}}
}

// find puts what a map has for a value into a register; the rule ends where it has nothing.
func find(n uint32, s *nftables.Set, to uint32) match {
	return match{&expr.Lookup{SourceRegister: reg(n), SetName: s.Name, SetID: s.ID, DestRegister: reg(to), IsDestRegSet: true}}
}

// follow goes to the chain that a map has for a value.
func follow(n uint32, s *nftables.Set) match {
	return match{&expr.Lookup{SourceRegister: reg(n), SetName: s.Name, SetID: s.ID, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true}}
}

func meta(key expr.MetaKey, to uint32) match { return match{&expr.Meta{Key: key, Register: reg(to)}} }

func name(s string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, s)
	return b
}

func from(device string) match {
	return join(meta(expr.MetaKeyIIFNAME, 0), is(0, name(device)...))
}

func to(device string) match {
	return join(meta(expr.MetaKeyOIFNAME, 0), is(0, name(device)...))
}

func fromIn(s *nftables.Set) match { return join(meta(expr.MetaKeyIIFNAME, 0), inSet(0, s)) }
func toIn(s *nftables.Set) match   { return join(meta(expr.MetaKeyOIFNAME, 0), inSet(0, s)) }

func protocol(p byte) match { return join(meta(expr.MetaKeyL4PROTO, 0), is(0, p)) }

// transport compares a byte of the header behind the network's.
func transport(off uint32, b byte) match {
	return join(load(expr.PayloadBaseTransportHeader, off, 1, 0), is(0, b))
}

// within compares an address that is in a register with a prefix.
func within(n uint32, p netip.Prefix) match {
	p = p.Masked()
	return join(mask(n, net.CIDRMask(p.Bits(), p.Addr().BitLen())), is(n, p.Addr().AsSlice()...))
}

// state matches packets whose connection is in one of some states.
func state(bits uint32) match {
	return join(match{&expr.Ct{Register: reg(0), Key: expr.CtKeySTATE}}, mask(0, binaryutil.NativeEndian.PutUint32(bits)),
		isNot(0, 0, 0, 0, 0))
}

// answer matches packets of connections that exist, against the direction in which they were begun. Errors about them are none: conntrack
// takes them from anybody who guesses of which connection, so they come from where packets may come from anyway.
func answer() match {
	return join(state(expr.CtStateBitESTABLISHED), match{&expr.Ct{Register: reg(0), Key: expr.CtKeyDIRECTION}}, is(0, 1))
}

// asked puts the destination that the client asked for into a register; of IPv6 or not, it takes 16 bytes.
func asked(to uint32) match {
	return match{&expr.Ct{Register: reg(to), Key: expr.CtKeyDST, Direction: 0}}
}

func accept() match { return match{&expr.Verdict{Kind: expr.VerdictAccept}} }
func drop() match   { return match{&expr.Verdict{Kind: expr.VerdictDrop}} }
func back() match   { return match{&expr.Verdict{Kind: expr.VerdictReturn}} }

func jump(chain string) match { return match{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}} }
func goTo(chain string) match { return match{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}} }
func count(name string) match { return match{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: name}} }
func loses(name string) match { return join(count(name), drop()) }
func toAddr(f family, n uint32) match {
	return match{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: reg(n)}}
}
func fromAddr(f family, n uint32) match {
	return match{&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(f.proto), RegAddrMin: reg(n)}}
}

func join(parts ...match) (out match) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func be32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// concat makes a type of some; each begins at a multiple of four bytes.
func concat(types ...nftables.SetDatatype) nftables.SetDatatype {
	return nftables.MustConcatSetType(types...)
}
