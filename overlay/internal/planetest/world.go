//go:build linux

// Package planetest makes two hosts on one wire, each with the data plane of a worker, and has the tests that every data plane passes.
// Only tests import it.
package planetest

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
	"skerry.dev/skerry/wire"
)

// Must ends the test for an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Host is one machine, with the data plane of a worker.
type Host struct {
	T      testing.TB
	N      int // 1 or 2
	NS     *os.File
	Wire   netip.Addr
	Worker string
	Prefix string // of the names of its devices
	Conf   overlay.Config
	Insts  []*Inst
	Dev    overlay.Device
	New    func() overlay.Device // makes Dev
}

// Inst is an instance.
type Inst struct {
	Host   *Host
	Name   string
	NS     *os.File
	Device string
	A4, A6 netip.Addr
}

// World is two machines on one wire.
type World struct {
	T     testing.TB
	Hosts [2]*Host
	Taps  [2]*os.File // see Bridge
}

// Instances and Services are the prefixes of all addresses of instances and of services.
var (
	Instances = []netip.Prefix{netip.MustParsePrefix("10.40.0.0/16"), netip.MustParsePrefix("fd00:40::/32")}
	Services  = []netip.Prefix{netip.MustParsePrefix("10.30.0.0/16"), netip.MustParsePrefix("fd30:5ce7::/96")}
)

// Blocks are the prefixes of the host's own instances.
func (h *Host) Blocks() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.40.%d.0/26", h.N)), netip.MustParsePrefix(fmt.Sprintf("fd00:40:%d::/64", h.N))}
}

// NewWorld makes the machines with two instances each, of the same network. Instances are a1, b1 on the first host, and a2, b2 on the
// second. Each host knows the other as a peer by the tunnel. The caller sets New of both, and changes what it needs, before Begin.
func NewWorld(t testing.TB) *World {
	t.Helper()
	world := &World{T: t}
	for i := range world.Hosts {
		n := i + 1
		worker := fmt.Sprintf("w%d-%d", n, os.Getpid())
		world.Hosts[i] = &Host{T: t, N: n, NS: kerneltest.NewNS(t), Worker: worker, Prefix: kernel.DevicePrefix(worker)}
	}
	one, two := world.Hosts[0], world.Hosts[1]
	Must(t, kernel.In(one.NS, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wire", MTU: 1500, TxQLen: -1}, PeerName: "wire",
			PeerNamespace: netlink.NsFd(int(two.NS.Fd()))})
	}))
	for i, host := range world.Hosts {
		kerneltest.Run(t, host.NS, fmt.Sprintf(`
			ip addr add 10.100.0.%[1]d/24 dev wire
			ip addr add fd00:100::%[1]d/64 dev wire nodad
			ip link set wire up
			ip link add lan0 type bridge
			ip link set lan0 address 02:00:00:00:00:0%[1]d up
			ip addr add 10.40.%[1]d.1/26 dev lan0
			ip addr add fd00:40:%[1]d::1/64 dev lan0 nodad
			sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`, host.N))
		host.Wire = netip.MustParseAddr(fmt.Sprintf("10.100.0.%d", host.N))
		host.Conf.Local = overlay.Local{ID: wire.PeerID(host.N), Blocks: host.Blocks(), Instances: Instances, Services: Services, MTU: 1404}
		o := world.Hosts[1-i]
		host.Conf.Peers = []overlay.Peer{{ID: wire.PeerID(o.N), Name: o.Worker, Prefixes: o.Blocks()}}
		host.Add(fmt.Sprint("a", host.N), 7)
		host.Add(fmt.Sprint("b", host.N), 7)
	}
	return world
}

// Begin opens the data planes of both hosts and sets them, until the test ends.
func (w *World) Begin() {
	w.T.Helper()
	w.T.Cleanup(func() {
		for _, host := range w.Hosts {
			if host.Dev == nil {
				continue
			}
			if err := host.Dev.CleanUp(); err != nil {
				w.T.Error(err)
			}
			links, err := netlinkLinks(host.NS)
			if err != nil {
				w.T.Error(err)
			}
			for _, l := range links {
				if rest, ok := strings.CutPrefix(l, host.Prefix+"."); ok && len(rest) == 1 && strings.Contains("tmv", rest) {
					w.T.Errorf("device %s is left", l)
				}
			}
		}
	})
	for _, host := range w.Hosts {
		host.Open()
		host.Set()
	}
}

