//go:build linux

package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// hook is a program at a device.
type hook struct {
	program string
	index   int
}

func (h hook) egress() bool { return h.program == "to_instance" }
func (h hook) pin() string  { return fmt.Sprintf("%s-%d", h.program, h.index) }

// cable reports whether the device is that of an instance, which comes and goes with it.
func (h hook) cable() bool { return h.program == "from_instance" || h.program == "to_instance" }

// priority of the filters; those of overlay/hostnet come after it.
const priority = 1

// reopen puts this process's programs in the place of those that an earlier one left, one by one and with no packet lost.
func (d *Device) reopen() error { return d.take(d.opts.linkDir(), nil) }

// take puts this process's programs in the place of those that are pinned in a directory, and takes the pins over. Those that are not
// wanted, or whose devices are gone, are taken away; want is nil if all are.
func (d *Device) take(dir string, want map[hook]bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var h hook
		name, number, _ := strings.Cut(e.Name(), "-")
		if _, err := fmt.Sscan(number, &h.index); err != nil || d.coll.Programs[name] == nil {
			_ = os.Remove(path)
			continue
		}
		h.program = name
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return fmt.Errorf("program %s of an earlier agent: %w", e.Name(), err)
		}
		info, err := l.Info()
		if err != nil || info.TCX() == nil || int(info.TCX().Ifindex) != h.index || want != nil && !want[h] || d.links[h] != nil {
			_ = l.Detach() // the device may be gone; without a pin, the kernel would do it some time later
			_ = os.Remove(path)
			l.Close()
			continue
		}
		if err := l.Update(d.coll.Programs[name]); err != nil {
			l.Close()
			return fmt.Errorf("replace program %s: %w", e.Name(), err)
		}
		if own := filepath.Join(d.opts.linkDir(), e.Name()); own != path {
			if err := os.Rename(path, own); err != nil {
				l.Close()
				return fmt.Errorf("take over program %s: %w", e.Name(), err)
			}
		}
		d.links[h] = l
	}
	return nil
}

// attach makes the hooks what they are to be.
func (d *Device) attach(want map[hook]bool, there map[int]bool) error {
	var errs []error
	if !d.lookedForFilters { // those of an earlier agent; with a link in its place one is not needed
		keep := maps.Clone(want)
		for h := range d.links {
			delete(keep, h)
		}
		for index := range there {
			errs = append(errs, d.dropFilters(index, keep))
		}
		d.lookedForFilters = errors.Join(errs...) == nil
	}
	for h := range want {
		if !there[h.index] {
			continue
		}
		if err := d.hang(h); err != nil {
			errs = append(errs, fmt.Errorf("attach program %s: %w", h.program, err))
		}
	}
	for h := range d.links {
		if !want[h] {
			errs = append(errs, d.unhang(h))
		}
	}
	var old []int
	for h := range d.filters {
		if !there[h.index] {
			delete(d.filters, h)
		} else if !want[h] && !slices.Contains(old, h.index) {
			old = append(old, h.index)
		}
	}
	for _, index := range old {
		errs = append(errs, d.dropFilters(index, want))
	}
	return errors.Join(errs...)
}

// hang attaches a program, unless it is attached already. A link of TCX waits until all processors have gone through a grace period,
// 10 to 50 ms with all changes of devices held up; a filter takes less than one. At cables, which come and go, filters are used where the
// kernel has them. Elsewhere links are: nobody but their owner can remove them from a device that the host uses as well.
func (d *Device) hang(h hook) error {
	if l := d.links[h]; l != nil {
		if info, err := l.Info(); err == nil && info.TCX() != nil && int(info.TCX().Ifindex) == h.index {
			return nil
		}
		_ = d.unhang(h)
	}
	if d.noTCX {
		return d.hangFilter(h)
	}
	if h.cable() && !d.opts.noFilters {
		// ENOENT: the kernel has no such queues, or no such filters.
		if err := d.hangFilter(h); !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	kind := ebpf.AttachTCXIngress
	if h.egress() {
		kind = ebpf.AttachTCXEgress
	}
	var l link.Link
	err := kernel.In(d.host, func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: h.index, Program: d.coll.Programs[h.program], Attach: kind})
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) || d.opts.noTCX {
		if l != nil {
			l.Close()
		}
		d.noTCX = true
		return d.hangFilter(h)
	}
	if err != nil {
		return err
	}
	path := filepath.Join(d.opts.linkDir(), h.pin())
	_ = os.Remove(path)
	if err := l.Pin(path); err != nil {
		l.Close()
		return err
	}
	d.links[h] = l
	return nil
}

func (d *Device) unhang(h hook) error {
	l := d.links[h]
	delete(d.links, h)
	err := os.Remove(filepath.Join(d.opts.linkDir(), h.pin()))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	_ = l.Detach() // as in take
	l.Close()
	return err
}

func parent(h hook) uint32 {
	if h.egress() {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

// hangFilter attaches a program by a filter in the clsact queue. One of an earlier agent is replaced with no packet lost.
func (d *Device) hangFilter(h hook) error {
	if d.filters[h] {
		return nil
	}
	q := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: h.index, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT}}
	if err := d.nl.QdiscAdd(q); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	err := d.nl.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: h.index, Parent: parent(h), Handle: 1, Protocol: unix.ETH_P_ALL, Priority: priority},
		Fd:          d.coll.Programs[h.program].FD(), Name: d.opts.prefix() + "-" + h.program, DirectAction: true,
	})
	if err == nil {
		d.filters[h] = true
	}
	return err
}

// dropFilters takes away this worker's filters at a device that are not wanted.
func (d *Device) dropFilters(index int, want map[hook]bool) error {
	var errs []error
	for _, end := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		device := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}
		list, err := kernel.Whole(func() ([]netlink.Filter, error) { return d.nl.FilterList(device, end) })
		if err != nil { // a device without the queue has an empty list, as one that is gone
			errs = append(errs, fmt.Errorf("list filters: %w", err))
			continue
		}
		for _, f := range list {
			b, ok := f.(*netlink.BpfFilter)
			if !ok {
				continue
			}
			program, ours := strings.CutPrefix(b.Name, d.opts.prefix()+"-")
			if ours && !want[hook{program, index}] {
				errs = append(errs, d.nl.FilterDel(f))
				delete(d.filters, hook{program, index})
			}
		}
	}
	return errors.Join(errs...)
}
