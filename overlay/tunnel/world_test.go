//go:build linux

package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
	"skerry.dev/skerry/wire"
)

// The test binary is also the datapath that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "datapath" {
		os.Exit(Main("test", os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "wireguard" {
		os.Exit(wireguardMain(os.Args[2:]))
	}
	os.Exit(testenv.Main(m, testenv.Options{NetNS: true}))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// space is a network namespace that lives as long as the test.
type space struct {
	t  testing.TB
	ns *os.File
}

func newSpace(t testing.TB) *space {
	t.Helper()
	return &space{t: t, ns: kerneltest.NewNS(t)}
}

// in runs f on a thread in the namespace.
func (s *space) in(f func() error) error { return kernel.In(s.ns, f) }

// try runs commands, one a line, in the namespace.
func (s *space) try(script string) (string, error) {
	var out []byte
	err := s.in(func() (err error) {
		out, err = exec.Command("sh", "-ec", script).CombinedOutput()
		return err
	})
	return string(out), err
}

func (s *space) sh(script string) string {
	s.t.Helper()
	out, err := s.try(script)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// cable joins two namespaces; "wire" cables have none of the offloads that let large segments through.
func cable(a *space, devA string, b *space, devB string, wire bool) {
	a.t.Helper()
	tmp := "x" + devA[:min(len(devA), 10)]
	a.sh(fmt.Sprintf("ip link add %s type veth peer name %s netns /proc/%d/fd/%d", devA, tmp, os.Getpid(), b.ns.Fd()))
	b.sh(fmt.Sprintf("ip link set %s name %s up", tmp, devB))
	a.sh(fmt.Sprintf("ip link set %s up", devA))
	if wire {
		off := "ethtool -K %s tso off gso off tx-udp_tnl-segmentation off tx-udp-segmentation off gro on"
		a.sh(fmt.Sprintf(off, devA))
		b.sh(fmt.Sprintf(off, devB))
	}
}

// station is a worker of a test: a namespace, a datapath in it, and a tap that is used as if it were an instance.
type station struct {
	*space
	id     wire.PeerID
	key    Secret
	dir    string
	client *Client
	conf   Config
	inner  netip.Addr
	inner6 netip.Addr
	args   []string // of the datapath
}

var stations atomic.Int64 // names of directories

func newStation(t testing.TB, id wire.PeerID) *station {
	t.Helper()
	s := &station{space: newSpace(t), id: id}
	n := stations.Add(1)
	s.dir = filepath.Join(os.TempDir(), fmt.Sprintf("d%d", n))
	must(t, os.Mkdir(s.dir, 0o700))
	for i := range s.key {
		s.key[i] = byte(int(id)*7 + i + int(n))
	}
	s.inner = netip.AddrFrom4([4]byte{10, 40, 0, byte(id)})
	s.inner6 = netip.MustParseAddr(fmt.Sprintf("fd00:40::%x", uint32(id)))
	s.conf = Config{ID: id, PrivateKey: s.key, Port: 4500, Tap: "t0", MTU: 1404, Hidden: []netip.Prefix{netip.MustParsePrefix("10.40.0.0/16"), netip.MustParsePrefix("fd00:40::/64")}}
	return s
}

// start begins the datapath, in the station's namespace.
func (s *station) start(env ...string) {
	s.t.Helper()
	if old := s.client; old != nil {
		old.Close()
	}
	must(s.t, s.in(func() (err error) {
		s.client, err = Start(s.t.Context(), StartOptions{Dir: s.dir, Command: s.command(), Env: append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...)})
		return err
	}))
	c := s.client
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if s.client == c {
			if err := c.Stop(ctx); err != nil {
				s.t.Errorf("the datapath does not stop: %v", err)
				_ = unix.Kill(c.hello.PID, unix.SIGQUIT) // for its stacks
				time.Sleep(200 * time.Millisecond)
				_ = kill(s.dir)
			}
		}
		text, _ := os.ReadFile(filepath.Join(s.dir, logFile))
		if bytes.Contains(text, []byte("DATA RACE")) || bytes.Contains(text, []byte("panic:")) {
			s.t.Error("the datapath is at fault")
		}
		if s.t.Failed() {
			s.t.Logf("datapath %d:\n%s", s.id, text)
		}
	})
}

func (s *station) command() []string {
	return append([]string{"/proc/self/exe", "datapath", "--debug"}, s.args...)
}