func netlinkLinks(ns *os.File) (out []string, err error) {
	err = kernel.In(ns, func() error {
		list, err := netlink.LinkList()
		for _, l := range list {
			out = append(out, l.Attrs().Name)
		}
		return err
	})
	return out, err
}

// Add makes an instance on the host. It is in the data plane with the next Set.
func (h *Host) Add(name string, network wire.NetworkID) *Inst {
	h.T.Helper()
	number := len(h.Insts) + 2
	inst := &Inst{Host: h, Name: name, NS: kerneltest.NewNS(h.T), Device: fmt.Sprintf("%s.%d", h.Prefix, number)}
	inst.A4 = netip.MustParseAddr(fmt.Sprintf("10.40.%d.%d", h.N, number))
	inst.A6 = netip.MustParseAddr(fmt.Sprintf("fd00:40:%d::%d", h.N, number))
	Must(h.T, kernel.In(h.NS, func() error {
		br, err := netlink.LinkByName("lan0")
		if err != nil {
			return err
		}
		outside := netlink.LinkAttrs{Name: inst.Device, MTU: 1500, TxQLen: -1, MasterIndex: br.Attrs().Index, Flags: net.FlagUp}
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: outside, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(inst.NS.Fd())), PeerMTU: 1404})
	}))
	kerneltest.Run(h.T, inst.NS, fmt.Sprintf(`
		ip addr add %s/32 dev eth0
		ip addr add %s/128 dev eth0 nodad
		ip link set eth0 up
		ip route add default via 10.40.%[3]d.1 dev eth0 onlink
		ip -6 route add default via fd00:40:%[3]d::1 dev eth0 onlink`, inst.A4, inst.A6, h.N))
	Must(h.T, kernel.In(inst.NS, func() error { return kernel.SysctlIfAny("ipv4/ping_group_range", "0\t2147483647") }))
	h.Insts = append(h.Insts, inst)
	h.Conf.Instances = append(h.Conf.Instances,
		overlay.Instance{ID: name, Net: network, Device: inst.Device, Addrs: []netip.Addr{inst.A4, inst.A6}})
	return inst
}

// Open makes the data plane.
func (h *Host) Open() { h.Dev = h.New() }

// Set gives the data plane the host's configuration.
func (h *Host) Set() {
	h.T.Helper()
	Must(h.T, h.Dev.Set(h.T.Context(), h.Conf))
}

// Service gives a service address of both families on a host's data plane.
func (h *Host) Service(network wire.NetworkID, last byte, to ...*Inst) {
	for _, six := range []bool{false, true} {
		s := overlay.Service{Net: network, Addr: Svc(last, six)}
		for _, i := range to {
			s.Slots = append(s.Slots, overlay.Backend{Net: network, Addr: i.Addr(six)})
		}
		h.Conf.Services = slices.DeleteFunc(h.Conf.Services, func(o overlay.Service) bool { return o.Net == s.Net && o.Addr == s.Addr })
		h.Conf.Services = append(h.Conf.Services, s)
	}
	h.Set()
}

// Svc is a service address.
func Svc(last byte, six bool) netip.Addr {
	if six {
		return netip.MustParseAddr(fmt.Sprintf("fd30:5ce7::10.30.0.%d", last))
	}
	return netip.AddrFrom4([4]byte{10, 30, 0, last})
}

// Addr is the instance's address of a family.
func (i *Inst) Addr(six bool) netip.Addr {
	if six {
		return i.A6
	}
	return i.A4
}

// Inst finds an instance by its name.
func (w *World) Inst(name string) *Inst {
	for _, h := range w.Hosts {
		for _, i := range h.Insts {
			if i.Name == name {
				return i
			}
		}
	}
	w.T.Fatal("no instance ", name)
	return nil
}

// Count is a counter of the host's data plane.
func (h *Host) Count(name string) int64 {
	h.T.Helper()
	s, err := h.Dev.Stats()
	Must(h.T, err)
	n, ok := s.Counters[name]
	if !ok {
		h.T.Fatal("no counter ", name)
	}
	return n
}

// dropped gives what the data plane has dropped so far, by reason.
func (h *Host) dropped() map[string]int64 {
	h.T.Helper()
	s, err := h.Dev.Stats()
	Must(h.T, err)
	maps.DeleteFunc(s.Counters, func(name string, n int64) bool { return n == 0 || !strings.HasPrefix(name, "drop-") })
	return s.Counters
}

