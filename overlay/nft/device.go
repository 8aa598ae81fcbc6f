//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/held"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/wire"
)

// Device is a worker's data plane in the kernel. Its methods may be called at the same time.
type Device struct {
	opts     Options
	skeleton *skeleton
	host     *os.File
	claim    *os.File // to the worker's name in that namespace
	nl       *netlink.Handle

	// mu guards what follows.
	mu     sync.Mutex
	closed bool
	tables *tables             // nil: not known
	guard  bool                // this worker made the host forward IPv6
	dead   map[netip.Addr]bool // backends that are no more, for a while

	tap        atomic.Pointer[os.File] // the agent's
	now        atomic.Pointer[known]
	held       *held.Packets
	resets     resets
	events     chan overlay.Event
	lost       atomic.Int64
	closing    chan struct{}
	goroutines sync.WaitGroup
}

var _ overlay.Device = (*Device)(nil)

// New opens a worker's data plane, as an earlier process left it; Set makes it. *Unsupported means that it cannot work here.
func New(o Options) (*Device, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	d := &Device{opts: o, held: held.New(), dead: map[netip.Addr]bool{}, events: make(chan overlay.Event, 512), closing: make(chan struct{})}
	d.skeleton = newSkeleton(&d.opts)
	d.now.Store(&known{})
	if err := d.open(); err != nil {
		d.release()
		return nil, fmt.Errorf("overlay: %w", unsupported(err))
	}
	return d, nil
}

func (d *Device) open() (err error) {
	path := d.opts.NetNS
	if path == "" {
		path = "/proc/thread-self/ns/net"
	}
	if d.host, err = os.Open(path); err != nil {
		return err
	}
	if d.nl, err = netlink.NewHandleAt(netns.NsHandle(d.host.Fd()), unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER); err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	if d.claim, err = kernel.Claim(d.host, "nftables", d.opts.Worker); err != nil {
		return err
	}
	if err := d.probe(); err != nil {
		return err
	}
	return d.strict()
}

// strict reports whether the host refuses packets for where they come from, which is not where it would send answers.
func (d *Device) strict() error {
	if v, err := d.readSysctl("net/ipv4/conf/all/rp_filter"); err == nil && v == "1" {
		return &Unsupported{Reason: "the host checks sources strictly (net.ipv4.conf.all.rp_filter is 1), and would refuse packets of other workers' instances", Cure: "set it to 2, or to 0 and to 1 for single devices"}
	}
	return nil
}

func (d *Device) readSysctl(name string) (out string, err error) {
	err = kernel.In(d.host, func() error {
		b, err := os.ReadFile("/proc/sys/" + name)
		out = strings.TrimSpace(string(b))
		return err
	})
	return out, err
}

