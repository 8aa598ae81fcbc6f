//go:build linux

package nft

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// TestOneClientLeavesRoom: a client that begins flows to a service address, which nobody answers, has its share of the kernel's table of
// connections, and other clients go on. overlay/hostnet counts; this data plane leads all packets of instances by there.
func TestOneClientLeavesRoom(t *testing.T) {
	t.Parallel()
	const room, share = 512, 256
	w := newWorld(t)
	h := w.hosts[0]
	for _, i := range h.Insts {
		kerneltest.Run(t, h.NS, "ip link del "+i.Device)
	}
	h.Insts, h.Conf.Instances = nil, nil
	h.Set()
	kerneltest.Run(t, h.NS, "ip link del lan0")
	dir := t.TempDir()
	resolv := filepath.Join(dir, "resolv.conf")
	planetest.Must(t, os.WriteFile(resolv, nil, 0o600))
	kerneltest.Run(t, h.NS, "ip route add default via 10.100.0.2") // hostnet takes the MTU from it
	n, err := hostnet.New(hostnet.Options{Name: h.opts.Worker, Subnet: h.Blocks()[0], StateDir: filepath.Join(dir, "state"),
		RunDir: filepath.Join(dir, "run"), NetNS: h.opts.NetNS, ResolvConf: resolv, Flows: room})
	planetest.Must(t, err)
	t.Cleanup(func() {
		if err := n.CleanUp(context.Background()); err != nil {
			t.Error(err)
		}
		n.Close()
	})
	as, err := n.Set(t.Context(), hostnet.Config{Attachments: []hostnet.Want{{ID: "hostile"}, {ID: "honest"}}})
	planetest.Must(t, err)
	for _, id := range []string{"hostile", "honest"} {
		ns, err := os.Open(as[id].NetNS)
		planetest.Must(t, err)
		t.Cleanup(func() { ns.Close() })
		addr := as[id].Addresses[0].Addr()
		i := &planetest.Inst{Host: h.Host, Name: id, NS: ns, A4: addr, Device: fmt.Sprintf("%s.%d", h.Prefix, addr.As4()[3])}
		h.Insts = append(h.Insts, i)
		h.Conf.Instances = append(h.Conf.Instances, overlay.Instance{ID: id, Net: 7, Device: i.Device, Addrs: []netip.Addr{addr}})
	}
	far := w.Inst("a2")
	far.Serve(80)
	h.Conf.Services = append(h.Conf.Services,
		overlay.Service{Net: 7, Addr: planetest.Svc(1, false), Slots: []overlay.Backend{{Net: 7, Addr: far.A4}}})
	h.Set()
	hostile, honest := h.Insts[0], h.Insts[1]
	planetest.Eventually(t, "the service is reached", func() bool {
		got, err := honest.Ask("tcp", planetest.Svc(1, false), 80)
		return err == nil && got == "a2"
	})
	planetest.Must(t, kernel.In(hostile.NS, func() error {
		c, err := net.ListenPacket("udp4", ":0")
		if err != nil {
			return err
		}
		defer c.Close()
		for port := range 2 * room {
			if _, err := c.WriteTo([]byte("x"), &net.UDPAddr{IP: planetest.Svc(1, false).AsSlice(), Port: 10000 + port}); err != nil {
				return err
			}
		}
		return nil
	}))
	begun := 0
	planetest.Must(t, kernel.In(h.NS, func() error {
		list, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		for _, f := range list {
			if f.Forward.SrcIP.Equal(net.IP(hostile.A4.AsSlice())) {
				begun++
			}
		}
		return err
	}))
	if begun != share {
		t.Errorf("%d flows of one client, and its share is %d", begun, share)
	}
	for range 20 {
		if got, err := honest.Ask("tcp", planetest.Svc(1, false), 80); err != nil || got != "a2" {
			t.Fatalf("another client: %s, %v", got, err)
		}
	}
}
