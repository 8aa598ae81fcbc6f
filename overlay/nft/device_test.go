//go:build linux

package nft

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/planetest"
)

// Turns are exact, also when the same is set again, or something else.
func TestTurnsAreEven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, client := w.hosts[0], w.Inst("a1")
	slots := []*planetest.Inst{w.Inst("b1"), w.Inst("a2"), w.Inst("a2"), w.Inst("b2")}
	h.Service(7, 1, slots...)
	count := func() map[netip.Addr]int {
		got := map[netip.Addr]int{}
		list, err := h.dev.connections(unix.AF_INET)
		planetest.Must(t, err)
		for _, f := range list {
			if f.Forward.DstIP.String() == planetest.Svc(1, false).String() {
				b, _ := netip.AddrFromSlice(f.Reverse.SrcIP)
				got[b.Unmap()]++
			}
		}
		return got
	}
	const flows = 200
	for k := range flows {
		if k == 17 {
			h.Set()
		}
		if k == 33 {
			h.Service(7, 2, slots...)
		}
		client.Send(planetest.UDP(client.A4, planetest.Svc(1, false), uint16(10000+k), 81, nil))
		if k%3 == 0 { // a second packet of a flow does not count
			client.Send(planetest.UDP(client.A4, planetest.Svc(1, false), uint16(10000+k), 81, nil))
		}
	}
	planetest.Eventually(t, "all flows are there", func() bool { return h.Count("new-flow") == flows })
	if got := count(); got[slots[0].A4] != flows/4 || got[slots[1].A4] != flows/2 || got[slots[3].A4] != flows/4 {
		t.Errorf("%v", got)
	}
}
