//go:build linux

package wireguard

import (
	"errors"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/relay"
	"skerry.dev/skerry/overlay/relay/frame"
	"skerry.dev/skerry/wire"
)

// fake is a kernel with WireGuard. Peers in alive answer where they are.
type fake struct {
	mu      sync.Mutex
	refuses error
	there   bool // the device
	key     [32]byte
	port    uint16
	mtu     int
	opened  int
	peers   map[wire.OverlayKey]peerReading
	prefix  map[wire.OverlayKey]netip.Prefix
	alive   map[wire.OverlayKey]netip.AddrPort
	answers chan []byte
	closed  chan struct{}
	seenAs  netip.AddrPort          // by relays
	deaf    map[netip.AddrPort]bool // relays that do not answer
	asked   int
}

// device tells how the device is now.
func (f *fake) device() (there bool, key [32]byte, mtu, opened int, port uint16) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.there, f.key, f.mtu, f.opened, f.port
}

var relayKey = [32]byte{77}

func newFake() *fake {
	return &fake{peers: map[wire.OverlayKey]peerReading{}, prefix: map[wire.OverlayKey]netip.Prefix{}, alive: map[wire.OverlayKey]netip.AddrPort{}, answers: make(chan []byte, 100), closed: make(chan struct{})}
}

func (f *fake) open(key [32]byte, port uint16) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuses != nil {
		return f.refuses
	}
	if port == 0 && f.port == 0 {
		port = 40000
	}
	if port != 0 {
		f.port = port
	}
	f.there, f.key = true, key
	f.opened++
	return nil
}

func (f *fake) set(mtu int, peers map[wire.OverlayKey]*peerWish) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mtu != 0 {
		f.mtu = mtu
	}
	for k, w := range peers {
		if w == nil {
			delete(f.peers, k)
			delete(f.prefix, k)
			continue
		}
		p := f.peers[k]
		if w.at.IsValid() {
			p.at = w.at
		}
		f.peers[k], f.prefix[k] = p, w.prefix
	}
	return nil
}

func (f *fake) read() (reading, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.there {
		return reading{}, errGone
	}
	for k, p := range f.peers { // instances talk all the time
		if !p.handshake.IsZero() {
			p.tx += 2000
			if f.alive[k] == p.at {
				p.rx += 2000
			}
			f.peers[k] = p
		}
	}
	return reading{port: f.port, peers: maps.Clone(f.peers)}, nil
}

func (f *fake) send(b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	to, _ := netip.AddrFrom16([16]byte(b[24:40])).Prefix(overlay.LinkBits)
	for k, p := range f.peers {
		if f.prefix[k] != to {
			continue
		}
		p.tx += int64(len(b))
		if p.at.IsValid() && f.alive[k] == p.at {
			p.rx += int64(len(b))
			if p.handshake.IsZero() {
				p.handshake = time.Now()
			}
			f.answers <- answerTo(b)
		}
		f.peers[k] = p
		return nil
	}
	return errors.New("no such peer")
}

func (f *fake) receive(b []byte) (int, error) {
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	select {
	case a := <-f.answers:
		return copy(b, a), nil
	case <-closed:
		return 0, fs.ErrClosed
	}
}

func (f *fake) ask(port uint16, to netip.AddrPort, b []byte, wait time.Duration, take func([]byte) bool) (netip.Addr, error) {
	f.mu.Lock()
	as, deaf := f.seenAs, f.deaf[to]
	f.asked++
	f.mu.Unlock()
	local := netip.MustParseAddr("10.0.0.5")
	q, ok := frame.ParseRegister(b)
	if deaf || !ok || q.Answer || !frame.CheckRegister(b, relayKey) {
		time.Sleep(wait)
		return local, errors.New("no answer")
	}
	a := frame.Register{Answer: true, Peer: q.Peer, Nonce: q.Nonce, Addr: as}
	other := a
	other.Nonce++
	forged := a
	forged.Addr = netip.MustParseAddrPort("198.51.100.66:6")
	if take(other.Append(nil, relayKey)) || take(forged.Append(nil, [32]byte{1})) || take(b) || !take(a.Append(nil, relayKey)) {
		return local, errors.New("taken wrongly")
	}
	return local, nil
}

func (f *fake) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.closed)
	f.closed = make(chan struct{})
	return nil
}

func (f *fake) remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.there = false
	clear(f.peers)
	return nil
}

func (f *fake) at(k wire.OverlayKey) netip.AddrPort {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peers[k].at
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.peers)
}

