//go:build linux

package bpf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/held"
	"skerry.dev/skerry/overlay/internal/kernel"
)

// Device is a worker's data plane in the kernel. Its methods may be called at the same time.
type Device struct {
	opts  Options
	host  *os.File
	claim *os.File // to the worker's name in that namespace
	nl    *netlink.Handle
	coll  *ebpf.Collection
	ring  *ringbuf.Reader

	// mu guards what follows.
	mu      sync.Mutex
	closed  bool
	tables  *tables
	links   map[hook]link.Link
	filters map[hook]bool // that this process attached; false: they may have been disturbed since
	// lookedForFilters: there are none but those in filters.
	lookedForFilters bool
	noTCX            bool // the kernel has none
	tap              atomic.Pointer[os.File]
	set              *overlay.Config // by this process
	changes          *os.File        // netlink; nil until Set

	programs    map[ebpf.ProgramID]bool // of this process; set by watch
	disturbedMu sync.Mutex
	disturbed   map[int]disturbance // by device, since filters were last attached

	held       *held.Packets
	events     chan overlay.Event
	lost       atomic.Int64
	sweeps     atomic.Int64
	swept      atomic.Int64  // microseconds that they took
	noFlowAt   atomic.Int64  // how many flows there had ever been when a sweep found none; -1: it found some
	full       chan struct{} // a sweep would help
	closing    chan struct{}
	goroutines sync.WaitGroup
}

var _ overlay.Device = (*Device)(nil)

// New opens a worker's data plane, as an earlier process left it, or makes its tables. *Unsupported means that it cannot
// work here.
func New(o Options) (*Device, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	d, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("overlay: %w", unsupported(err))
	}
	return d, nil
}

func open(opt Options) (_ *Device, err error) {
	d := &Device{opts: opt, links: map[hook]link.Link{}, filters: map[hook]bool{}, disturbed: map[int]disturbance{},
		held: held.New(), events: make(chan overlay.Event, 512), full: make(chan struct{}, 1), closing: make(chan struct{})}
	d.noFlowAt.Store(-1)
	defer func() {
		if err != nil {
			d.release()
		}
	}()
	path := opt.NetNS
	if path == "" {
		path = "/proc/thread-self/ns/net"
	}
	if d.host, err = os.Open(path); err != nil {
		return nil, err
	}
	if d.nl, err = netlink.NewHandleAt(netns.NsHandle(d.host.Fd()), unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if d.opts.space, err = cookie(d.host); err != nil {
		return nil, err
	}
	if d.claim, err = kernel.Claim(d.host, "ebpf", opt.Worker); err != nil {
		return nil, err
	}
	if err = d.adopt(); err != nil {
		return nil, err
	}
	d.buryDead()
	if d.coll, err = d.opts.open(); err != nil {
		return nil, err
	}
	if d.tables, err = openTables(d.coll.Maps); err != nil {
		return nil, err
	}
	if err = d.reopen(); err != nil {
		return nil, err
	}
	if err = d.shareRoom(); err != nil {
		return nil, err
	}
	if d.ring, err = ringbuf.NewReader(d.coll.Maps["events"]); err != nil {
		return nil, err
	}
	d.goroutines.Go(func() { panics.Again(d.opts.Log, "what the programs tell", d.readRing) })
	d.goroutines.Go(d.sweeper)
	return d, nil
}

// release lets go of everything that is open.
func (d *Device) release() {
	for _, l := range d.links {
		l.Close()
	}
	if d.coll != nil {
		d.coll.Close()
	}
	if d.nl != nil {
		d.nl.Close()
	}
	if d.host != nil {
		d.host.Close()
	}
	if d.claim != nil {
		d.claim.Close()
	}
}

// Close lets go of the machine; traffic goes on.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	close(d.closing)
	d.ring.Close()
	if tap := d.tap.Load(); tap != nil {
		tap.Close()
	}
	if d.changes != nil {
		d.changes.Close()
	}
	d.mu.Unlock()
	d.goroutines.Wait()
	d.release()
	close(d.events)
	return nil
}

// Events gives what happens, until Close closes it.
func (d *Device) Events() <-chan overlay.Event { return d.events }

var errClosed = errors.New("overlay: the data plane is closed")

