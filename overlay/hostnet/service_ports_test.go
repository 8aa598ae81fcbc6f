//go:build linux

package hostnet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/nftables"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// Each family and protocol is translated, at each address of the instance, for callers on the host and beside it; the port at which it
// listens works as well, and others do not. The next process finds it so, and an instance without service ports has no table.
func TestServicePorts(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	conf := wants("a", "b")
	conf.Overlay = &Overlay{Blocks: []netip.Prefix{netip.MustParsePrefix("10.64.7.64/26")}, V6: netip.MustParsePrefix("fd12:3456:789a:7::/64"),
		Overhead: 96, Resolver: true}
	conf.Attachments[1].ServicePorts = []ServicePort{{From: 80, To: 8080, Proto: TCP}, {From: 53, To: 8080, Proto: UDP}}
	for life := range 2 {
		as, err := n.Set(t.Context(), conf)
		must(t, err)
		a, b := open(t, as["a"].NetNS), open(t, as["b"].NetNS)
		if life == 0 {
			serve(t, b, ":8080")
			echo6(t, b, ":8080")
		}
		for _, at := range as["b"].Addresses {
			for name, want := range map[string]bool{"tcp 80": true, "udp 53": true, "tcp 8080": true, "udp 8080": true, "tcp 53": false} {
				var network string
				var port int
				_, err := fmt.Sscan(name, &network, &port)
				must(t, err)
				caller := a
				if at.Addr().Is6() { // what brings IPv6 from one instance to another is not here
					caller = s.host
				}
				to := netip.AddrPortFrom(at.Addr(), uint16(port)).String()
				if network == "udp" && at.Addr().Is6() {
					err = echoed(caller, to)
				} else {
					_, err = dial(caller, network, to)
				}
				if (err == nil) != want {
					t.Errorf("%s at %s: %v", name, at, err)
				}
			}
			if _, err := dial(s.host, "tcp", netip.AddrPortFrom(at.Addr(), 80).String()); err != nil {
				t.Errorf("%s from the host: %v", at, err)
			}
		}
		for ns, want := range map[*os.File]int{a: 0, b: 1} {
			nft, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
			must(t, err)
			if tables, err := nft.ListTables(); err != nil || len(tables) != want {
				t.Errorf("there are %d tables, expected %d: %v", len(tables), want, err)
			}
		}
		n.Close()
		n = s.open(t, s.options("w1"))
		// Whoever may change tables there puts another chain in the way.
		nft, err := nftables.New(nftables.WithNetNSFd(int(b.Fd())))
		must(t, err)
		table := nft.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "skerry"})
		nft.DelTable(table)
		nft.AddTable(table)
		nft.AddChain(&nftables.Chain{Table: table, Name: "ports", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
			Priority: nftables.ChainPriorityFilter})
		must(t, nft.Flush())
	}
}

// echoed sends a datagram and gets it back, from where it was sent to.
func echoed(ns *os.File, addr string) error {
	return kernel.In(ns, func() error {
		conn, err := net.Dial("udp6", addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		var buf [8]byte
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err = conn.Write([]byte("?")); err == nil {
			_, err = conn.Read(buf[:])
		}
		return err
	})
}
