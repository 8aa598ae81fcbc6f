//go:build linux

package hostnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/wire"
)

// Network is the network of one worker. Its methods may be called at the same time.
type Network struct {
	opts Options
	host *os.File // the namespace that counts as the host
	nl   *netlink.Handle

	// busy holds a token while Set, CleanUp or Close works; it guards what follows.
	busy    chan struct{}
	closed  bool
	state   *state
	base    bool // the bridge is there
	table   bool // the table holds ports
	index   int  // of the bridge
	mtu     int
	dns     []netip.Addr
	search  []string
	up      map[string]bool // attachments seen complete by this process
	shaped  map[string]rates
	ports   []mapping
	held    string         // the egress that the tables hold instances to
	commits uint32         // of anybody to nftables, when the last of this process was done; 0: not known
	share   int            // of the kernel's table of connections, for each address; 0: not known
	overlay *Overlay       // nil: instances have addresses of the subnet
	routed  []netip.Prefix // blocks that lead to the bridge

	counters files.Kept // of the host's devices

	closing chan struct{} // closed by Close
	reapers sync.WaitGroup
}

// New opens a worker's network. It changes nothing on the machine but making its directories.
func New(opt Options) (*Network, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	for _, dir := range []string{opt.StateDir, opt.RunDir} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, fmt.Errorf("hostnet: %w", err)
		}
	}
	st, err := loadState(&opt)
	if err != nil {
		return nil, fmt.Errorf("hostnet: %w", err)
	}
	path := opt.NetNS
	if path == "" {
		path = "/proc/thread-self/ns/net"
	}
	host, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("hostnet: %w", err)
	}
	nl, err := netlink.NewHandleAt(netns.NsHandle(host.Fd()), unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		host.Close()
		return nil, unsupported(fmt.Errorf("hostnet: open netlink: %w", err))
	}
	return &Network{opts: opt, host: host, nl: nl, state: st, busy: make(chan struct{}, 1), up: map[string]bool{},
		shaped: map[string]rates{}, closing: make(chan struct{})}, nil
}