// Set makes the data plane what the configuration says. What concerns a single instance or peer and does not work is in
// the error; the others are as they should be.
func (d *Device) Set(ctx context.Context, conf overlay.Config) error {
	if err := check(conf); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	conf = clone(conf)
	d.set = &conf
	err := d.apply(conf)
	if d.changes == nil {
		if e := d.watch(); e != nil {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("overlay: %w", unsupported(err))
	}
	return nil
}

// apply is called with the lock held.
func (d *Device) apply(c overlay.Config) error {
	d.mistrust()
	m, err := d.look()
	if err != nil {
		return err
	}
	var errs []error
	if !d.settled(m, c.Local.Plain) {
		if err := d.ensureTaps(); err != nil {
			return err
		}
		errs = append(errs, d.ensureVXLAN(c.Local.Plain))
		if m, err = d.look(); err != nil {
			return err
		}
	}
	want, hooks := plan(c), map[hook]bool{}
	for _, i := range c.Instances {
		l := m.byName[i.Device]
		if l == nil {
			errs = append(errs, fmt.Errorf("instance %s: device %s does not exist", i.ID, i.Device))
			continue
		}
		index := uint32(l.Attrs().Index)
		v := instanceValue{Net: uint32(i.Net), Index: index}
		copy(v.Gate[:], l.Attrs().HardwareAddr)
		if m.limitsIn[int(index)] {
			v.Flags |= limitIn
		}
		hooks[hook{"from_instance", int(index)}], hooks[hook{"to_instance", int(index)}] = true, true
		bridge := m.byIndex[l.Attrs().MasterIndex]
		if bridge != nil {
			copy(v.Gate[:], bridge.Attrs().HardwareAddr)
		}
		if m.byName[detour(i.Device)] != nil && bridge != nil {
			v.Flags |= limitOut
			hooks[hook{"from_bridge", bridge.Attrs().Index}] = true
		}
		for _, a := range i.Addrs {
			want.instances[a.As16()] = v
		}
		want.cables[index] = uint32(i.Net)
		for _, n := range i.Foreign {
			want.foreign[foreignKey{index, uint32(n)}] = 1
		}
	}
	for id, v := range want.peers {
		if v.Way != byWire {
			continue
		}
		if err := d.path(&v, c.Local); err != nil {
			errs = append(errs, fmt.Errorf("peer %d: %w", id, err))
		}
		want.peers[id] = v
	}
	conf := configValue{MTU: uint32(c.Local.MTU)}
	for name, to := range map[string]*uint32{d.opts.tunnelTap(): &conf.Tunnel, d.opts.agentTap(): &conf.Agent} {
		if l := m.byName[name]; l != nil {
			*to = uint32(l.Attrs().Index)
			program := "from_tunnel"
			if to == &conf.Agent {
				program = "from_agent"
			}
			hooks[hook{program, l.Attrs().Index}] = true
		}
	}
	if l := c.Local.Link; l != nil {
		errs = append(errs, want.link(m.byName[l.Device], l.Device, hooks))
	}
	if p := c.Local.Plain; p.IsValid() {
		conf.Plain, conf.Port = p.Addr().As16(), port(p.Port())
		if l := m.byName[d.opts.vxlan()]; l != nil {
			hooks[hook{"from_vxlan", l.Attrs().Index}] = true
		}
		ups, err := d.uplinks(p.Addr())
		if err == nil && len(ups) == 0 {
			err = fmt.Errorf("plain endpoint %s: no device of this host has the address", p)
		}
		if err != nil {
			errs = append(errs, err)
		}
		for _, index := range ups {
			if l := m.byIndex[index]; l != nil && l.Attrs().EncapType != "ether" {
				errs = append(errs, fmt.Errorf("plain endpoint %s: device %s is no Ethernet device", p, l.Attrs().Name))
				continue
			}
			hooks[hook{"from_wire", index}] = true
		}
	}
	var left []address
	for a := range d.tables.instances.have {
		if _, ok := want.instances[a]; !ok {
			left = append(left, a)
		}
	}
	var was configValue
	if err := d.coll.Maps["config"].Lookup(uint32(0), &was); err != nil {
		return fmt.Errorf("table config: %w", err)
	}
	conf.Age = was.Age + 1
	configure := func() error {
		if err := d.coll.Maps["config"].Put(uint32(0), &conf); err != nil {
			return fmt.Errorf("table config: %w", err)
		}
		return nil
	}
	if err := configure(); err != nil {
		return err
	}
	there := map[int]bool{}
	for i := range m.byIndex {
		there[i] = true
	}
	errs = append(errs, d.tables.set(want))
	// What processors remember of routes is from before, or from between.
	conf.Age++
	errs = append(errs, configure(), d.takeOver(hooks, there))
	if len(left) > 0 && !d.flowless() {
		for _, a := range left {
			// Who gets the address next is not to inherit its flows.
			_, err := d.walk(sweepArgs{What: doForget, Backend: a})
			errs = append(errs, err)
		}
	}
	d.retry()
	return errors.Join(errs...)
}

// resetFor bounds how long Reset waits for answers to be written.
const resetFor = 5 * time.Second

// Reset ends the flows to a backend that is no more.
func (d *Device) Reset(addr netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	// What is to be answered goes through a buffer; with thousands of flows it takes more than one walk.
	for end := time.Now().Add(resetFor); ; time.Sleep(time.Millisecond) {
		args, err := d.walk(sweepArgs{What: doReset, Backend: addr.As16()})
		if err == nil && args.Flows > 0 && time.Now().After(end) {
			err = fmt.Errorf("%d are left after %s", args.Flows, resetFor)
		}
		if err != nil {
			return fmt.Errorf("overlay: reset flows to %s: %w", addr, err)
		}
		if args.Flows == 0 {
			return nil
		}
	}
}

// Stats reads counters and sizes.
func (d *Device) Stats() (overlay.Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return overlay.Stats{}, errClosed
	}
	s := overlay.Stats{Counters: map[string]int64{}}
	for i, name := range counterNames() {
		n, err := d.counter(uint32(i))
		if err != nil {
			return s, fmt.Errorf("overlay: %w", err)
		}
		s.Counters[name] = n
	}
	s.Counters["events-lost"] += d.lost.Load()
	s.Counters["sweeps"], s.Counters["sweep-us"] = d.sweeps.Load(), d.swept.Load()
	for _, m := range d.coll.Maps {
		info, err := m.Info()
		if err != nil {
			continue
		}
		if n, ok := info.Memlock(); ok {
			s.MapBytes += int64(n)
		}
	}
	args, err := d.walk(sweepArgs{What: doCount})
	if err != nil {
		return s, fmt.Errorf("overlay: count flows: %w", err)
	}
	s.Flows = int(args.Flows)
	s.FlowsMax = int(d.coll.Maps["tcp"].MaxEntries()/2 + d.coll.Maps["other"].MaxEntries()/2)
	return s, nil
}

