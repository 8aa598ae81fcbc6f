//go:build linux

package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Bounds of an address's share. Counting takes the kernel longer the more connections there are: 4 us for a new one at 4096, 30 at 16384.
// And the table of connections is never so small that a few hundred are too many.
const (
	mostFlows  = 8192
	leastFlows = 256
)

// maxSources bounds the addresses whose connections are counted.
const maxSources = 1 << 16

// tracked reads how many connections the kernel has room for. All that the machine does is in the one table.
func tracked() int {
	data, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	n, e := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || e != nil || n <= 0 {
		return 1 << 16
	}
	return n
}

// shareOf is how many connections one address may have begun, so that all instances together take no more than half of the table. It
// changes by halves, since those that are there are not counted again when it does.
func shareOf(room, addresses int) int {
	share := room / 2
	for n := 1; n < addresses; n *= 2 {
		share /= 2
	}
	return max(min(share, mostFlows), min(leastFlows, room/2))
}

// shareFlows bounds the connections that each instance may have begun through this host, in a table of its own that stays while others are
// written anew: what is counted is in it. Instances have two addresses each. A kernel that cannot count does without.
func (n *Network) shareFlows(instances int) error {
	room := n.opts.Flows
	if room == 0 {
		room = tracked()
	}
	share := shareOf(room, 2*instances)
	if share == n.share {
		return nil
	}
	nft, err := n.nftables()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	table := n.sharesTable()
	name := fmt.Sprintf("share-%d", share)
	chains, err := nft.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return fmt.Errorf("nftables: list chains: %w", err)
	}
	for _, ch := range chains {
		if ch.Table.Name == table.Name && ch.Name == name { // of an earlier process
			n.share = share
			return nil
		}
	}
	nft.AddTable(table)
	nft.DelTable(table)
	nft.AddTable(table)
	after := nftables.ChainPriority(-150) // behind conntrack, before addresses are translated
	begin := nft.AddChain(&nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting,
		Priority: &after})
	for _, f := range []struct {
		proto        byte
		offset, size uint32
		key          nftables.SetDatatype
	}{{unix.NFPROTO_IPV4, saddr, 4, nftables.TypeIPAddr}, {unix.NFPROTO_IPV6, 8, 16, nftables.TypeIP6Addr}} {
		set := &nftables.Set{Table: table, Name: fmt.Sprintf("flows%d", f.size), KeyType: f.key, Dynamic: true, Size: maxSources}
		over := &nftables.Set{Table: table, Name: fmt.Sprintf("refused%d", f.size), KeyType: f.key, Dynamic: true, Size: maxSources,
			HasTimeout: true, Timeout: refusedFor}
		if err := errors.Join(nft.AddSet(set, nil), nft.AddSet(over, nil)); err != nil {
			return err
		}
		// In rules of its own, because one ends where the kernel has no room to note an address.
		refuse := nft.AddChain(&nftables.Chain{Table: table, Name: fmt.Sprintf("refuse%d", f.size)})
		address := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.offset, Len: f.size}
		nft.AddRule(&nftables.Rule{Table: table, Chain: refuse, Exprs: []expr.Any{address,
			&expr.Dynset{SrcRegKey: 1, SetName: over.Name, SetID: over.ID, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE)}}})
		nft.AddRule(&nftables.Rule{Table: table, Chain: refuse, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}})
		nft.AddRule(&nftables.Rule{Table: table, Chain: begin, Exprs: append(ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq, n.opts.bridge()),
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.proto}},
			&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW),
				Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
			address,
			&expr.Dynset{SrcRegKey: 1, SetName: set.Name, SetID: set.ID, Operation: uint32(unix.NFT_DYNSET_OP_ADD),
				Exprs: []expr.Any{&expr.Connlimit{Count: uint32(share), Flags: expr.NFT_CONNLIMIT_F_INV}}},
			&expr.Verdict{Kind: expr.VerdictJump, Chain: refuse.Name},
		)})
	}
	switch err := n.commit(nft, false); {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP):
		if n.opts.Log != nil {
			n.opts.Log.Warn("one instance can fill the kernel's table of connections", "err", err, "hint",
				"the kernel needs nft_connlimit (CONFIG_NFT_CONNLIMIT)")
		}
	case err != nil:
		return fmt.Errorf("nftables table %s: %w", table.Name, err)
	}
	n.share = share
	return nil
}

// refusedFor is how long it is known that connections of an address were refused.
const refusedFor = 2 * time.Minute

// Refused lists the attachments that have begun as many connections as they may, so that others of theirs were refused in the last two
// minutes: packets were dropped, and nobody was told.
func (n *Network) Refused() ([]string, error) {
	if err := n.lock(context.Background()); err != nil {
		return nil, err
	}
	defer func() { <-n.busy }()
	if n.share == 0 {
		return nil, nil
	}
	nft, err := n.nftables()
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	refused := map[netip.Addr]bool{}
	for _, name := range []string{"refused4", "refused16"} {
		list, err := nft.GetSetElements(&nftables.Set{Table: n.sharesTable(), Name: name})
		if errors.Is(err, unix.ENOENT) { // the kernel cannot count
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("nftables set %s: %w", name, err)
		}
		for _, e := range list {
			if a, ok := netip.AddrFromSlice(e.Key); ok {
				refused[a] = true
			}
		}
	}
	var out []string
	for id := range n.state.Addrs {
		if slices.ContainsFunc(n.addresses(id), func(p netip.Prefix) bool { return refused[p.Addr()] }) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (n *Network) sharesTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: n.opts.table() + "_flows"}
}
