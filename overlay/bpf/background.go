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
	"github.com/vishvananda/netlink/nl"
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

// flowless reports whether there are no flows: the last sweep found none, and none has begun since. A walk through empty tables takes
// milliseconds, too.
func (d *Device) flowless() bool {
	n, err := d.counter(counterNewFlow)
	return err == nil && n == d.noFlowAt.Load()
}

// sweepShare is how much longer than a sweep the pause after it is: sweeps take half a percent of one processor at most.
const sweepShare = 200

// sweeper ends flows that are over.
func (d *Device) sweeper() {
	t := d.opts.Timeouts
	tick := time.NewTicker(t.Sweep)
	defer tick.Stop()
	ms := func(d time.Duration) uint32 { return uint32(d.Milliseconds()) }
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
		if d.flowless() {
			continue
		}
		n, counted := d.counter(counterNewFlow) // before the walk, which a new flow may escape
		began := time.Now()
		args, err := d.walk(sweepArgs{What: doSweep, Established: ms(t.Established), Closing: ms(t.Closing), UDP: ms(t.UDP), ICMP: ms(t.ICMP)})
		if err != nil {
			d.opts.Log.Warn("flows that are over could not be swept", "err", err)
		}
		d.sweeps.Add(1)
		d.swept.Add(time.Since(began).Microseconds())
		if err != nil || counted != nil || args.Flows+args.Ended > 0 {
			n = -1
		}
		d.noFlowAt.Store(n)
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

// changesRoom is how much the kernel may have to say before it is heard, in bytes: when filters come back at thousands of cables at once, it
// says so of each, and what is lost would have them all come back again.
const changesRoom = 8 << 20

// changesOf opens a socket by which the kernel tells of a host's routes, addresses, devices and queues.
func changesOf(host *os.File) (file *os.File, err error) {
	err = kernel.In(host, func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, changesRoom) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, changesRoom) // up to net.core.rmem_max
		}
		groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_TC)
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
			unix.Close(fd)
			return err
		}
		file = os.NewFile(uintptr(fd), "netlink")
		return nil
	})
	return file, err
}

// watch follows routes, addresses, devices and queues of the host, because paths and hooks depend on them.
func (d *Device) watch() error {
	d.programs = map[ebpf.ProgramID]bool{}
	for _, p := range d.coll.Programs {
		if info, err := p.Info(); err == nil {
			id, _ := info.ID()
			d.programs[id] = true
		}
	}
	file, err := changesOf(d.host)
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
			d.note(buf[:max(n, 0)], err)
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

// allDevices stands for every device in Device.disturbed.
const allDevices = 0

// disturbance is what may have become of the filters at a device.
type disturbance struct {
	removed  bool // by whomever, also with the device: another one may have its number now
	replaced bool // by a program that is not ours
}

// note takes from messages of netlink at which devices filters were disturbed. err says that some messages were lost.
func (d *Device) note(data []byte, err error) {
	list, unreadable := syscall.ParseNetlinkMessage(data)
	d.disturbedMu.Lock()
	defer d.disturbedMu.Unlock()
	if err != nil || unreadable != nil {
		d.disturbed[allDevices] = disturbance{true, true}
	}
	for _, m := range list {
		if len(m.Data) < 8 {
			continue
		}
		index := int(int32(binary.NativeEndian.Uint32(m.Data[4:8]))) // in struct tcmsg and in struct ifinfomsg
		is := d.disturbed[index]
		switch m.Header.Type {
		case unix.RTM_DELLINK, unix.RTM_DELQDISC, unix.RTM_DELTFILTER:
			is.removed = true
		case unix.RTM_NEWTFILTER:
			is.replaced = is.replaced || d.foreign(m.Data)
		}
		if is != (disturbance{}) {
			d.disturbed[index] = is
		}
	}
}

// foreign reports whether a filter is where ours are, and runs a program that is not ours.
func (d *Device) foreign(tcmsg []byte) bool {
	if len(tcmsg) < nl.SizeofTcMsg || nl.DeserializeTcMsg(tcmsg).Info>>16 != priority {
		return false
	}
	attrs, _ := nl.ParseRouteAttrAsMap(tcmsg[nl.SizeofTcMsg:])
	options, _ := nl.ParseRouteAttrAsMap(attrs[nl.TCA_OPTIONS].Value)
	id := options[nl.TCA_BPF_ID].Value
	return len(id) == 4 && !d.programs[ebpf.ProgramID(binary.NativeEndian.Uint32(id))]
}

// mistrust has filters attached again that may have been disturbed. It is called with mu held.
func (d *Device) mistrust() {
	d.disturbedMu.Lock()
	disturbed := d.disturbed
	d.disturbed = map[int]disturbance{}
	d.disturbedMu.Unlock()
	for h := range d.filters {
		for _, index := range []int{allDevices, h.index} {
			if is := disturbed[index]; is.removed || is.replaced && h.cable() {
				d.filters[h] = false
			}
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
