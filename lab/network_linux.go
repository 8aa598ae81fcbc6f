package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/lab/wan"
)

// gateway is on the network's end of every cable: hosts have an address of their own and no subnet, so that all packets
// between them are routed and can be shaped. Behind a NAT it is that of the NAT.
var gateway = netip.MustParseAddr("169.254.1.1")

// upstream gives the namespace into which a host's cable leads, and the gateway there.
func (l *Lab) upstream(h *Host) (space string, gate netip.Addr) {
	if h.Behind != "" {
		return h.Behind, l.Topology.Host(h.Behind).inside()
	}
	return wanName, gateway
}

// cable is the other end of a host's cable.
func (l *Lab) cable(host string) string {
	return "h" + strconv.Itoa(slices.IndexFunc(l.Topology.Hosts, func(h Host) bool { return h.Name == host }))
}

func sysctl(name, value string) error {
	return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644)
}

// forwarding sets up the calling thread's network namespace as one that routes.
func forwarding() error {
	for name, value := range map[string]string{"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0"} {
		if err := sysctl(name, value); err != nil {
			return err
		}
	}
	return up("lo")
}

func up(device string) error {
	link, err := netlink.LinkByName(device)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", device, err)
	}
	return nil
}

// plug lays the cable between a host and the network, or its NAT.
func (l *Lab) plug(host *Host) error {
	addr := netip.MustParseAddr(host.Address)
	upstream, gate := l.upstream(host)
	ns, err := unix.Open(l.nsFile(host.Name, "net"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	err = thread.Do(func() error {
		if err := l.enter(upstream); err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = l.cable(host.Name)
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: hostDevice, PeerNamespace: netlink.NsFd(ns)}); err != nil {
			return fmt.Errorf("make cable: %w", err)
		}
		if err := up(attrs.Name); err != nil {
			return err
		}
		link, err := netlink.LinkByName(attrs.Name)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: single(gate)}); err != nil {
			return fmt.Errorf("address of %s: %w", attrs.Name, err)
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: single(addr), Scope: netlink.SCOPE_LINK})
	})
	if err != nil {
		return fmt.Errorf("cable of %s: %w", host.Name, err)
	}
	err = thread.Do(func() error {
		if err := l.enter(host.Name); err != nil {
			return err
		}
		if err := up(hostDevice); err != nil {
			return err
		}
		link, err := netlink.LinkByName(hostDevice)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: single(addr)}); err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: single(gate), Scope: netlink.SCOPE_LINK}); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gate.AsSlice(), Src: addr.AsSlice()})
	})
	if err != nil {
		return fmt.Errorf("cable of %s: %w", host.Name, err)
	}
	return nil
}

// unplug takes the cable of a host away.
func (l *Lab) unplug(host *Host) error {
	upstream, _ := l.upstream(host)
	err := thread.Do(func() error {
		if err := l.enter(upstream); err != nil {
			return err
		}
		link, err := netlink.LinkByName(l.cable(host.Name))
		var gone netlink.LinkNotFoundError
		if errors.As(err, &gone) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cable of %s: %w", host.Name, err)
	}
	return nil
}

func single(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}
}

