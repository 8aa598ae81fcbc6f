package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/bpf"
	"skerry.dev/skerry/overlay/nft"
	"skerry.dev/skerry/overlay/relay"
	"skerry.dev/skerry/overlay/tunnel"
	"skerry.dev/skerry/overlay/wireguard"
	"skerry.dev/skerry/wire"
)

// Addresses within a rig.
const (
	relayAddr  = "10.100.0.9"
	relayPort  = 7445
	sealedPort = 4500
	plainPort  = 4501
)

// serviceAddr leads to the instances of the second host.
func serviceAddr() netip.Addr { return netip.AddrFrom4([4]byte{10, 30, 0, 2}) }

const overlayNet wire.NetworkID = 7

// lane is one case, built up.
type lane struct {
	*rig
	name           string
	client, server *namespace
	to             netip.Addr // what the client sends to
	pids           []int      // helpers, whose processor time counts
	servers        []*probeServer
	sealed         [2]*tunnel.Client
	links          [2]*wireguard.Link // of the kernel case, with keys
	keys           [2][32]byte
	device         dataPlane      // of the first host; nil: not ours
	config         overlay.Config // of device
	// spread makes the service address lead to the first n instances; nil: there is no service address.
	spread func(n int) error
	flows  *bpf.Options // nil: as installed
}

// dataPlane is a worker's, of either kind.
type dataPlane interface {
	overlay.Device
	TunnelTap() string
}