// counter sums one up over the processors.
func (d *Device) counter(i uint32) (sum int64, err error) {
	var per []uint64
	err = d.coll.Maps["counters"].Lookup(i, &per)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, nil // the table is of an agent that counted less
	}
	if err != nil {
		return 0, fmt.Errorf("table counters: %w", err)
	}
	for _, n := range per {
		sum += int64(n)
	}
	return sum, nil
}

// CleanUp takes everything of the worker down, also what a crashed agent left. The device is closed
// afterwards.
func (d *Device) CleanUp() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return errClosed
	}
	d.set = nil // what changes on the host from here on is not followed
	var errs []error
	for h := range d.links {
		errs = append(errs, d.unhang(h))
	}
	links, err := kernel.Whole(d.nl.LinkList)
	errs = append(errs, err)
	for _, l := range links {
		errs = append(errs, d.dropFilters(l.Attrs().Index, nil))
		name := l.Attrs().Name
		if name == d.opts.tunnelTap() || name == d.opts.agentTap() || name == d.opts.vxlan() {
			if err := d.nl.LinkDel(l); err != nil && !kernel.Gone(err) {
				errs = append(errs, fmt.Errorf("delete device %s: %w", name, err))
			}
		}
	}
	errs = append(errs, removePins(d.opts.dir()))
	_ = os.Remove(filepath.Dir(d.opts.dir())) // other workers' are in it
	d.mu.Unlock()
	return errors.Join(append(errs, d.Close())...)
}

func removePins(dir string) error {
	if !strings.Contains(dir, "/skerry/") {
		return fmt.Errorf("%s is not a directory of pins", dir)
	}
	return os.RemoveAll(dir)
}
