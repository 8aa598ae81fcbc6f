//go:build linux

package bpf

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/planetest"
)

func TestServiceAddress(t *testing.T) {
	t.Parallel()
	for how, name := range map[way]string{plain4: "plain4", plain6: "plain6"} {
		t.Run(name, func(t *testing.T) { planetest.ServiceAddress(t, newWorld(t, how).World, "plain") })
	}
}

func TestFlowsStay(t *testing.T) {
	t.Parallel()
	planetest.FlowsStay(t, newWorld(t, plain4).World)
}

func TestReset(t *testing.T) {
	t.Parallel()
	for _, six := range []bool{false, true} {
		planetest.Reset(t, newWorld(t, plain4).World, six)
	}
}

func TestClientIsItsOwnBackend(t *testing.T) {
	t.Parallel()
	planetest.ClientIsItsOwnBackend(t, newWorld(t, plain4).World)
}

func TestErrorsComeBack(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"b1", "a2"} {
		planetest.ErrorsComeBack(t, newWorld(t, plain4).World, to)
	}
}

func TestErrorsOfOthers(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"b1", "a2"} {
		planetest.ErrorsOfOthers(t, newWorld(t, plain4).World, backend)
	}
}

func TestNetworksAreApart(t *testing.T) {
	t.Parallel()
	planetest.NetworksAreApart(t, newWorld(t, plain4).World)
}

func TestMissIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	d := w.hosts[0].dev
	planetest.MissIsHeld(t, w.World, func(client netip.Addr) {
		_, err := d.walk(sweepArgs{What: doForget, Backend: client.As16()})
		planetest.Must(t, err)
		d.held.Forget()
	})
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tunnel)
	w.Bridge()
	planetest.Tunnel(t, w.World)
	if w.hosts[0].Count("to-plain") != 0 {
		t.Error("packets took another way")
	}
}

func TestTunnelDropsTheUnexpected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tunnel)
	w.Bridge()
	planetest.TunnelDropsTheUnexpected(t, w.World, "drop-malformed")
}

func TestPeerGoes(t *testing.T) {
	t.Parallel()
	planetest.PeerGoes(t, newWorld(t, plain4).World, "drop-plain")
}

func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	planetest.OtherProtocols(t, newWorld(t, plain4).World, unix.IPPROTO_SCTP, 253)
}