// plane opens the data plane of a host.
func (l *lane) plane(worker, netns, fs string) (dataPlane, error) {
	if l.name == caseFallback {
		d, err := nft.New(nft.Options{Worker: worker, NetNS: netns})
		if u, ok := errors.AsType[*nft.Unsupported](err); ok {
			return nil, &skipped{u.Error()}
		}
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	var opts bpf.Options
	if l.flows != nil {
		opts = *l.flows
	}
	opts.Worker, opts.NetNS, opts.BPFFS = worker, netns, fs
	d, err := bpf.New(opts)
	if u, ok := errors.AsType[*bpf.Unsupported](err); ok {
		return nil, &skipped{u.Error()}
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// newLane builds a case. What this machine cannot do is a *skipped.
func newLane(ctx context.Context, program, name string, kind wireKind, replicas int) (_ *lane, err error) {
	kind.relay = name == caseRelayed
	l := &lane{rig: &rig{ctx: ctx, program: program, replicas: replicas}, name: name}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", name, err), l.close())
		}
	}()
	if err := l.join(kind); err != nil {
		return nil, err
	}
	switch name {
	case caseDirect:
		l.client, l.server, l.to = l.hosts[0].ns, l.hosts[1].ns, l.hosts[1].addr
		return l, nil
	case caseRouted:
		err = errors.Join(l.instances(1500), l.routes())
	case caseNFT:
		err = errors.Join(l.instances(1500), l.routes(), l.translate("oifname wire masquerade"))
	case caseVXLAN:
		err = errors.Join(l.instances(1450), l.vxlan(), l.translate(""))
	case caseWireguard:
		err = errors.Join(l.instances(1420), l.wireguard())
	case caseKernel, caseSealed, casePlain, caseRelayed, caseFallback:
		err = l.instances(1500 - l.cover())
		if err == nil {
			err = l.skerry()
		}
	default:
		return nil, fmt.Errorf("there is no such case")
	}
	if err != nil {
		return nil, err
	}
	l.client, l.server = l.hosts[0].insts[0], l.hosts[1].insts[0]
	l.to = l.hosts[1].inst(0)
	if l.spread != nil {
		l.to = serviceAddr()
		return l, l.spread(max(replicas, 1))
	}
	return l, nil
}

// skipped says that this machine lacks something.
type skipped struct{ reason string }

func (s *skipped) Error() string { return s.reason }

// routes leads to the other host's instances.
func (l *lane) routes() error {
	for i, h := range l.hosts {
		o := l.hosts[1-i]
		gate := o.addr
		if l.mid != nil {
			gate = netip.AddrFrom4([4]byte{10, 100, byte(h.n), 1})
		}
		if err := h.ns.sh("ip route add %s via %s", o.block(), gate); err != nil {
			return err
		}
	}
	return nil
}

// translate gives the service address by nftables, on the client's host, as others do it.
func (l *lane) translate(post string) error {
	if _, err := exec.LookPath("nft"); err != nil {
		return &skipped{"nft is not installed (package nftables)"}
	}
	l.spread = func(n int) error {
		to := l.hosts[1].inst(0).String()
		if n > 1 {
			var list []string
			for k := range n {
				list = append(list, fmt.Sprintf("%d : %s", k, l.hosts[1].inst(k)))
			}
			to = fmt.Sprintf("numgen inc mod %d map { %s }", n, strings.Join(list, ", "))
		}
		return l.hosts[0].ns.sh(`nft -f - <<X
table ip bench
delete table ip bench
table ip bench {
	chain pre { type nat hook prerouting priority dstnat; ip daddr %s dnat to %s
	}
	chain post { type nat hook postrouting priority srcnat; %s
	}
}
X`, serviceAddr(), to, post)
	}
	return nil
}

// vxlan joins the hosts by devices of the kernel that know each other.
func (l *lane) vxlan() error {
	for i, h := range l.hosts {
		o := l.hosts[1-i]
		if err := h.ns.sh(`ip link add vx0 type vxlan id 42 dstport 4789 local %s dev wire nolearning`, h.addr); err != nil {
			return &skipped{"the kernel has no VXLAN: " + err.Error()}
		}
		if err := h.ns.sh(`ip link set vx0 address 02:00:00:00:01:0%[1]d mtu 1450 up
			ip addr add 10.41.0.%[1]d/24 dev vx0
			ip neigh add 10.41.0.%[2]d lladdr 02:00:00:00:01:0%[2]d dev vx0
			bridge fdb append 02:00:00:00:01:0%[2]d dev vx0 dst %[3]s
			ip route add %[4]s via 10.41.0.%[2]d dev vx0`, h.n, o.n, o.addr, o.block()); err != nil {
			return err
		}
	}
	return nil
}

// newSecret makes a key for this run.
func newSecret() (s tunnel.Secret, pub wire.OverlayKey, err error) {
	_, _ = rand.Read(s[:])
	pub, err = s.Public()
	return s, pub, err
}

// wireguard joins the hosts by wireguard-go, each in a process of its own.
func (l *lane) wireguard() error {
	var keys [2]tunnel.Secret
	var pubs [2]wire.OverlayKey
	for i := range keys {
		var err error
		if keys[i], pubs[i], err = newSecret(); err != nil {
			return err
		}
	}
	for i, h := range l.hosts {
		o := l.hosts[1-i]
		conf := fmt.Sprintf("private_key=%s\nlisten_port=51820\npublic_key=%s\nendpoint=%s\nallowed_ip=0.0.0.0/0\n",
			hex.EncodeToString(keys[i][:]), hex.EncodeToString(pubs[1-i][:]), netip.AddrPortFrom(o.addr, 51820))
		cmd, err := l.child(h.ns, "up\n", conf, l.program, "bench", "wireguard", "wg0", "1420")
		if err != nil {
			return err
		}
		l.pids = append(l.pids, cmd.Process.Pid)
		if err := h.ns.sh("ip link set wg0 up mtu 1420; ip route add %s dev wg0", o.block()); err != nil {
			return err
		}
	}
	return nil
}

// skerry makes both hosts workers: the programs of the kernel and, if it is sealed, a datapath each.
func (l *lane) skerry() error {
	dir, err := os.MkdirTemp("", "sb-")
	if err != nil {
		return err
	}
	l.later(func() error { return os.RemoveAll(dir) })
	fs := filepath.Join(dir, "bpf")
	l.later(func() error {
		if err := unix.Unmount(fs, 0); err != nil && err != unix.EINVAL && err != unix.ENOENT {
			return fmt.Errorf("unmount %s: %w", fs, err)
		}
		return nil
	})
	var confs [2]overlay.Config
	var devices [2]dataPlane
	for i, host := range l.hosts {
		o := l.hosts[1-i]
		if devices[i], err = l.plane(fmt.Sprintf("%s-%d", filepath.Base(dir), host.n), fmt.Sprintf("/proc/self/fd/%d", host.ns.file.Fd()),
			fs); err != nil {
			return err
		}
		l.later(devices[i].CleanUp)
		c := &confs[i]
		c.Local = overlay.Local{ID: wire.PeerID(host.n), Blocks: []netip.Prefix{host.block()},
			Instances: []netip.Prefix{netip.MustParsePrefix("10.40.0.0/16")},
			Services:  []netip.Prefix{netip.MustParsePrefix("10.30.0.0/16")}, MTU: 1500 - l.cover()}
		p := overlay.Peer{ID: wire.PeerID(o.n), Name: fmt.Sprint("w", o.n), Prefixes: []netip.Prefix{o.block()}}
		if l.name == casePlain {
			c.Local.Plain = netip.AddrPortFrom(host.addr, plainPort)
			p.Plain = &overlay.PlainPath{Endpoint: netip.AddrPortFrom(o.addr, plainPort), TagOut: uint64(1000 + host.n),
				TagsIn: []uint64{uint64(1000 + o.n)}}
		}
		if l.name == caseKernel {
			if err := l.kernel(i, c, &p); err != nil {
				return err
			}
		}
		c.Peers = []overlay.Peer{p}
		for k := range host.insts {
			c.Instances = append(c.Instances, overlay.Instance{ID: fmt.Sprint(host.n, ".", k), Net: overlayNet, Device: instDevice(k),
				Addrs: []netip.Addr{host.inst(k)}})
		}
		if err := devices[i].Set(l.ctx, *c); err != nil {
			_, bpf := errors.AsType[*bpf.Unsupported](err)
			if _, nft := errors.AsType[*nft.Unsupported](err); bpf || nft {
				return &skipped{err.Error()}
			}
			return err
		}
	}
	switch l.name {
	case casePlain:
	case caseKernel:
		err = l.meet()
	default:
		err = l.datapaths(dir, devices)
	}
	if err != nil {
		return err
	}
	l.device, l.config = devices[0], confs[0]
	l.spread = func(n int) error {
		s := overlay.Service{Net: overlayNet, Addr: serviceAddr()}
		for k := range n {
			s.Slots = append(s.Slots, overlay.Backend{Net: overlayNet, Addr: l.hosts[1].inst(k)})
		}
		l.config.Services = []overlay.Service{s}
		return l.device.Set(l.ctx, l.config)
	}
	return nil
}

// datapaths starts a datapath on both hosts, as their agents would, and waits until they reach each other.
func (l *lane) datapaths(dir string, devices [2]dataPlane) error {
	var confs [2]tunnel.Config
	var pubs [2]wire.OverlayKey
	for i, host := range l.hosts {
		c := &confs[i]
		*c = tunnel.Config{ID: wire.PeerID(host.n), Port: sealedPort, Tap: devices[i].TunnelTap(),
			Hidden: []netip.Prefix{netip.MustParsePrefix("10.40.0.0/16")}}
		var err error
		if c.PrivateKey, pubs[i], err = newSecret(); err != nil {
			return err
		}
		at := filepath.Join(dir, fmt.Sprint(host.n))
		if err := os.Mkdir(at, 0o700); err != nil {
			return err
		}
		err = host.ns.do(func() (err error) {
			l.sealed[i], err = tunnel.Start(l.ctx, tunnel.StartOptions{Dir: at, Command: []string{l.program, node.DatapathCommand}, Tied: true})
			return err
		})
		if err != nil {
			return err
		}
		t := l.sealed[i]
		l.pids = append(l.pids, t.Hello().PID)
		l.later(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return t.Stop(ctx)
		})
	}
	var by []tunnel.PeerRelay
	if l.name == caseRelayed {
		if err := l.relay(&confs); err != nil {
			return err
		}
		by = []tunnel.PeerRelay{{Relay: "r"}}
	}
	for i := range l.hosts {
		o := l.hosts[1-i]
		confs[i].Peers = []tunnel.Peer{{ID: wire.PeerID(o.n), Name: fmt.Sprint("w", o.n), Key: pubs[1-i],
			Endpoints: []netip.AddrPort{netip.AddrPortFrom(o.addr, sealedPort)}, Relays: by, Prefixes: []netip.Prefix{o.block()}, Keep: true}}
		if err := l.sealed[i].Set(l.ctx, confs[i]); err != nil {
			return err
		}
	}
	want := map[bool]overlay.PathKind{true: overlay.PathRelay, false: overlay.PathDirect}[l.name == caseRelayed]
	return within(l.ctx, 20*time.Second, "the datapaths reach each other", func() (bool, error) {
		for _, t := range l.sealed {
			st, err := t.Status(l.ctx)
			if err != nil || len(st.Peers) != 1 || st.Peers[0].Path != want {
				return false, err
			}
		}
		return true, nil
	})
}

// relay starts a relay between the hosts.
func (l *lane) relay(confs *[2]tunnel.Config) error {
	var server *relay.Server
	err := l.mid.do(func() (err error) {
		server, err = relay.New(relay.Options{Name: "r", UDP: netip.AddrPortFrom(netip.MustParseAddr(relayAddr), relayPort), Rate: 1 << 40})
		return err
	})
	if err != nil {
		return err
	}
	l.later(server.Close)
	var c wire.RelayConfig
	for i := range confs {
		key, _, err := newSecret()
		if err != nil {
			return err
		}
		confs[i].Relays = []tunnel.Relay{{Name: "r", UDP: server.UDP(), Key: key}}
		c.Workers = append(c.Workers, wire.RelayWorker{ID: confs[i].ID, Keys: [][32]byte{key}})
	}
	return server.Set(c)
}

// within asks again until something holds.
func within(ctx context.Context, d time.Duration, what string, f func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		ok, err := f()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s: %w", what, errors.Join(ctx.Err(), err))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
