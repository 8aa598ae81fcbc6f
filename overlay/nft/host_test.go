//go:build linux

package nft

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// A host that did not forward IPv6 does so for instances, and for nobody else; it still hears of routers.
func TestForwarding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hosts[0]
	w.Inst("a2").Serve(80)
	h.Service(7, 1, w.Inst("a2"))
	kerneltest.Run(t, h.NS, `
		sysctl -qw net.ipv6.conf.all.forwarding=0
		sysctl -qw net.ipv6.conf.wire.accept_ra=1`)
	planetest.Must(t, h.dev.Close())
	h.Open()
	h.Set()
	if got, err := w.Inst("a1").Ask("tcp", planetest.Svc(1, true), 80); err != nil || got != "a2" {
		t.Errorf("%s, %v", got, err)
	}
	for name, want := range map[string]string{"all/forwarding": "1", "wire/accept_ra": "2"} {
		if v, err := h.dev.readSysctl("net/ipv6/conf/" + name); err != nil || v != want {
			t.Errorf("%s is %s, %v", name, v, err)
		}
	}
	// Two machines that are no instances, on either side of the host.
	near, far := kerneltest.NewNS(t), kerneltest.NewNS(t)
	for name, ns := range map[string]*os.File{"near": near, "far": far} {
		planetest.Must(t, kernel.In(h.NS, func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1, Flags: net.FlagUp}, PeerName: "eth0",
				PeerNamespace: netlink.NsFd(int(ns.Fd()))})
		}))
		kerneltest.Run(t, h.NS, "ip addr add fd77:"+name[1:2]+"::1/64 dev "+name+" nodad")
		kerneltest.Run(t, ns, "ip addr add fd77:"+name[1:2]+"::2/64 dev eth0 nodad\nip link set eth0 up\nip -6 route add default via fd77:"+
			name[1:2]+"::1")
	}
	planetest.Must(t, kernel.In(near, func() error { return kernel.SysctlIfAny("ipv4/ping_group_range", "0\t2147483647") }))
	i := &planetest.Inst{Host: h.Host, NS: near}
	planetest.Must(t, i.Ping(netip.MustParseAddr("fd77:e::1"), 8))
	if i.Reaches(netip.MustParseAddr("fd77:a::2")) {
		t.Error("the host became a router for others")
	}
	planetest.Must(t, h.dev.CleanUp())
	h.Open()
	if v, err := h.dev.readSysctl("net/ipv6/conf/all/forwarding"); err != nil || v != "0" {
		t.Errorf("forwarding is %s afterwards, %v", v, err)
	}
}