func (n *Network) lock(ctx context.Context) error {
	select {
	case n.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if n.closed {
		<-n.busy
		return errors.New("hostnet: the network is closed")
	}
	return nil
}

// Close lets go of the machine and leaves everything up.
func (n *Network) Close() error {
	n.busy <- struct{}{}
	defer func() { <-n.busy }()
	if !n.closed {
		n.closed = true
		close(n.closing)
		n.reapers.Wait()
		n.nl.Close()
		n.host.Close()
		_ = n.counters.Close() // only read
	}
	return nil
}

// Set makes the network what the configuration says, and nothing more, and returns all attachments that are complete.
// It is idempotent; what is right already is not touched. Errors of single attachments are *AttachError, joined; the
// others are made all the same. *Unsupported means that nothing can work here.
func (n *Network) Set(ctx context.Context, conf Config) (map[string]wire.Attachment, error) {
	if err := conf.check(); err != nil {
		return nil, fmt.Errorf("hostnet: %w", err)
	}
	if err := n.lock(ctx); err != nil {
		return nil, err
	}
	defer func() { <-n.busy }()
	if err := n.ensureBase(); err != nil {
		return nil, unsupported(err)
	}
	if err := n.ensureOverlay(conf.Overlay); err != nil {
		return nil, unsupported(err)
	}
	var errs []error
	wanted := map[string]bool{}
	for _, want := range conf.Attachments {
		wanted[want.ID] = true
	}
	changed := false
	var cables []int
	var stale []netip.Addr
	for _, id := range n.known() {
		if wanted[id] {
			continue
		}
		changed = true
		if slices.ContainsFunc(n.ports, func(m mapping) bool { return m.id == id && m.Proto == UDP }) {
			stale = append(stale, n.state.Addrs[id])
		}
		cable, err := n.detach(id)
		if err != nil {
			errs = append(errs, &AttachError{id, err})
		} else if cable != 0 {
			cables = append(cables, cable)
		}
	}
	if len(cables) > 0 {
		n.reapers.Go(func() { n.reap(cables) })
	}
	var fresh []netip.Prefix
	failed := map[string]bool{}
	fail := func(id string, err error) {
		failed[id] = true
		errs = append(errs, &AttachError{id, err})
	}
	for _, want := range conf.Attachments {
		if _, ok := n.state.Addrs[want.ID]; !ok {
			changed = true
			if err := n.give(want.ID); err != nil {
				fail(want.ID, err)
			}
		}
	}
	// Addresses are written down before they are used, so that after a crash nobody gets one that is in use.
	if changed {
		if err := n.state.save(&n.opts); err != nil {
			return nil, fmt.Errorf("hostnet: %w", err)
		}
	}
	for _, want := range conf.Attachments {
		if failed[want.ID] {
			continue
		}
		if err := want.checkEgress(); err != nil {
			fail(want.ID, err)
			continue
		}
		if !n.up[want.ID] {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := n.attach(want.ID); err != nil {
				fail(want.ID, unsupported(err))
				continue
			}
			if err := n.translate(want); err != nil {
				fail(want.ID, unsupported(err))
				continue
			}
			n.up[want.ID] = true
			if want.Egress != nil {
				fresh = append(fresh, n.addresses(want.ID)...)
			}
			delete(n.shaped, want.ID)
		}
		if n.shaped[want.ID] != (rates{want.In, want.Out}) {
			if err := n.shape(want.ID, rates{want.In, want.Out}); err != nil {
				fail(want.ID, unsupported(err))
			}
		}
	}
	// Whoever has an address counts, though its cable is not right.
	held := slices.DeleteFunc(slices.Clone(conf.Attachments), func(want Want) bool { return !n.state.Addrs[want.ID].IsValid() })
	ms, portErrs := claims(held, func(id string) netip.Addr { return n.state.Addrs[id] })
	for _, id := range slices.Sorted(maps.Keys(portErrs)) {
		if !failed[id] {
			fail(id, portErrs[id])
		}
	}
	for id, err := range n.setPorts(ms, planEgress(held, n.addresses)) {
		if id == "" {
			return nil, unsupported(err)
		}
		if !failed[id] {
			fail(id, err)
		}
	}
	if err := n.shareFlows(len(conf.Attachments)); err != nil {
		return nil, unsupported(err)
	}
	n.forgetFlows(stale)
	n.forgetPast(fresh)
	out := map[string]wire.Attachment{}
	for _, want := range conf.Attachments {
		if !failed[want.ID] {
			out[want.ID] = n.attachment(want.ID)
		}
	}
	return out, errors.Join(errs...)
}

func (n *Network) attachment(id string) wire.Attachment {
	at := wire.Attachment{NetNS: n.path(id), Device: n.link(id), Addresses: n.addresses(id), MTU: n.mtuOf(id), DNS: n.dns, Search: n.search}
	if n.overlay != nil && n.overlay.Resolver && n.state.block(n.state.Addrs[id]) >= 0 {
		at.DNS = []netip.Addr{n.state.gateway()}
	}
	return at
}

func (n *Network) path(id string) string { return filepath.Join(n.opts.RunDir, id) }

// link is the host's end of an instance's cable.
func (n *Network) link(id string) string {
	return n.opts.prefix() + "." + n.state.device(n.state.Addrs[id])
}

// known are the attachments of which anything may be there.
func (n *Network) known() []string {
	ids := map[string]bool{}
	for id := range n.state.Addrs {
		ids[id] = true
	}
	if len(n.up) == 0 {
		entries, _ := os.ReadDir(n.opts.RunDir)
		for _, e := range entries {
			if validID(e.Name()) && !e.IsDir() { // a directory is somebody else's
				ids[e.Name()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// Stats reads the counters of all attachments at once.
func (n *Network) Stats() (map[string]Stats, error) {
	if err := n.lock(context.Background()); err != nil {
		return nil, err
	}
	defer func() { <-n.busy }()
	if !n.counters.Open() {
		err := kernel.In(n.host, func() (err error) {
			n.counters, err = files.Keep("/proc/thread-self/net/dev")
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("counters of the network: %w", err)
		}
	}
	var buf [4 << 10]byte
	text, err := n.counters.Read(buf[:])
	if err != nil {
		return nil, fmt.Errorf("counters of the network: %w", err)
	}
	devices := parseDevices(text)
	out := map[string]Stats{}
	for id := range n.state.Addrs {
		if s, ok := devices[n.link(id)]; ok {
			out[id] = s
		}
	}
	return out, nil
}

// parseDevices reads lines "NAME: BYTES PACKETS ...", eight columns of what was received and eight of what was sent. What the
// host's end of a cable sends is what the instance receives.
func parseDevices(text []byte) map[string]Stats {
	out := map[string]Stats{}
	for line := range bytes.Lines(text) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		columns := bytes.Fields(rest)
		if !ok || len(columns) < 10 {
			continue
		}
		number := func(i int) uint64 {
			v, _ := strconv.ParseUint(string(columns[i]), 10, 64)
			return v
		}
		out[string(bytes.TrimSpace(name))] = Stats{RxBytes: skerry.Bytes(number(8)), RxPackets: number(9), TxBytes: skerry.Bytes(number(0)),
			TxPackets: number(1)}
	}
	return out
}

// CleanUp takes down everything of the worker, also what a crashed agent left, and forgets the addresses.
func (n *Network) CleanUp(ctx context.Context) error {
	if err := n.lock(ctx); err != nil {
		return err
	}
	defer func() { <-n.busy }()
	n.reapers.Wait()
	errs := []error{n.dropTable()}
	entries, _ := os.ReadDir(n.opts.RunDir)
	for _, e := range entries {
		if validID(e.Name()) && !e.IsDir() {
			errs = append(errs, removeNS(n.path(e.Name())))
		}
	}
	links, err := kernel.Whole(n.nl.LinkList)
	if err != nil {
		errs = append(errs, fmt.Errorf("list interfaces: %w", err))
	}
	var cables []int
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, n.opts.prefix()+".") {
			cables = append(cables, l.Attrs().Index)
		}
	}
	n.reap(cables)
	if l, err := n.nl.LinkByName(n.opts.bridge()); err == nil {
		err = n.nl.LinkDel(l)
		if err != nil && !kernel.Gone(err) {
			errs = append(errs, fmt.Errorf("delete bridge %s: %w", n.opts.bridge(), err))
		}
	}
	if err := os.Remove(stateFile(&n.opts)); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	// Directories that somebody else uses too are not empty and stay.
	_ = os.Remove(n.opts.RunDir)
	n.state, n.base, n.table, n.share = &state{Subnet: n.opts.Subnet, Addrs: map[string]netip.Addr{}}, false, false, 0
	n.commits = 0
	n.up, n.shaped, n.ports, n.held, n.overlay, n.routed = map[string]bool{}, map[string]rates{}, nil, "", nil, nil
	return errors.Join(errs...)
}

// unsupported recognises a lack of privileges or of the kernel.
func unsupported(err error) error {
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return &Unsupported{Reason: "own networks need privileges: " + err.Error(),
			Cure: "run the worker as root, with CAP_NET_ADMIN and CAP_SYS_ADMIN, or use the host's network"}
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT):
		return &Unsupported{Reason: "the kernel lacks a part: " + err.Error(),
			Cure: "it needs veth, bridge, nftables and NAT; use the host's network without them"}
	}
	return err
}
