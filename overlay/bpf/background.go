//go:build linux

package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/wire"
)

// walk runs the program that goes through the tables of flows.
func (d *Device) walk(args sweepArgs) (sweepArgs, error) {
	out := args
	_, err := d.coll.Programs["sweep"].Run(&ebpf.RunOptions{Context: &args, ContextOut: &out})
	return out, err
}

// sweepShare is how much longer than a sweep the pause after it is: sweeps take half a percent of one processor at most.
const sweepShare = 200

// sweeper ends flows that are over.
func (d *Device) sweeper() {
	t := d.opts.Timeouts
	tick := time.NewTicker(t.Sweep)
	defer tick.Stop()
	ms := func(d time.Duration) uint32 { return uint32(d.Milliseconds()) }
	begun, left := int64(-1), uint32(0)
	var rest time.Time
	for {
		select {
		case <-d.closing:
			return
		case <-tick.C:
			if time.Now().Before(rest) {
				continue
			}
		case <-d.full:
		}
		// A walk through empty tables takes milliseconds too.
		n, err := d.counter(counterNewFlow)
		if err == nil && n == begun && left == 0 {
			continue
		}
		begun = n
		began := time.Now()
		args, err := d.walk(sweepArgs{What: doSweep, Established: ms(t.Established), Closing: ms(t.Closing), UDP: ms(t.UDP), ICMP: ms(t.ICMP)})
		if err != nil {
			d.opts.Log.Warn("flows that are over could not be swept", "err", err)
		}
		d.sweeps.Add(1)
		d.swept.Add(time.Since(began).Microseconds())
		left = args.Flows + args.Ended
		rest = time.Now().Add(sweepShare * time.Since(began))
	}
}

// readRing hands on what the programs tell.
func (d *Device) readRing() {
	last := map[overlay.Event]time.Time{}
	var full time.Time
	for {
		r, err := d.ring.Read()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			d.opts.Log.Warn("events of the overlay's programs", "err", err)
			continue
		}
		e, ok := parseEvent(r.RawSample)
		if !ok {
			continue
		}
		if e.Kind == eventReset {
			ports := [2][2]byte{}
			binary.NativeEndian.PutUint16(ports[0][:], uint16(e.Peer>>16))
			binary.NativeEndian.PutUint16(ports[1][:], uint16(e.Peer))
			var ack [4]byte
			binary.NativeEndian.PutUint32(ack[:], e.Net)
			if e.Net != 0 {
				d.write(forgeReset(from16(e.Src), from16(e.Dst), binary.BigEndian.Uint16(ports[0][:]), binary.BigEndian.Uint16(ports[1][:]),
					binary.BigEndian.Uint32(ack[:])))
			}
			continue
		}
		out := overlay.Event{Kind: overlay.EventUnknown, Net: wire.NetworkID(e.Net), Src: from16(e.Src), Dst: from16(e.Dst),
			Peer: wire.PeerID(e.Peer)}
		if e.Kind == eventFull {
			out.Kind = overlay.EventFull
		}
		// One in a while is enough of each.
		now := time.Now()
		if now.Sub(last[out]) < time.Second {
			continue
		}
		if len(last) > 1024 {
			clear(last)
		}
		last[out] = now
		d.tell(out)
		if e.Kind == eventFull && now.Sub(full) > 10*time.Second {
			full = now
			select {
			case d.full <- struct{}{}:
			default:
			}
		}
	}
}

func (d *Device) tell(e overlay.Event) {
	select {
	case d.events <- e:
	default:
		d.lost.Add(1)
	}
}

func parseEvent(b []byte) (e eventValue, ok bool) {
	if len(b) < binary.Size(e) {
		return e, false
	}
	_, err := binary.Decode(b, binary.NativeEndian, &e)
	return e, err == nil && e.Kind >= eventUnknown && e.Kind <= eventReset
}

// settling is how long changes of the machine are gathered before the data plane follows them.
const settling = 200 * time.Millisecond

// watch follows routes, addresses, devices and queues of the host, because paths and hooks depend on them.
func (d *Device) watch() error {
	var file *os.File
	err := kernel.In(d.host, func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_TC)
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
			unix.Close(fd)
			return err
		}
		file = os.NewFile(uintptr(fd), "netlink")
		return nil
	})
	if err != nil {
		return fmt.Errorf("watch the host's devices: %w", err)
	}
	d.changes = file
	changed := make(chan struct{}, 1)
	d.goroutines.Go(func() {
		buf := make([]byte, 8192)
		for {
			// What exactly has changed does not matter, but for filters.
			n, err := file.Read(buf)
			if errors.Is(err, os.ErrClosed) {
				return
			}
			d.noteRemoved(buf[:max(n, 0)], err)
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	d.goroutines.Go(func() {
		for {
			select {
			case <-d.closing:
				return
			case <-changed:
			}
			select {
			case <-d.closing:
				return
			case <-time.After(settling):
			}
			d.follow()
		}
	})
	return nil
}

// allRemoved stands for every device in Device.removed.
const allRemoved = 0

// noteRemoved takes from messages of netlink at which devices a filter or a queue was removed, by whomever. err says that some were lost.
func (d *Device) noteRemoved(b []byte, err error) {
	list, e := syscall.ParseNetlinkMessage(b)
	d.removedMu.Lock()
	defer d.removedMu.Unlock()
	if err != nil || e != nil {
		d.removed[allRemoved] = true
	}
	for _, m := range list {
		if t := m.Header.Type; (t == unix.RTM_DELQDISC || t == unix.RTM_DELTFILTER) && len(m.Data) >= 8 {
			d.removed[int(int32(binary.NativeEndian.Uint32(m.Data[4:8])))] = true // struct tcmsg
		}
	}
}

// forgetRemoved has the filters attached again that may have been removed. It is called with mu held.
func (d *Device) forgetRemoved() {
	d.removedMu.Lock()
	removed := d.removed
	d.removed = map[int]bool{}
	d.removedMu.Unlock()
	for h := range d.filters {
		if removed[allRemoved] || removed[h.index] {
			delete(d.filters, h)
		}
	}
}

// follow sets the last configuration again.
func (d *Device) follow() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.set == nil {
		return
	}
	d.forgetRemoved()
	if err := d.apply(*d.set); err != nil {
		d.opts.Log.Warn("the data plane does not follow the host's devices", "err", err)
	}
}

// shareRoom has the programs share the table for TCP among clients. It counts in pairs: a flow has an entry for each direction.
func (d *Device) shareRoom() error {
	var all shareValue
	m := d.coll.Maps["all"]
	if err := m.Lookup(uint32(0), &all); err != nil {
		return fmt.Errorf("table all: %w", err)
	}
	all.Most = d.coll.Maps["tcp"].MaxEntries() / 2
	if err := m.Put(uint32(0), &all); err != nil {
		return fmt.Errorf("table all: %w", err)
	}
	return nil
}
