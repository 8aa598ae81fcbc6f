//go:build linux

package bpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// Traffic goes on while the agent is away and while the next one takes over, with what the first one has left.
func TestTrafficOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprint("noTCX=", old), func(t *testing.T) {
			w := newWorld(t, plain4)
			if old {
				for _, h := range w.hosts {
					planetest.Must(t, h.dev.CleanUp())
					h.opts.noTCX = true
					h.Open()
					h.Set()
				}
			}
			planetest.TrafficOutlivesTheAgent(t, w.World)
			h := w.hosts[0]
			// What was configured before and is not now is gone.
			h.Conf.Services = nil
			h.Set()
			planetest.Must(t, h.dev.Close())
			h.Open()
			if h.held().services != 0 || h.held().instances != 4 {
				t.Errorf("%d services, %d addresses", h.held().services, h.held().instances)
			}
		})
	}
}

// An agent from before attached links of TCX at cables too. The next one puts its programs into those, attaches filters where there are
// none yet, and takes away either with its instance. An older agent that comes back finds its way as well.
func TestLinksAtCablesAreAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	planetest.Must(t, h.dev.CleanUp())
	h.opts.noFilters = true
	h.Open()
	all := h.Conf.Instances
	h.Conf.Instances = all[:1]
	h.Set()
	count := func(h *host) (links, filters int) {
		for k := range h.dev.links {
			if k.cable() {
				links++
			}
		}
		planetest.Must(t, kernel.In(h.NS, func() error {
			devices, err := netlink.LinkList()
			for _, l := range devices {
				for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
					list, _ := netlink.FilterList(l, parent)
					filters += len(list)
				}
			}
			return err
		}))
		return links, filters
	}
	hooks := func(when string, links, filters int) {
		t.Helper()
		if l, f := count(h); l != links || f != filters {
			t.Errorf("%s: %d links and %d filters at cables, and not %d and %d", when, l, f, links, filters)
		}
	}
	hooks("before", 2, 0)
	w.Inst("a2").Serve(80)
	h.Service(7, 1, w.Inst("a2"))
	stop, got, n := make(chan struct{}), make(chan error, 1), 0
	c, err := client.Dial("tcp", planetest.Svc(1, false), 80)
	planetest.Must(t, err)
	defer c.Close()
	_, err = planetest.AskOn(c)
	planetest.Must(t, err)
	go planetest.Stream(c, stop, got, &n)

	next := func(noFilters bool) {
		planetest.Must(t, h.dev.Close())
		h.opts.noFilters = noFilters
		h.Open()
		h.Set()
	}
	next(false)
	hooks("adopted", 2, 0)
	for k, l := range h.dev.links {
		info, err := l.Info()
		planetest.Must(t, err)
		ours, err := h.dev.coll.Programs[k.program].Info()
		planetest.Must(t, err)
		if id, _ := ours.ID(); info.Program != id {
			t.Errorf("%s runs program %d, and not %d", k.pin(), info.Program, id)
		}
	}
	h.Conf.Instances = all
	h.Set()
	hooks("with another instance", 2, 2)
	if got, err := w.Inst("b1").Ask("tcp", planetest.Svc(1, false), 80); err != nil || got != "a2" {
		t.Errorf("through a filter: %s, %v", got, err)
	}
	next(true)
	hooks("with an older agent again", 4, 2)
	next(false)
	hooks("and with the next", 4, 0)
	close(stop)
	planetest.Must(t, <-got)
	h.Conf.Instances = all[1:]
	h.Set()
	hooks("with one instance less", 2, 0)
	planetest.Must(t, h.dev.CleanUp())
	h.Open()
	h.Set()
	hooks("with filters alone", 0, 2)
	h.Conf.Instances = nil
	h.Set()
	hooks("with no instance", 0, 0)
}

// Filters that somebody else removes come back, unlike those of an instance that is gone.
func TestRemovedFiltersComeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	w.Inst("a2").Serve(80)
	h.Service(7, 1, w.Inst("a2"))
	for _, what := range []string{"qdisc del dev %s clsact", "filter del dev %s ingress", "filter del dev %s egress"} {
		kerneltest.Run(t, h.NS, "tc "+fmt.Sprintf(what, client.Device))
		planetest.Eventually(t, "both filters are back", func() bool { return len(h.cableFilters(client.Device)) == 2 })
		if got, err := client.Ask("tcp", planetest.Svc(1, false), 80); err != nil || got != "a2" {
			t.Errorf("after tc %s: %s, %v", what, got, err)
		}
	}
	h.Conf.Instances = h.Conf.Instances[1:]
	h.Set()
	if n := len(h.cableFilters(client.Device)); n != 0 {
		t.Errorf("%d filters of an instance that is gone", n)
	}
}