func (d *Device) release() {
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

// TunnelTap is the device by which packets for sealed paths go to the tunnel, and come from there.
func (d *Device) TunnelTap() string { return d.opts.tunnelTap() }

// Close lets go of the machine; traffic goes on.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	close(d.closing)
	if tap := d.tap.Load(); tap != nil {
		tap.Close()
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

// Set makes the data plane what the configuration says. What concerns a single instance and does not work is in the error;
// the others are as they should be. Peers with a plain path are reached by the tunnel.
func (d *Device) Set(ctx context.Context, c overlay.Config) error {
	if err := check(c); err != nil {
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
	if err := d.apply(c); err != nil {
		return fmt.Errorf("overlay: %w", unsupported(err))
	}
	return nil
}

// apply is called with the lock held.
func (d *Device) apply(conf overlay.Config) error {
	made, err := d.ensureTaps(conf.Local.MTU)
	if err != nil {
		return err
	}
	if made {
		d.tables = nil // chains of a device end with it
	}
	var errs []error
	bridges, cables := map[string]net.HardwareAddr{}, map[string]netlink.Link{}
	var there []overlay.Instance
	for _, i := range conf.Instances {
		l, err := d.nl.LinkByName(i.Device)
		if err != nil {
			errs = append(errs, fmt.Errorf("instance %s: device %s: %w", i.ID, i.Device, err))
			continue
		}
		b, err := d.nl.LinkByIndex(l.Attrs().MasterIndex)
		if err != nil || l.Attrs().MasterIndex == 0 {
			errs = append(errs, fmt.Errorf("instance %s: device %s is in no bridge", i.ID, i.Device))
			continue
		}
		bridges[b.Attrs().Name], cables[b.Attrs().Name] = b.Attrs().HardwareAddr, b
		there = append(there, i)
		errs = append(errs, d.reflect(l))
	}
	conf.Instances = there
	agent, err := d.nl.LinkByName(d.opts.agentTap())
	if err != nil {
		return fmt.Errorf("device %s: %w", d.opts.agentTap(), err)
	}
	if err := d.forwarding(); err != nil {
		errs = append(errs, err)
	}
	if err := d.update(d.skeleton.plan(conf, bridges, agent.Attrs().Index)); err != nil {
		return errors.Join(append(errs, err)...)
	}
	d.revive(conf)
	if err := d.upTaps(); err != nil {
		return errors.Join(append(errs, err)...)
	}
	errs = append(errs, d.setRoutes(conf, cables))
	was := d.now.Swap(newKnown(conf))
	var gone []netip.Addr
	for a := range was.local {
		if _, ok := d.now.Load().local[a]; !ok {
			gone = append(gone, a)
		}
	}
	// Who gets the address next is not to inherit its flows.
	errs = append(errs, d.forget(gone))
	d.retry()
	return errors.Join(errs...)
}

// Stats reads counters and sizes. Flows are all that the kernel tracks, the host's own too; its table takes no more than
// FlowsMax.
func (d *Device) Stats() (overlay.Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return overlay.Stats{}, errClosed
	}
	counts, err := d.counts()
	if err != nil {
		return overlay.Stats{}, fmt.Errorf("overlay: %w", err)
	}
	counts["events-lost"] = d.lost.Load()
	s := overlay.Stats{Counters: counts}
	for file, to := range map[string]*int{"net/netfilter/nf_conntrack_count": &s.Flows, "net/netfilter/nf_conntrack_max": &s.FlowsMax} {
		if v, err := d.readSysctl(file); err == nil {
			*to, _ = strconv.Atoi(v)
		}
	}
	return s, nil
}

// CleanUp takes everything of the worker down, also what a crashed agent left. The device is closed afterwards.
func (d *Device) CleanUp() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return errClosed
	}
	_, err := d.load() // which tells whether forwarding was switched on
	errs := []error{err}
	if d.guard {
		errs = append(errs, kernel.In(d.host, func() error { return kernel.SysctlIfAny("ipv6/conf/all/forwarding", "0") }))
	}
	errs = append(errs, d.dropRoutes())
	for _, name := range []string{d.opts.tunnelTap(), d.opts.agentTap()} {
		if l, err := d.nl.LinkByName(name); err == nil {
			if err := d.nl.LinkDel(l); err != nil && !kernel.Gone(err) {
				errs = append(errs, fmt.Errorf("delete device %s: %w", name, err))
			}
		}
	}
	errs = append(errs, d.dropTables())
	d.mu.Unlock()
	return errors.Join(append(errs, d.Close())...)
}

// known is what the agent goes by.
type known struct {
	mtu      int
	local    map[netip.Addr]uint32 // instances here, with their networks
	open     map[held.Target]bool  // networks that they accept
	services map[held.Target]bool
	blocks   []netip.Prefix
	pools    []netip.Prefix // of service addresses
	peers    []netip.Prefix
}

func newKnown(c overlay.Config) *known {
	k := &known{mtu: c.Local.MTU, local: map[netip.Addr]uint32{}, open: map[held.Target]bool{}, services: map[held.Target]bool{},
		blocks: c.Local.Blocks, pools: c.Local.Services}
	for _, i := range c.Instances {
		for _, a := range i.Addrs {
			k.local[a] = uint32(i.Net)
			for _, n := range append([]wire.NetworkID{i.Net}, i.Foreign...) {
				k.open[held.Target{Net: uint32(n), Dst: a}] = true
			}
		}
	}
	for _, s := range c.Services {
		if len(s.Slots) > 0 {
			k.services[held.Target{Net: uint32(s.Net), Dst: s.Addr}] = true
		}
	}
	for _, p := range c.Peers {
		k.peers = append(k.peers, p.Prefixes...)
	}
	return k
}

// has says whether a packet for the target would go on.
func (k *known) has(t held.Target) bool {
	if _, ok := k.local[t.Dst]; ok {
		return k.open[t]
	}
	if k.services[t] {
		return true
	}
	return slices.ContainsFunc(k.peers, func(p netip.Prefix) bool { return p.Contains(t.Dst) })
}
