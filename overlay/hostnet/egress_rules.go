//go:build linux

package hostnet

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// atOnce is how many elements of a set are in one part of a transaction, the length of which has 16 bits.
const atOnce = 400

// writer replaces what is in a table. Its chains and sets stay: the kernel gives up the old ones and takes the new ones of a table that is
// replaced as a whole one by one, and a packet may pass between the two.
type writer struct {
	c     *nftables.Conn
	t     *nftables.Table
	stale map[string]bool          // chains that are there and were not asked for yet
	unset map[string]*nftables.Set // likewise sets
}

func newWriter(nft *nftables.Conn, table *nftables.Table) (*writer, error) {
	out := &writer{nft, table, map[string]bool{}, map[string]*nftables.Set{}}
	chains, err := nft.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return nil, err
	}
	for _, ch := range chains {
		if ch.Table.Name == table.Name {
			out.stale[ch.Name] = true
		}
	}
	if len(out.stale) > 0 {
		sets, err := nft.GetSets(table)
		if err != nil {
			return nil, err
		}
		for _, s := range sets {
			out.unset[s.Name] = s
		}
	}
	nft.AddTable(table)
	nft.FlushTable(table)
	return out, nil
}

func (w *writer) chain(ch *nftables.Chain) *nftables.Chain {
	delete(w.stale, ch.Name)
	ch.Table = w.t
	return w.c.AddChain(ch)
}

func (w *writer) rule(ch *nftables.Chain, parts ...[]expr.Any) {
	w.c.AddRule(&nftables.Rule{Table: w.t, Chain: ch, Exprs: slices.Concat(parts...)})
}

// end takes away sets and chains that nobody asked for.
func (w *writer) end() {
	for _, s := range w.unset {
		w.c.FlushSet(s)
		w.c.DelSet(s)
	}
	for name := range w.stale {
		w.c.DelChain(&nftables.Chain{Table: w.t, Name: name})
	}
}

// addrSets are two sets in a table, one for each family.
type addrSets map[bool]*nftables.Set

// sets makes two sets, or maps to chains: chain names that of an address.
func (w *writer) sets(name string, addrs []netip.Addr, chain func(netip.Addr) string) (addrSets, error) {
	out := addrSets{}
	for six, typ := range map[bool]nftables.SetDatatype{false: nftables.TypeIPAddr, true: nftables.TypeIP6Addr} {
		s := &nftables.Set{Table: w.t, Name: name + map[bool]string{false: "4", true: "6"}[six], KeyType: typ}
		if chain != nil {
			s.IsMap, s.DataType = true, nftables.TypeVerdict
		}
		delete(w.unset, s.Name)
		if err := w.c.AddSet(s, nil); err != nil {
			return nil, err
		}
		w.c.FlushSet(s)
		out[six] = s
		var list []nftables.SetElement
		for _, a := range addrs {
			if a.Is6() == six {
				e := nftables.SetElement{Key: a.AsSlice()}
				if chain != nil {
					e.VerdictData = &expr.Verdict{Kind: expr.VerdictJump, Chain: chain(a)}
				}
				list = append(list, e)
			}
		}
		for part := range slices.Chunk(list, atOnce) {
			if err := w.c.SetAddElements(s, part); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// source loads the source of packets of one family.
func source(six bool) []expr.Any {
	family, offset, size := byte(unix.NFPROTO_IPV4), saddr, uint32(4)
	if six {
		family, offset, size = unix.NFPROTO_IPV6, 8, 16
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
	}
}

type addRule func(*nftables.Chain, ...[]expr.Any)

func jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

// dispatch ends a chain by leading packets of instances to chains by their source: free ones to one, the others to that of their policy.
// Whoever is neither, and whatever such a chain does not accept, is refused. So a packet that meets a set of one generation and a chain
// of another is refused, too; a chain has the same rules as long as it has its name.
func (w *writer) dispatch(ch *nftables.Chain, rule addRule, e *egress, name, free string, prelude func(*nftables.Chain),
	allowed []expr.Any) error {
	of := map[netip.Addr]string{}
	for i := range e.policies {
		p := &e.policies[i]
		own := w.chain(&nftables.Chain{Name: p.chain(name)})
		for _, a := range p.sources {
			of[a] = own.Name
		}
		prelude(own)
		for _, r := range p.allow {
			match := to(r.CIDR)
			for _, x := range r.Except {
				match = append(match, notTo(x)...)
			}
			if len(r.Ports) == 0 {
				w.rule(own, match, allowed)
			}
			for _, q := range r.Ports {
				proto := map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}[q.Proto()]
				w.rule(own, match, protocol(proto), toPort(uint16(q.Port)), allowed)
			}
		}
	}
	freely, err := w.sets(name+"-free", e.free, nil)
	if err != nil {
		return err
	}
	held, err := w.sets(name, e.held(), func(a netip.Addr) string { return of[a] })
	if err != nil {
		return err
	}
	for _, six := range []bool{false, true} {
		s, m := freely[six], held[six]
		rule(ch, source(six), []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID}}, jump(free))
		rule(ch, source(six), []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: m.Name, SetID: m.ID, DestRegister: unix.NFT_REG_VERDICT,
			IsDestRegSet: true}})
	}
	rule(ch, protocol(unix.IPPROTO_TCP), reset())
	rule(ch, reject())
	return nil
}

// shunPorts keeps who has a policy from ports of its own host, which would lead it to instances past the policy.
func (n *Network) shunPorts(w *writer, pre *nftables.Chain, e *egress) error {
	if e == nil {
		return nil
	}
	sets, err := w.sets("held", e.held(), nil)
	if err != nil {
		return err
	}
	s := sets[false]
	w.rule(pre, ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq, n.opts.bridge()), []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: saddr, Len: 4},
		&expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID},
	}, accept())
	return nil
}

// forgetPast ends what is left of connections from addresses that somebody else had before: they would go on past the new policy.
func (n *Network) forgetPast(addrs []netip.Prefix) {
	filters := map[bool][]netlink.CustomConntrackFilter{}
	for _, p := range addrs {
		a, f := p.Addr(), &netlink.ConntrackFilter{}
		if f.AddIP(netlink.ConntrackOrigSrcIP, a.AsSlice()) == nil {
			filters[a.Is6()] = append(filters[a.Is6()], f)
		}
	}
	for six, list := range filters {
		_, _ = n.nl.ConntrackDeleteFilters(netlink.ConntrackTable, map[bool]netlink.InetFamily{false: unix.AF_INET, true: unix.AF_INET6}[six],
			list...)
	}
}

// overlayDevice matches packets on their way to a device of the overlay's data plane: it has the worker's prefix and a dot, and is in
// no bridge.
func (n *Network) overlayDevice() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(n.opts.prefix() + ".")},
	}
}

// notTo matches packets to elsewhere than a network of their own family.
func notTo(p netip.Prefix) []expr.Any {
	m := to(p)
	last := *m[len(m)-1].(*expr.Cmp)
	last.Op = expr.CmpOpNeq
	return append(m[:len(m)-1:len(m)-1], &last)
}

func fromPort(p uint16) []expr.Any { return portAt(0, p) }
func toPort(p uint16) []expr.Any   { return portAt(2, p) }

func portAt(offset uint32, p uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(p)},
	}
}
