//go:build linux

package bpf

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// cableFilters gives the names of the filters at a device of a host, or nil if the device has none, or is not there.
func (h *host) cableFilters(device string) (names []string) {
	planetest.Must(h.T, kernel.In(h.NS, func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			list, err := netlink.FilterList(l, parent)
			if err != nil {
				return err
			}
			for _, f := range list {
				if b, ok := f.(*netlink.BpfFilter); ok {
					names = append(names, b.Name)
				}
			}
		}
		return nil
	}))
	return names
}

func (h *host) index(device string) (index int) {
	planetest.Must(h.T, kernel.In(h.NS, func() error {
		l, err := netlink.LinkByName(device)
		if err == nil {
			index = l.Attrs().Index
		}
		return err
	}))
	return index
}

// A device may come again under the number of one that is gone: what was attached to that one is not attached to it.
func TestCableUnderAnotherOnesNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	const again = "ip link del %[1]s\nip link add %[1]s index %[2]d type veth peer name other\nip link set %[1]s up"
	kerneltest.Run(t, h.NS, fmt.Sprintf(again, client.Device, h.index(client.Device)))
	planetest.Eventually(t, "the new device has filters", func() bool { return len(h.cableFilters(client.Device)) == 2 })
}

// A filter that somebody else puts in the place of one is replaced in turn.
func TestReplacedFilterComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	w.Inst("a2").Serve(80)
	h.Service(7, 1, w.Inst("a2"))
	other := w.hosts[1].dev.coll.Programs["from_wire"]
	for way, parent := range map[string]uint32{"ingress": netlink.HANDLE_MIN_INGRESS, "egress": netlink.HANDLE_MIN_EGRESS} {
		at := netlink.FilterAttrs{LinkIndex: h.index(client.Device), Parent: parent, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: priority}
		planetest.Must(t, h.dev.nl.FilterReplace(&netlink.BpfFilter{FilterAttrs: at, Fd: other.FD(), Name: "other", DirectAction: true}))
		planetest.Eventually(t, "both filters are back at "+way, func() bool {
			names := h.cableFilters(client.Device)
			return len(names) == 2 && names[0] == h.opts.prefix()+"-from_instance" && names[1] == h.opts.prefix()+"-to_instance"
		})
		if got, err := client.Ask("tcp", planetest.Svc(1, false), 80); err != nil || got != "a2" {
			t.Errorf("after a filter at %s was replaced: %s, %v", way, got, err)
		}
	}
}

// The kernel has room for what it says when filters come back at thousands of cables: were some of it lost, they would all come back again.
func TestFiltersComeBackOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	file, err := changesOf(h.NS)
	planetest.Must(t, err)
	defer file.Close()
	planetest.Must(t, file.SetReadDeadline(time.Now().Add(time.Minute)))
	cable, missing := hook{"to_instance", h.index(client.Device)}, 5000
	for range missing {
		h.dev.mu.Lock()
		h.dev.filters[cable] = false
		err := h.dev.hang(cable)
		h.dev.mu.Unlock()
		planetest.Must(t, err)
	}
	buf := make([]byte, 8192)
	for missing > 0 {
		n, err := file.Read(buf)
		if err != nil {
			t.Fatalf("%d messages are missing: %v", missing, err)
		}
		list, err := syscall.ParseNetlinkMessage(buf[:n])
		planetest.Must(t, err)
		for _, m := range list {
			if m.Header.Type == unix.RTM_NEWTFILTER {
				missing--
			}
		}
	}
}