// ups is which peers are reached.
func ups(l *Link) []wire.PeerID { return slices.Sorted(maps.Keys(l.Up())) }

func TestLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		o := Options{Worker: "w", Key: [32]byte{1}, kernel: f}
		l, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, key, _, _, _ := f.device(); l.Port() != 40000 || l.Local().Prefix != Prefix(l.Public()) || key != o.Key {
			t.Errorf("%+v", l.Local())
		}
		one, two, three := wire.OverlayKey{11}, wire.OverlayKey{12}, wire.OverlayKey{13}
		at := netip.MustParseAddrPort
		f.mu.Lock()
		f.alive[one], f.alive[two] = at("192.0.2.1:1001"), at("192.0.2.2:1002")
		f.mu.Unlock()
		peers := []Peer{{ID: 3, Key: three, At: at("192.0.2.3:1003")}, {ID: 1, Name: "w1", Key: one, At: at("192.0.2.1:1001")}, {ID: 2, Key: two}}
		set := func(l *Link) {
			t.Helper()
			if err := l.Set(t.Context(), Config{MTU: 1380, Peers: peers}); err != nil {
				t.Fatal(err)
			}
		}
		set(l)
		time.Sleep(2 * time.Second)
		st := l.Status()
		if _, _, mtu, _, _ := f.device(); !slices.Equal(ups(l), []wire.PeerID{1}) || mtu != 1420 || len(st) != 3 {
			t.Fatalf("up %v, MTU %d, %+v", ups(l), mtu, st)
		}
		if p := st[0]; p.Peer != 1 || p.Name != "w1" || p.Path != overlay.PathWireGuard || p.Reason != "" || p.Endpoint != peers[1].At || p.Handshake.IsZero() || p.TxBytes == 0 {
			t.Errorf("%+v", p)
		}
		if p := st[1]; p.Path != overlay.PathNone || p.Reason != "no direct path to it is known" {
			t.Errorf("%+v", p)
		}
		if p := st[2]; p.Path != overlay.PathNone || p.Reason != "nothing answers by it at 192.0.2.3:1003" {
			t.Errorf("%+v", p)
		}
		select {
		case <-l.Changed():
		default:
			t.Error("nobody was told")
		}

		// A peer that begins by itself is taken as it comes.
		f.mu.Lock()
		f.peers[two] = peerReading{at: f.alive[two], handshake: time.Now(), rx: 1000}
		f.mu.Unlock()
		time.Sleep(2 * time.Second)
		if !slices.Equal(ups(l), []wire.PeerID{1, 2}) {
			t.Errorf("up %v", ups(l))
		}
		// An address that the tunnel finds later is no reason to leave the one from which it is heard.
		peers[2].At = at("198.51.100.2:1002")
		set(l)
		time.Sleep(time.Minute)
		if !slices.Equal(ups(l), []wire.PeerID{1, 2}) || f.at(two) != at("192.0.2.2:1002") {
			t.Errorf("up %v, %s", ups(l), f.at(two))
		}
		// Once it has moved there, it is found.
		f.mu.Lock()
		f.alive[two] = peers[2].At
		f.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if !slices.Equal(ups(l), []wire.PeerID{1, 2}) || f.at(two) != peers[2].At {
			t.Errorf("up %v, %s: %+v", ups(l), f.at(two), l.Status()[1])
		}

		// The next agent uses what works, from the first moment, and takes away what is no longer wanted.
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		p := f.peers[one]
		p.handshake = time.Now().Add(-time.Minute)
		f.peers[one] = p
		f.mu.Unlock()
		peers = peers[1:2]
		if l, err = New(o); err != nil {
			t.Fatal(err)
		}
		set(l)
		if !slices.Equal(ups(l), []wire.PeerID{1}) || f.count() != 1 {
			t.Errorf("up %v of %d", ups(l), f.count())
		}
		time.Sleep(time.Minute)
		if !slices.Equal(ups(l), []wire.PeerID{1}) {
			t.Errorf("up %v: %+v", ups(l), l.Status())
		}

		// Somebody deletes the device: it is made anew, with the same port.
		_ = f.remove()
		time.Sleep(3 * time.Second)
		if _, _, _, opened, port := f.device(); !slices.Equal(ups(l), []wire.PeerID{1}) || opened != 3 || port != 40000 {
			t.Errorf("up %v, made %d times, port %d", ups(l), opened, port)
		}

		if err := l.Set(t.Context(), Config{Peers: []Peer{{ID: 1}}}); err == nil {
			t.Error("a peer without a key is taken")
		}
		err = l.CleanUp()
		if there, _, _, _, _ := f.device(); err != nil || there {
			t.Errorf("there %v, %v", there, err)
		}
	})
}