// tool runs a program within a host's namespaces.
func (l *Lab) tool(host, stdin string, argv ...string) error {
	var out bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	err := thread.Do(func() error {
		if err := l.enter(host); err != nil {
			return err
		}
		return cmd.Run()
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}

// wanSpace makes the network between the hosts.
func (l *Lab) wanSpace() error {
	return l.makeSpaces(wanName, forwarding)
}

func (l *Lab) wanSocket() string { return l.path("wan.sock") }

// apply brings the network in line with what is wanted: rules, shapes, rates.
func (l *Lab) apply(ctx context.Context, w *ways) error {
	rules := w.rules(&l.Topology)
	if len(rules) > 0 || l.agent(wanName) != nil {
		if err := l.startWAN(ctx); err != nil {
			return err
		}
		if _, err := wan.Call(ctx, l.wanSocket(), wan.Request{Set: true, Shapes: rules}); err != nil {
			return fmt.Errorf("shape the network: %w", err)
		}
	}
	// The rules come last: packets are led to the queue only when it knows what to do with them.
	if err := l.tool(wanName, w.ruleset(&l.Topology), "nft", "-f", "-"); err != nil {
		return err
	}
	for _, h := range l.Topology.Hosts {
		if len(l.spaces(h.Name)) == 0 {
			continue // off
		}
		if err := l.cableQualities(w, &h); err != nil {
			return err
		}
	}
	return writeJSON(l.path("net.json"), w)
}

// cableQualities sets the rate of both ends, and whether large segments pass.
func (l *Lab) cableQualities(w *ways, h *Host) error {
	host := h.Name
	upstream, _ := l.upstream(h)
	rate, lossy := w.cable(host).Rate, w.lossy(&l.Topology, host)
	type quality struct {
		Rate  Rate
		Lossy bool
	}
	var have quality
	file := l.path("cables", host+".json")
	_ = readJSON(file, &have) // none yet: as the kernel makes it
	if have == (quality{rate, lossy}) {
		return nil
	}
	for _, end := range [][2]string{{upstream, l.cable(host)}, {host, hostDevice}} {
		if have.Rate != rate {
			argv := []string{"tc", "qdisc", "del", "dev", end[1], "root"}
			if rate > 0 {
				// A bucket of 10 ms, but never smaller than a few packets.
				burst := max(int64(rate)/8/100, 16<<10)
				argv = []string{"tc", "qdisc", "replace", "dev", end[1], "root", "tbf", "rate", fmt.Sprintf("%dbit", rate), "burst",
					fmt.Sprint(burst), "latency", "100ms"}
			}
			if err := l.tool(end[0], "", argv...); err != nil {
				return fmt.Errorf("rate of %s: %w", host, err)
			}
		}
		if have.Lossy != lossy {
			state := "on"
			if lossy {
				state = "off"
			}
			if err := l.tool(end[0], "", "ethtool", "-K", end[1], "tso", state, "gso", state, "gro", state); err != nil {
				return fmt.Errorf("segments of %s: %w", host, err)
			}
		}
	}
	return writeJSON(file, quality{rate, lossy})
}

// startWAN starts the process that delays and drops packets, if it does not run.
func (l *Lab) startWAN(ctx context.Context) error {
	if p := l.agent(wanName); p != nil && p.alive() {
		return nil
	}
	// -C asks whether the rule is there from an earlier start.
	rule := []string{"-t", "mangle", "FORWARD", "-m", "mark", "--mark", fmt.Sprintf("%#x", mark), "-j", "NFQUEUE", "--queue-num",
		fmt.Sprint(queueNum)}
	with := func(op string) []string {
		return append([]string{"iptables", rule[0], rule[1], op}, rule[2:]...)
	}
	if l.tool(wanName, "", with("-C")...) != nil {
		if err := l.tool(wanName, "", with("-A")...); err != nil {
			return fmt.Errorf("the kernel cannot queue packets, so links have no delay and no loss here (NFQUEUE is needed): %w", err)
		}
	}
	p, err := l.start(wanName, append(slices.Clone(l.Helper), "--socket", l.wanSocket(), "--queue", fmt.Sprint(queueNum)), l.logFile(wanName))
	if err != nil {
		return err
	}
	for {
		if _, err := wan.Call(ctx, l.wanSocket(), wan.Request{}); err == nil {
			return nil
		}
		if !p.alive() {
			return fmt.Errorf("the process that shapes the network ended:\n%s", tail(l.logFile(wanName)))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the process that shapes the network: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// WanMain is what the helper command runs, within the namespace between the hosts.
func WanMain(ctx context.Context, queue uint16, socket string) error {
	return wan.Run(ctx, queue, socket)
}