// An instance that goes leaves no hook, no address and no flow behind, also if its device went first.
func TestInstanceGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h := w.hosts[0]
	hooks := h.held().hooks
	planetest.InstanceGoes(t, w.World)
	if s, err := h.dev.Stats(); err != nil || s.Flows != 0 || h.held().hooks != hooks-2 {
		t.Errorf("%d flows, %d hooks of %d, %v", s.Flows, h.held().hooks, hooks, err)
	}
	entries, err := os.ReadDir(h.dev.opts.linkDir())
	if err != nil || len(entries) != len(h.dev.links) {
		t.Errorf("%d pins of %d links, %v", len(entries), len(h.dev.links), err)
	}
}

// The data plane follows the host: a peer is reached by another way when routes change, without being told.
func TestPathsFollowRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	one, two := w.hosts[0], w.hosts[1]
	// A second wire, with a detour over another address of the peer.
	planetest.Must(t, kernel.In(one.NS, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "spare", MTU: 1500, TxQLen: -1}, PeerName: "spare",
			PeerNamespace: netlink.NsFd(int(two.NS.Fd()))})
	}))
	for _, h := range w.hosts {
		kerneltest.Run(t, h.NS, fmt.Sprintf("ip addr add 10.101.0.%d/24 dev spare\nip link set spare up", h.N))
	}
	if err := w.Inst("a1").Ping(w.Inst("a2").A4, 8); err != nil {
		t.Fatal(err)
	}
	kerneltest.Run(t, one.NS, "ip route add 10.100.0.2/32 via 10.101.0.2")
	planetest.Eventually(t, "the route is followed", func() bool {
		var p peerValue
		id := uint32(2)
		planetest.Must(t, one.dev.tables.peers.m.Lookup(&id, &p))
		return from16(p.Hop) == netip.MustParseAddr("10.101.0.2")
	})
}

// Flows that are over go by themselves, and those that are not stay.
func TestSweeping(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	planetest.Must(t, h.dev.CleanUp())
	h.opts.Timeouts = Timeouts{Closing: 200 * time.Millisecond, UDP: 200 * time.Millisecond, ICMP: 200 * time.Millisecond, Sweep: 20 * time.Millisecond}
	h.Open()
	w.Inst("a2").Serve(80)
	h.Service(7, 1, w.Inst("a2"))
	keep, err := client.Dial("tcp", planetest.Svc(1, false), 80)
	planetest.Must(t, err)
	defer keep.Close()
	_, err = planetest.AskOn(keep)
	planetest.Must(t, err)
	for range 20 {
		for _, network := range []string{"tcp", "udp"} {
			_, err := client.Ask(network, planetest.Svc(1, false), 80)
			planetest.Must(t, err)
		}
	}
	// Those of which nobody answers are over as well.
	for k := range uint16(20) {
		client.Send(planetest.TCP(client.A4, planetest.Svc(1, false), 100+k, 9999, 2, 0))
		client.Send(planetest.UDP(client.A4, planetest.Svc(1, false), 100+k, 9999, nil))
	}
	planetest.Must(t, client.Ping(planetest.Svc(1, true), 8))
	planetest.Eventually(t, "one flow is left", func() bool {
		s, err := h.dev.Stats()
		planetest.Must(t, err)
		return s.Flows == 1
	})
	planetest.Must(t, planetest.Echo(keep, "still here"))
	var k flowKey
	var v flowValue
	n := 0
	for _, m := range []string{"tcp", "other"} {
		for it := h.dev.coll.Maps[m].Iterate(); it.Next(&k, &v); n++ {
		}
	}
	if n != 2 {
		t.Errorf("%d entries are left", n)
	}
}