// Behind a NAT relays tell how the port is seen, again and again, so that the NAT does not forget it.
func TestReflexive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := netip.MustParseAddrPort
		dead, good := Relay{UDP: at("192.0.2.8:7445"), ID: 5, Key: relayKey}, Relay{UDP: at("192.0.2.9:7445"), ID: 5, Key: relayKey}
		f := newFake()
		f.seenAs, f.deaf = at("198.51.100.1:40001"), map[netip.AddrPort]bool{dead.UDP: true}
		l, err := New(Options{Worker: "w", Key: [32]byte{1}, kernel: f})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		asked := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			n := f.asked
			f.asked = 0
			return n
		}
		set := func(c Config) {
			t.Helper()
			if err := l.Set(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		set(Config{Relays: []Relay{dead, good}})
		time.Sleep(time.Minute)
		if n := asked(); n != 0 {
			t.Errorf("without peers relays were asked %d times", n)
		}
		c := Config{Relays: []Relay{{UDP: at("[2001:db8::1]:7445")}, dead, good}, Peers: []Peer{{ID: 1, Key: wire.OverlayKey{1}}}}
		set(c)
		time.Sleep(5 * time.Second)
		if n := asked(); n != locateTries+1 || l.Reflexive() != f.seenAs {
			t.Errorf("asked %d times, seen at %s", n, l.Reflexive())
		}
		select {
		case <-l.Changed():
		default:
			t.Error("nobody was told")
		}
		c.Relays = []Relay{good}
		set(c)
		time.Sleep(time.Second)
		asked()
		time.Sleep(10 * time.Minute)
		if n := asked(); n != 30 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		f.mu.Lock()
		f.seenAs = at("10.0.0.5:40000") // as this machine sees itself
		f.mu.Unlock()
		time.Sleep(time.Minute)
		asked()
		time.Sleep(10 * time.Minute)
		if n := asked(); n != 2 || l.Reflexive().IsValid() {
			t.Errorf("without a NAT: asked %d times in ten minutes, seen at %s", n, l.Reflexive())
		}
	})
}

// A real relay tells how a port is seen that another socket holds, as the kernel's WireGuard does, and registers nobody for that.
func TestAskARelay(t *testing.T) {
	r, err := relay.New(relay.Options{UDP: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Set(wire.RelayConfig{Workers: []wire.RelayWorker{{ID: 5, Keys: [][32]byte{relayKey}}}}); err != nil {
		t.Fatal(err)
	}
	held, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	port := held.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	l := &Link{k: &machine{name: "none"}, end: make(chan struct{})}
	seen, local, err := l.seenBy([]Relay{{UDP: r.UDP(), ID: 5, Key: relayKey}}, port)
	if want := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port); err != nil || seen != want || local != want {
		t.Errorf("seen at %s, sent from %s, %v", seen, local, err)
	}
	if n := r.Stats().Registered; n != 0 {
		t.Errorf("%d are registered", n)
	}
	if _, _, err := l.seenBy([]Relay{{UDP: r.UDP(), ID: 5, Key: [32]byte{1}}}, port); err == nil {
		t.Error("a stranger is answered")
	}
}

// The kernel of this machine has WireGuard, or its lack is told for what it is.
func TestKernel(t *testing.T) {
	l, err := New(Options{Worker: "kernel-test", Key: [32]byte{1}})
	if u, ok := errors.AsType[*Unsupported](err); ok {
		if !strings.Contains(u.Reason, "the kernel has no WireGuard") || u.Cure == "" {
			t.Errorf("reason %q, cure %q", u.Reason, u.Cure)
		}
		if err := Remove("kernel-test"); err != nil {
			t.Errorf("take away what is not there: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Set(t.Context(), Config{MTU: 1380, Peers: []Peer{{ID: 1, Key: wire.OverlayKey{9}, At: netip.MustParseAddrPort("127.0.0.1:9")}}}); err != nil {
		t.Error(err)
	}
	if l.Port() == 0 || len(l.Status()) != 1 || len(l.Up()) != 0 {
		t.Errorf("port %d, %+v", l.Port(), l.Status())
	}
	if err := l.CleanUp(); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Worker: "w"}, {Key: [32]byte{1}}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	if n := Device(strings.Repeat("long", 20)); len(n) > 15 {
		t.Errorf("%s is no name of a device", n)
	}
}
