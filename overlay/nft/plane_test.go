//go:build linux

package nft

import (
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/planetest"
)

func TestServiceAddress(t *testing.T) {
	t.Parallel()
	planetest.ServiceAddress(t, newWorld(t).World, "tunnel")
}

func TestFlowsStay(t *testing.T) {
	t.Parallel()
	planetest.FlowsStay(t, newWorld(t).World)
}

func TestReset(t *testing.T) {
	t.Parallel()
	for _, six := range []bool{false, true} {
		planetest.Reset(t, newWorld(t).World, six)
	}
}

func TestClientIsItsOwnBackend(t *testing.T) {
	t.Parallel()
	planetest.ClientIsItsOwnBackend(t, newWorld(t).World)
}

func TestErrorsComeBack(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"b1", "a2"} {
		planetest.ErrorsComeBack(t, newWorld(t).World, to)
	}
}

func TestErrorsOfOthers(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"b1", "a2"} {
		planetest.ErrorsOfOthers(t, newWorld(t).World, backend)
	}
}

func TestNetworksAreApart(t *testing.T) {
	t.Parallel()
	planetest.NetworksAreApart(t, newWorld(t).World)
}

func TestMissIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.hosts[0].dev
	planetest.MissIsHeld(t, w.World, func(client netip.Addr) {
		planetest.Must(t, d.forget([]netip.Addr{client}))
		d.held.Forget()
	})
}

func TestTooBig(t *testing.T) {
	t.Parallel()
	planetest.TooBig(t, newWorld(t).World)
}

func TestFragments(t *testing.T) {
	t.Parallel()
	planetest.Fragments(t, newWorld(t).World)
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	planetest.Tunnel(t, newWorld(t).World)
}

func TestTunnelDropsTheUnexpected(t *testing.T) {
	t.Parallel()
	planetest.TunnelDropsTheUnexpected(t, newWorld(t).World, "drop-unknown")
}

func TestSourceIsItsOwn(t *testing.T) {
	t.Parallel()
	planetest.SourceIsItsOwn(t, newWorld(t).World)
}

func TestPeerGoes(t *testing.T) {
	t.Parallel()
	planetest.PeerGoes(t, newWorld(t).World, "drop-forged")
}

func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	planetest.OtherProtocols(t, newWorld(t).World, 253)
}

func TestTrafficOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hosts[0]
	planetest.TrafficOutlivesTheAgent(t, w.World)
	// What was configured before and is not now is gone.
	h.Conf.Services = nil
	h.Set()
	planetest.Must(t, h.dev.Close())
	h.Open()
	left, err := h.dev.load()
	planetest.Must(t, err)
	for name := range left.named {
		if name[0] == 's' {
			t.Errorf("chain %s is left", name)
		}
	}
	if n := len(left.sets[setID{nftables.TableFamilyINet, "here6"}]); n != 2 {
		t.Errorf("%d instances", n)
	}
}

func TestInstanceGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, client := w.hosts[0], w.Inst("a1")
	planetest.InstanceGoes(t, w.World)
	list, err := h.dev.nl.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	planetest.Must(t, err)
	for _, f := range list {
		if f.Forward.SrcIP.String() == client.A4.String() {
			t.Errorf("a flow is left: %s", f)
		}
	}
	routes, err := h.dev.listRoutes()
	planetest.Must(t, err)
	for _, r := range routes {
		if r.Dst.IP.String() == client.A4.String() {
			t.Errorf("a route is left: %s", r)
		}
	}
}
