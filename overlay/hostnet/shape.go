//go:build linux

package hostnet

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/internal/kernel"
)

// rates are what an instance may receive and send, in bytes per second; 0 is no limit.
type rates struct{ in, out skerry.Bytes }

// queueTime bounds how long a packet waits for its turn under a limit.
const queueTime = 0.05 // seconds

// shaper is the device through which what an instance sends takes a detour, because a queue can only be limited on the
// way out of a device. Its name begins like that of a cable, so that CleanUp finds it.
func (n *Network) shaper(id string) string {
	return strings.Replace(n.link(id), ".", ".i", 1)
}

// shape limits an attachment at the host's end, where the instance cannot touch it: a token bucket on the cable for what
// it receives, and one on a detour for what it sends.
func (n *Network) shape(id string, r rates) error {
	l, err := n.nl.LinkByName(n.link(id))
	if err != nil {
		return err
	}
	if err := n.bucket(l, r.in); err != nil {
		return fmt.Errorf("limit what it receives: %w", err)
	}
	if err := n.detour(id, l, r.out); err != nil {
		return fmt.Errorf("limit what it sends: %w", err)
	}
	n.shaped[id] = r
	return nil
}

// bucket puts a token bucket on the way out of a device, or takes it away.
func (n *Network) bucket(l netlink.Link, rate skerry.Bytes) error {
	attrs := netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	if rate <= 0 {
		err := n.nl.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "tbf"})
		if err != nil && !kernel.Gone(err) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	}
	// A bucket of 20 ms, and of a few packets at least; larger segments are cut up by the queue.
	size := uint32(min(max(int64(rate)/50, int64(4*n.mtu)), 4<<20))
	return n.nl.QdiscReplace(&netlink.Tbf{QdiscAttrs: attrs, Rate: uint64(rate),
		Limit: size + uint32(min(float64(rate)*queueTime, 64<<20)) + uint32(2*n.mtu), Buffer: netlink.Xmittime(uint64(rate), size)})
}

// detour leads what comes from the instance through a device of its own, or no longer does.
func (n *Network) detour(id string, cable netlink.Link, rate skerry.Bytes) error {
	name := n.shaper(id)
	way, err := n.nl.LinkByName(name)
	if rate <= 0 {
		if err != nil {
			return nil
		}
		n.dropDetour(cable)
		return n.nl.LinkDel(way)
	}
	if err != nil {
		if err := n.nl.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: n.mtu, TxQLen: 64,
			Flags: unix.IFF_UP}}); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make device %s: %w", name, err)
		}
		if way, err = n.nl.LinkByName(name); err != nil {
			return err
		}
	}
	if err := n.nl.LinkSetUp(way); err != nil {
		return err
	}
	if err := n.bucket(way, rate); err != nil {
		return err
	}
	n.dropDetour(cable)
	// The overlay's programs use the same queue, and come first: it stays when the limit goes.
	in := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: cable.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT}}
	if err := n.nl.QdiscAdd(in); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	f := detourFilter(cable)
	f.Actions = []netlink.Action{netlink.NewMirredAction(way.Attrs().Index)}
	return n.nl.FilterAdd(f)
}

func detourFilter(cable netlink.Link) *netlink.U32 {
	return &netlink.U32{FilterAttrs: netlink.FilterAttrs{LinkIndex: cable.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 100,
		Protocol: unix.ETH_P_ALL}}
}

func (n *Network) dropDetour(cable netlink.Link) {
	_ = n.nl.FilterDel(detourFilter(cable))
	// Agents before this one had a queue for it alone.
	queues, _ := kernel.Whole(func() ([]netlink.Qdisc, error) { return n.nl.QdiscList(cable) })
	for _, q := range queues {
		if q.Type() == "ingress" {
			_ = n.nl.QdiscDel(q)
		}
	}
}
