//go:build linux

package nft

import (
	"fmt"
	"io"
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// host is one machine, with the data plane of a worker.
type host struct {
	w     *world
	n     int
	ns    *os.File
	wire  netip.Addr
	opts  Options
	dev   *Device
	conf  overlay.Config
	insts []*inst
}

// inst is an instance.
type inst struct {
	h      *host
	name   string
	ns     *os.File
	device string
	a4, a6 netip.Addr
}

// world is two machines on one wire.
type world struct {
	t     testing.TB
	hosts [2]*host
	taps  [2]*os.File // see bridge
}

var (
	allInstances = []netip.Prefix{netip.MustParsePrefix("10.40.0.0/16"), netip.MustParsePrefix("fd00:40::/32")}
	allServices  = []netip.Prefix{netip.MustParsePrefix("10.30.0.0/16"), netip.MustParsePrefix("fd30:5ce7::/96")}
)

func (h *host) blocks() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.40.%d.0/26", h.n)), netip.MustParsePrefix(fmt.Sprintf("fd00:40:%d::/64", h.n))}
}

// newWorld makes the machines with two instances each, of the same network. Instances are a1, b1 on the first host, and
// a2, b2 on the second.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t}
	for i := range w.hosts {
		w.hosts[i] = &host{w: w, n: i + 1, ns: kerneltest.NewNS(t)}
	}
	one, two := w.hosts[0], w.hosts[1]
	must(t, kernel.In(one.ns, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wire", MTU: 1500, TxQLen: -1}, PeerName: "wire", PeerNamespace: netlink.NsFd(int(two.ns.Fd()))})
	}))
	for _, h := range w.hosts {
		kerneltest.Run(t, h.ns, fmt.Sprintf(`
			ip addr add 10.100.0.%[1]d/24 dev wire
			ip addr add fd00:100::%[1]d/64 dev wire nodad
			ip link set wire up
			ip link add lan0 type bridge
			ip link set lan0 address 02:00:00:00:00:0%[1]d up
			ip addr add 10.40.%[1]d.1/26 dev lan0
			ip addr add fd00:40:%[1]d::1/64 dev lan0 nodad
			sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`, h.n))
		h.wire = netip.MustParseAddr(fmt.Sprintf("10.100.0.%d", h.n))
		h.opts = Options{Worker: fmt.Sprintf("w%d-%d", h.n, os.Getpid()), NetNS: fmt.Sprintf("/proc/self/fd/%d", h.ns.Fd())}
		h.conf.Local = overlay.Local{ID: wire.PeerID(h.n), Blocks: h.blocks(), Instances: allInstances, Services: allServices, MTU: 1404}
		h.add(fmt.Sprint("a", h.n), 7)
		h.add(fmt.Sprint("b", h.n), 7)
	}
	for i, h := range w.hosts {
		o := w.hosts[1-i]
		p := overlay.Peer{ID: wire.PeerID(o.n), Name: o.opts.Worker, Prefixes: o.blocks()}
		h.conf.Peers = []overlay.Peer{p}
	}
	t.Cleanup(func() {
		for _, h := range w.hosts {
			if h.dev != nil {
				if err := h.dev.CleanUp(); err != nil {
					t.Error(err)
				}
				links, err := netlinkLinks(h.ns)
				if err != nil {
					t.Error(err)
				}
				for _, l := range links {
					if strings.HasPrefix(l, h.opts.prefix()+".") && len(l) == len(h.opts.agentTap()) && strings.ContainsAny(l[9:], "tm") {
						t.Errorf("device %s is left", l)
					}
				}
			}
		}
	})
	for _, h := range w.hosts {
		h.open()
		h.set()
	}
	w.bridge()
	for _, h := range w.hosts {
		// Until the kernel has noticed that somebody has a tap open, it loses what goes there.
		eventually(t, "taps are up", func() bool {
			l, err := h.dev.nl.LinkByName(h.opts.tunnelTap())
			must(t, err)
			return l.Attrs().OperState == netlink.OperUp
		})
	}
	return w
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

// add makes an instance on the host. It is in the data plane with the next set.
func (h *host) add(name string, network wire.NetworkID) *inst {
	h.w.t.Helper()
	k := len(h.insts) + 2
	i := &inst{h: h, name: name, ns: kerneltest.NewNS(h.w.t), device: fmt.Sprintf("%s.%d", h.opts.prefix(), k)}
	i.a4 = netip.MustParseAddr(fmt.Sprintf("10.40.%d.%d", h.n, k))
	i.a6 = netip.MustParseAddr(fmt.Sprintf("fd00:40:%d::%d", h.n, k))
	must(h.w.t, kernel.In(h.ns, func() error {
		br, err := netlink.LinkByName("lan0")
		if err != nil {
			return err
		}
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: i.device, MTU: 1500, TxQLen: -1, MasterIndex: br.Attrs().Index, Flags: net.FlagUp}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(i.ns.Fd())), PeerMTU: 1404})
	}))
	kerneltest.Run(h.w.t, i.ns, fmt.Sprintf(`
		ip addr add %s/32 dev eth0
		ip addr add %s/128 dev eth0 nodad
		ip link set eth0 up
		ip route add default via 10.40.%[3]d.1 dev eth0 onlink
		ip -6 route add default via fd00:40:%[3]d::1 dev eth0 onlink`, i.a4, i.a6, h.n))
	must(h.w.t, kernel.In(i.ns, func() error { return kernel.SysctlIfAny("ipv4/ping_group_range", "0\t2147483647") }))
	h.insts = append(h.insts, i)
	h.conf.Instances = append(h.conf.Instances, overlay.Instance{ID: name, Net: network, Device: i.device, Addrs: []netip.Addr{i.a4, i.a6}})
	return i
}

