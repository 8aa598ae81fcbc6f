//go:build linux

package hostnet

import (
	"fmt"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// translate leads ports of an instance to those at which it listens, by a table inside its namespace: whatever brought a packet there,
// and whichever family it is of, one rule does it, and the answers are translated by the namespace's own conntrack. An instance that may
// change the table harms itself alone. What an earlier process wrote is written anew; a namespace without service ports has no table.
func (n *Network) translate(want Want) error {
	if len(want.ServicePorts) == 0 {
		return nil
	}
	ns, err := os.Open(n.path(want.ID))
	if err != nil {
		return err
	}
	defer ns.Close()
	nft, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		return fmt.Errorf("service ports: %w", err)
	}
	table := nft.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "skerry"})
	nft.DelTable(table) // with whatever else is in it
	nft.AddTable(table)
	chain := nft.AddChain(&nftables.Chain{Table: table, Name: "ports", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityNATDest})
	for _, port := range want.ServicePorts {
		proto := byte(unix.IPPROTO_TCP)
		if port.Proto == UDP {
			proto = unix.IPPROTO_UDP
		}
		nft.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port.From)},
			&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(port.To)},
			// Without an address: the instance may have several, and each stays what it is.
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_INET, RegProtoMin: 1, Specified: true},
		}})
	}
	if err := nft.Flush(); err != nil {
		return fmt.Errorf("service ports: %w", err)
	}
	return nil
}