// set gives the datapath its configuration and the tap its addresses. A frame from a peer is for the tap's address, because
// that says the peer's ID, as the instance's would.
func (s *station) set(peer wire.PeerID) {
	s.t.Helper()
	must(s.t, s.client.Set(s.t.Context(), s.conf))
	s.sh(fmt.Sprintf(`ip link set t0 address 02:00:00:00:00:%02x mtu 1404 gso_max_size 60000 up
		ip addr replace %s/24 dev t0
		ip addr replace %s/64 dev t0 nodad`, uint32(peer), s.inner, s.inner6))
}

// peers makes two stations each other's peer, at the given addresses.
func peers(a, b *station, atA, atB []netip.AddrPort) {
	a.t.Helper()
	for _, x := range []struct {
		s, o *station
		at   []netip.AddrPort
	}{{a, b, atB}, {b, a, atA}} {
		pub, err := x.o.key.Public()
		must(a.t, err)
		x.s.conf.Peers = append(x.s.conf.Peers, Peer{ID: x.o.id, Name: fmt.Sprint("w", x.o.id), Key: pub, Endpoints: x.at,
			Prefixes: []netip.Prefix{netip.PrefixFrom(x.o.inner, 32), netip.PrefixFrom(x.o.inner6, 128)}})
		x.s.set(x.o.id)
		x.s.neighbour(x.o)
	}
}

// neighbour has packets for another station carry its ID.
func (s *station) neighbour(o *station) {
	s.t.Helper()
	s.sh(fmt.Sprintf(`ip neigh replace %s lladdr 02:00:00:00:00:%02x dev t0 nud permanent
		ip neigh replace %s lladdr 02:00:00:00:00:%02x dev t0 nud permanent`, o.inner, uint32(o.id), o.inner6, uint32(o.id)))
}

func at(list ...string) (out []netip.AddrPort) {
	for _, s := range list {
		out = append(out, netip.MustParseAddrPort(s))
	}
	return out
}

// pair gives two stations with a cable between them.
func pair(t testing.TB, wire bool, env ...string) (a, b *station) {
	t.Helper()
	a, b = newStation(t, 1), newStation(t, 2)
	cable(a.space, "e0", b.space, "e0", wire)
	a.sh("ip addr add 10.1.0.1/24 dev e0; ip addr add fd01::1/64 dev e0 nodad")
	b.sh("ip addr add 10.1.0.2/24 dev e0; ip addr add fd01::2/64 dev e0 nodad")
	a.start(env...)
	b.start(env...)
	return a, b
}

func (s *station) status() Status {
	s.t.Helper()
	st, err := s.client.Status(s.t.Context())
	must(s.t, err)
	return st
}

// eventually waits until something holds; the test's own time is the limit.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("%s: not within 20 s", what)
}

// listen makes a listener in the namespace that ends with the test.
func (s *space) listen(addr string) net.Listener {
	s.t.Helper()
	var ln net.Listener
	must(s.t, s.in(func() (err error) {
		ln, err = net.Listen("tcp", addr)
		return err
	}))
	s.t.Cleanup(func() { ln.Close() })
	return ln
}

func (s *space) dial(addr string) (c net.Conn, err error) {
	err = s.in(func() (err error) {
		c, err = net.DialTimeout("tcp", addr, 15*time.Second)
		return err
	})
	return c, err
}

// transfer sends n bytes from one station to another, and checks what comes.
func transfer(from, to *station, v6 bool, n int64) error {
	addr := netip.AddrPortFrom(to.inner, 0)
	if v6 {
		addr = netip.AddrPortFrom(to.inner6, 0)
	}
	ln := to.listen(addr.String())
	defer ln.Close()
	sent := make(chan error, 1)
	go func() {
		c, err := from.dial(ln.Addr().String())
		if err == nil {
			_, err = io.Copy(c, io.LimitReader(&pattern{}, n))
			c.Close()
		}
		if err != nil {
			ln.Close()
		}
		sent <- err
	}()
	c, err := ln.Accept()
	if err != nil {
		return errors.Join(err, <-sent)
	}
	defer c.Close()
	want := io.LimitReader(&pattern{}, n)
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	var got int64
	for {
		k, err := c.Read(x)
		_, _ = io.ReadFull(want, y[:k])
		if !bytes.Equal(x[:k], y[:k]) {
			return fmt.Errorf("wrong bytes after %d", got)
		}
		got += int64(k)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if got != n {
		return fmt.Errorf("%d bytes of %d came", got, n)
	}
	return <-sent
}

// pattern is an endless stream of bytes in which no two places look alike.
type pattern struct{ n uint64 }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(p.n ^ p.n>>8 ^ p.n>>17)
		p.n++
	}
	return len(b), nil
}