// A full table is swept at once, so that new flows are not refused for those that are over.
func TestFullTableIsSwept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	planetest.Must(t, h.dev.CleanUp())
	h.opts.Timeouts = Timeouts{Closing: time.Millisecond, Sweep: time.Hour}
	h.Open()
	h.Service(7, 1, w.Inst("a2"))
	k := uint16(0)
	try := func() uint32 {
		k++
		return h.try("from_instance", client.Device, h.Frame(planetest.TCP(client.A4, planetest.Svc(1, false), 1000+k, 81, 2, 0)))
	}
	for try() != verdictDrop {
	}
	planetest.Eventually(t, "there is room again", func() bool { return try() == verdictRedirect })
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Worker: "w", BPFFS: "relative"}, {Worker: "w", Flows: -1}, {Worker: "w", Timeouts: Timeouts{UDP: time.Microsecond}}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	a := netip.MustParseAddr
	for name, c := range map[string]overlay.Config{
		"families":  {Services: []overlay.Service{{Addr: a("10.30.0.1"), Slots: []overlay.Backend{{Addr: a("fd00::1")}}}}},
		"slots":     {Services: []overlay.Service{{Addr: a("10.30.0.1"), Slots: make([]overlay.Backend, overlay.MaxSlots+1)}}},
		"peer":      {Peers: []overlay.Peer{{}}},
		"two peers": {Peers: []overlay.Peer{{ID: 1}, {ID: 1}}},
		"address":   {Instances: []overlay.Instance{{ID: "x", Device: "y", Addrs: []netip.Addr{a("10.40.0.1")}}, {ID: "z", Device: "z", Addrs: []netip.Addr{a("10.40.0.1")}}}},
		"plain":     {Local: overlay.Local{Plain: netip.MustParseAddrPort("0.0.0.0:1")}},
		"mtu":       {Local: overlay.Local{MTU: 100}},
	} {
		if check(c) == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	if err := check(overlay.Config{}); err != nil {
		t.Error(err)
	}
}

// What an agent with another layout of the tables left is taken down once this one's programs are in its place.
func TestOlderLayoutGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	old := h.dev
	program, err := old.coll.Programs["from_vxlan"].Clone()
	planetest.Must(t, err)
	defer program.Close()
	tcp, err := old.coll.Maps["tcp"].Clone()
	planetest.Must(t, err)
	defer tcp.Close()
	planetest.Must(t, old.Close()) // one that runs follows changes of devices, and would take this down at once
	dir := filepath.Join(old.opts.dir(), "v0", "links")
	planetest.Must(t, os.MkdirAll(dir, 0o700))
	planetest.Must(t, tcp.Pin(filepath.Join(old.opts.dir(), "v0", "tcp")))
	planetest.Must(t, kernel.In(h.NS, func() error {
		dev, err := net.InterfaceByName(client.Device)
		if err != nil {
			return err
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: dev.Index, Program: program, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
		if err != nil {
			return err
		}
		defer l.Close()
		return l.Pin(filepath.Join(dir, "old"))
	}))
	if client.Reaches(w.Inst("b1").A4) {
		t.Fatal("the old program is not there")
	}
	h.Open()
	h.Set()
	planetest.Eventually(t, "the old program is gone", func() bool { return client.Reaches(w.Inst("b1").A4) })
	if list, err := os.ReadDir(h.dev.opts.dir()); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// attached counts programs by the device of a host and the direction.
func (w *world) attached(h *host) map[string]int {
	count := map[string]int{}
	planetest.Must(w.T, kernel.In(h.NS, func() error {
		devices, err := netlink.LinkList()
		for _, l := range devices {
			for kind, queue := range map[ebpf.AttachType]uint32{ebpf.AttachTCXIngress: netlink.HANDLE_MIN_INGRESS,
				ebpf.AttachTCXEgress: netlink.HANDLE_MIN_EGRESS} {
				name := fmt.Sprint(l.Attrs().Name, " ", kind)
				if list, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: kind}); err == nil { // else there is no TCX
					count[name] = len(list.Programs)
				}
				filters, _ := netlink.FilterList(l, queue) // there may be no queue
				for _, f := range filters {
					if _, ok := f.(*netlink.BpfFilter); ok {
						count[name]++
					}
				}
			}
		}
		return err
	}))
	return count
}