// Serve answers on TCP and UDP, on all addresses, with the instance's name and the address that it sees, until the test
// ends. Over TCP it then echoes what comes.
func (i *Inst) Serve(port int) {
	i.Host.T.Helper()
	var listener net.Listener
	var datagrams *net.UDPConn
	Must(i.Host.T, kernel.In(i.NS, func() (err error) {
		if listener, err = net.Listen("tcp", fmt.Sprint(":", port)); err != nil {
			return err
		}
		datagrams, err = net.ListenUDP("udp", &net.UDPAddr{Port: port})
		return err
	}))
	var done sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	done.Add(2)
	i.Host.T.Cleanup(func() {
		listener.Close()
		datagrams.Close()
		mu.Lock()
		for _, conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		done.Wait()
	})
	go func() {
		defer done.Done()
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			done.Go(func() {
				defer conn.Close()
				fmt.Fprintf(conn, "%s %s\n", i.Name, conn.RemoteAddr())
				io.Copy(conn, conn)
			})
		}
	}()
	go func() {
		defer done.Done()
		buf := make([]byte, 65536)
		for {
			n, from, err := datagrams.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			seen := netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
			datagrams.WriteToUDPAddrPort(append([]byte(i.Name+" "+seen.String()+"\n"), buf[:n]...), from)
		}
	}()
}

// Dial connects to an address from the instance.
func (i *Inst) Dial(network string, to netip.Addr, p int) (net.Conn, error) {
	var c net.Conn
	err := kernel.In(i.NS, func() (err error) {
		d := net.Dialer{Timeout: 10 * time.Second}
		c, err = d.Dial(network, netip.AddrPortFrom(to, uint16(p)).String())
		return err
	})
	return c, err
}

// Ask tells which instance answers.
func (i *Inst) Ask(network string, to netip.Addr, p int) (string, error) {
	c, err := i.Dial(network, to, p)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return AskOn(c)
}

// AskOn tells which instance answers on a connection.
func AskOn(conn net.Conn) (string, error) {
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if conn.LocalAddr().Network() == "udp" {
		if _, err := conn.Write([]byte("hello")); err != nil {
			return "", err
		}
	}
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	name, from, _ := strings.Cut(line, " ")
	if want := conn.LocalAddr().String(); from != want {
		return name, fmt.Errorf("%s sees %s, not %s", name, from, want)
	}
	return name, nil
}

// Ping sends an echo request of a size and waits for the answer.
func (i *Inst) Ping(to netip.Addr, size int) error { return i.pingFor(to, size, 10*time.Second) }

// Reaches says whether an echo request is answered soon.
func (i *Inst) Reaches(to netip.Addr) bool { return i.pingFor(to, 8, 100*time.Millisecond) == nil }

func (i *Inst) pingFor(to netip.Addr, size int, wait time.Duration) error {
	return kernel.In(i.NS, func() error {
		family, proto, kind, answer := unix.AF_INET, unix.IPPROTO_ICMP, byte(8), byte(0)
		var sa unix.Sockaddr
		if to.Is4() {
			sa = &unix.SockaddrInet4{Addr: to.As4()}
		} else {
			family, proto, kind, answer = unix.AF_INET6, unix.IPPROTO_ICMPV6, 128, 129
			sa = &unix.SockaddrInet6{Addr: to.As16()}
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM, proto)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		tv := unix.NsecToTimeval(wait.Nanoseconds())
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
		msg := make([]byte, max(size, 8))
		msg[0] = kind
		if err := unix.Sendto(fd, msg, 0, sa); err != nil {
			return err
		}
		answered := make([]byte, 65536)
		count, from, err := testenv.Recvfrom(fd, answered)
		if err != nil || count != len(msg) || answered[0] != answer {
			return fmt.Errorf("ping %s: %d bytes, %v", to, count, err)
		}
		var who netip.Addr
		switch f := from.(type) {
		case *unix.SockaddrInet4:
			who = netip.AddrFrom4(f.Addr)
		case *unix.SockaddrInet6:
			who = netip.AddrFrom16(f.Addr)
		}
		if who != to {
			return fmt.Errorf("ping %s: %s answered", to, who)
		}
		return nil
	})
}

// Gateway is the address of the host for its instances.
func (h *Host) Gateway(six bool) netip.Addr {
	if six {
		return netip.MustParseAddr(fmt.Sprintf("fd00:40:%d::1", h.N))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.40.%d.1", h.N))
}