func (h *host) open() {
	h.w.t.Helper()
	d, err := New(h.opts)
	must(h.w.t, err)
	h.dev = d
}

func (h *host) set() {
	h.w.t.Helper()
	must(h.w.t, h.dev.Set(h.w.t.Context(), h.conf))
}

// service gives a service address of both families on a host's data plane.
func (h *host) service(network wire.NetworkID, last byte, to ...*inst) {
	for _, six := range []bool{false, true} {
		s := overlay.Service{Net: network, Addr: svc(last, six)}
		for _, i := range to {
			s.Slots = append(s.Slots, overlay.Backend{Net: network, Addr: i.addr(six)})
		}
		h.conf.Services = slices.DeleteFunc(h.conf.Services, func(o overlay.Service) bool { return o.Net == s.Net && o.Addr == s.Addr })
		h.conf.Services = append(h.conf.Services, s)
	}
	h.set()
}

func svc(last byte, six bool) netip.Addr {
	if six {
		return netip.MustParseAddr(fmt.Sprintf("fd30:5ce7::10.30.0.%d", last))
	}
	return netip.AddrFrom4([4]byte{10, 30, 0, last})
}

func (i *inst) addr(six bool) netip.Addr {
	if six {
		return i.a6
	}
	return i.a4
}

func (w *world) inst(name string) *inst {
	for _, h := range w.hosts {
		for _, i := range h.insts {
			if i.name == name {
				return i
			}
		}
	}
	w.t.Fatal("no instance ", name)
	return nil
}

// count is a counter of the host's data plane.
func (h *host) count(name string) int64 {
	h.w.t.Helper()
	s, err := h.dev.Stats()
	must(h.w.t, err)
	n, ok := s.Counters[name]
	if !ok {
		h.w.t.Fatal("no counter ", name)
	}
	return n
}

// serve answers on TCP and UDP, on all addresses, with the instance's name and the address that it sees, until the test
// ends. Over TCP it then echoes what comes.
func (i *inst) serve(p int) {
	t := i.h.w.t
	t.Helper()
	var l net.Listener
	var u *net.UDPConn
	must(t, kernel.In(i.ns, func() (err error) {
		if l, err = net.Listen("tcp", fmt.Sprint(":", p)); err != nil {
			return err
		}
		u, err = net.ListenUDP("udp", &net.UDPAddr{Port: p})
		return err
	}))
	var done sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	done.Add(2)
	t.Cleanup(func() {
		l.Close()
		u.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		done.Wait()
	})
	go func() {
		defer done.Done()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			done.Go(func() {
				defer c.Close()
				fmt.Fprintf(c, "%s %s\n", i.name, c.RemoteAddr())
				io.Copy(c, c)
			})
		}
	}()
	go func() {
		defer done.Done()
		buf := make([]byte, 65536)
		for {
			n, from, err := u.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			u.WriteToUDPAddrPort(append([]byte(i.name+" "+netip.AddrPortFrom(from.Addr().Unmap(), from.Port()).String()+"\n"), buf[:n]...), from)
		}
	}()
}

func (i *inst) dial(network string, to netip.Addr, p int) (net.Conn, error) {
	var c net.Conn
	err := kernel.In(i.ns, func() (err error) {
		d := net.Dialer{Timeout: 10 * time.Second}
		c, err = d.Dial(network, netip.AddrPortFrom(to, uint16(p)).String())
		return err
	})
	return c, err
}

// ask tells which instance answers.
func (i *inst) ask(network string, to netip.Addr, p int) (string, error) {
	c, err := i.dial(network, to, p)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return askOn(c)
}

func askOn(c net.Conn) (string, error) {
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if c.LocalAddr().Network() == "udp" {
		if _, err := c.Write([]byte("hello")); err != nil {
			return "", err
		}
	}
	buf := make([]byte, 256)
	n, err := c.Read(buf)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	name, from, _ := strings.Cut(line, " ")
	if want := c.LocalAddr().String(); from != want {
		return name, fmt.Errorf("%s sees %s, not %s", name, from, want)
	}
	return name, nil
}

// ping sends an echo request of a size and waits for the answer.
func (i *inst) ping(to netip.Addr, size int) error { return i.pingFor(to, size, 10*time.Second) }

// reaches says whether an echo request is answered soon.
func (i *inst) reaches(to netip.Addr) bool { return i.pingFor(to, 8, 100*time.Millisecond) == nil }

func (i *inst) pingFor(to netip.Addr, size int, wait time.Duration) error {
	return kernel.In(i.ns, func() error {
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
		b := make([]byte, 65536)
		n, from, err := testenv.Recvfrom(fd, b)
		if err != nil || n != len(msg) || b[0] != answer {
			return fmt.Errorf("ping %s: %d bytes, %v", to, n, err)
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

func (h *host) gateway(six bool) netip.Addr {
	if six {
		return netip.MustParseAddr(fmt.Sprintf("fd00:40:%d::1", h.n))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.40.%d.1", h.n))
}