// An agent on trial with another layout leaves traffic to the programs that are there, and the one before finds all as it left it.
func TestTrialKeepsTheOlderLayout(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprint("noTCX=", old), func(t *testing.T) {
			w := newWorld(t, plain4)
			h, client := w.hosts[0], w.Inst("a1")
			if old {
				planetest.Must(t, h.dev.CleanUp())
				h.opts.noTCX = true
				h.Open()
				h.Set()
			}
			w.Inst("b1").Serve(80)
			h.Service(7, 1, w.Inst("b1"))
			stop, got, n := make(chan struct{}), make(chan error, 1), 0
			c, err := client.Dial("tcp", planetest.Svc(1, false), 80)
			planetest.Must(t, err)
			defer c.Close()
			_, err = planetest.AskOn(c)
			planetest.Must(t, err)
			go planetest.Stream(c, stop, got, &n)

			now := h.opts
			planetest.Must(t, h.dev.Close())
			h.opts.KeepOlder, h.opts.layout = true, layout+1
			h.Open()
			h.Set()
			if got, err := client.Ask("tcp", planetest.Svc(1, false), 80); err != nil || got != "b1" {
				t.Errorf("during the trial: %s, %v", got, err)
			}
			planetest.Must(t, h.dev.Close())
			h.opts = now
			h.Open()
			h.Set()
			if got, err := client.Ask("tcp", planetest.Svc(1, false), 80); err != nil || got != "b1" {
				t.Errorf("after the trial: %s, %v", got, err)
			}
			close(stop)
			planetest.Must(t, <-got)
			if list, err := os.ReadDir(h.dev.opts.dir()); err != nil || len(list) != 1 {
				t.Errorf("%v, %v", list, err)
			}
			// One that has passed takes over.
			planetest.Must(t, h.dev.Close())
			h.opts.layout = layout + 1
			h.Open()
			h.Set()
			for name, n := range w.attached(h) {
				if n > 1 {
					t.Errorf("with the other layout, %d programs are at %s: a connection that begins by both breaks off with the older one", n, name)
				}
			}
			if got, err := client.Ask("tcp", planetest.Svc(1, false), 80); err != nil || got != "b1" {
				t.Errorf("with the other layout: %s, %v", got, err)
			}
			if list, err := os.ReadDir(h.dev.opts.dir()); err != nil || len(list) != 1 || list[0].Name() != filepath.Base(h.dev.opts.layoutDir()) {
				t.Errorf("%v, %v", list, err)
			}
		})
	}
}

// Two namespaces have each a worker of one name: each has its own tables, and what one leaves is not the other's.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tunnel)
	h := w.hosts[0]
	dir := h.dev.opts.dir()
	elsewhere := func() (*os.File, *Device) {
		ns := kerneltest.NewNS(t)
		o := h.opts
		o.NetNS = fmt.Sprintf("/proc/self/fd/%d", ns.Fd())
		d, err := New(o)
		planetest.Must(t, err)
		return ns, d
	}
	_, other := elsewhere()
	if other.opts.dir() == dir {
		t.Fatalf("both pin in %s", dir)
	}
	local := overlay.Local{ID: 9, Blocks: h.Conf.Local.Blocks, Instances: planetest.Instances, Services: planetest.Services, MTU: 1404}
	planetest.Must(t, other.Set(t.Context(), overlay.Config{Local: local}))
	if n := h.held().instances; n != 4 {
		t.Errorf("%d addresses of instances", n)
	}
	h.Set()
	if err := w.Inst("a1").Ping(w.Inst("b1").A4, 8); err != nil {
		t.Error(err)
	}
	planetest.Must(t, other.CleanUp())
	if err := w.Inst("a1").Ping(w.Inst("b1").A4, 8); err != nil {
		t.Error(err)
	}

	// An agent from before pinned them without the namespace. They are this one's, not those of a worker elsewhere.
	old := filepath.Join(h.opts.BPFFS, "skerry", h.opts.pins())
	planetest.Must(t, h.dev.Close())
	planetest.Must(t, os.Rename(dir, old))
	ns, other := elsewhere()
	if _, err := os.Stat(old); err != nil {
		t.Errorf("taken by another namespace: %v", err)
	}
	h.Open()
	if _, err := os.Stat(old); err == nil || h.dev.opts.dir() != dir || h.held().instances != 4 || h.held().hooks == 0 {
		t.Errorf("in %s: %d addresses, %d programs, and what was before: %v", h.dev.opts.dir(), h.held().instances, h.held().hooks, err)
	}
	h.Set()

	// A namespace that ends without a word leaves nothing for ever.
	left := other.opts.dir()
	planetest.Must(t, other.Set(t.Context(), overlay.Config{Local: h.Conf.Local}))
	planetest.Must(t, other.Close())
	planetest.Must(t, ns.Close())
	planetest.Eventually(t, "the pins of a namespace that is gone are, too", func() bool {
		h.dev.buryDead()
		_, err := os.Stat(left)
		return err != nil
	})
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// What an older kernel says is told as something that this machine lacks, so that the worker goes another way.
func TestOldKernel(t *testing.T) {
	for _, err := range []error{unix.ENOSYS, unix.EOPNOTSUPP, unix.ENOPROTOOPT, unix.EPERM} {
		if _, ok := errors.AsType[*Unsupported](unsupported(fmt.Errorf("number of the network namespace: %w", err))); !ok {
			t.Errorf("%v is taken for a fault", err)
		}
	}
	if err := unsupported(unix.ENOMEM); !errors.Is(err, unix.ENOMEM) {
		t.Error(err)
	}
}
