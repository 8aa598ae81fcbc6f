//go:build linux

package tunnel

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/relay"
	"skerry.dev/skerry/wire"
)

// kind of NAT.
type natKind string

const (
	natNone       natKind = "none"
	natFullCone   natKind = "full cone"
	natRestricted natKind = "port-restricted"
	natSymmetric  natKind = "symmetric"
)

// internet is a network with a relay, to which stations are joined by NATs.
type internet struct {
	*space
	relay *relay.Server
	conf  wire.RelayConfig
	pin   [32]byte
}

const relayIP = "10.9.0.1"

func certificate(t testing.TB) (tls.Certificate, [32]byte) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, pub, key)
	must(t, err)
	c, err := x509.ParseCertificate(der)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, sha256.Sum256(c.RawSubjectPublicKeyInfo)
}

func newInternet(t testing.TB) *internet {
	t.Helper()
	n := &internet{space: newSpace(t)}
	n.sh("ip link add br0 type bridge; ip link set br0 up; ip addr add " + relayIP + "/24 dev br0")
	n.startRelay("r", 3478)
	return n
}

func (n *internet) startRelay(name string, port uint16) {
	n.t.Helper()
	cert, pin := certificate(n.t)
	n.pin = pin
	must(n.t, n.in(func() (err error) {
		ap := netip.AddrPortFrom(netip.MustParseAddr(relayIP), port)
		n.relay, err = relay.New(relay.Options{Name: name, UDP: ap, TLS: ap, Certificate: cert, Log: slog.New(slog.NewTextHandler(n.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))})
		return err
	}))
	r := n.relay
	n.t.Cleanup(func() { r.Close() })
}

// join makes a station behind a NAT; gate is the NAT's namespace, in which rules can be added.
func (n *internet) join(id wire.PeerID, kind natKind, env ...string) (s *station, gate *space) {
	n.t.Helper()
	i := uint32(id)
	s = newStation(n.t, id)
	if kind == natNone {
		cable(n.space, fmt.Sprint("p", i), s.space, "e0", true)
		n.sh(fmt.Sprintf("ip link set p%d master br0", i))
		s.sh(fmt.Sprintf("ip addr add 10.9.0.%d/24 dev e0", 100+i))
	} else {
		gate = newSpace(n.t)
		cable(n.space, fmt.Sprint("p", i), gate, "wan", true)
		n.sh(fmt.Sprintf("ip link set p%d master br0", i))
		cable(gate, "lan", s.space, "e0", true)
		gate.sh(fmt.Sprintf(`ip addr add 10.9.0.%d/24 dev wan; ip addr add 192.168.%d.1/24 dev lan; echo 1 > /proc/sys/net/ipv4/ip_forward`, 100+i, i))
		s.sh(fmt.Sprintf("ip addr add 192.168.%d.2/24 dev e0; ip route add default via 192.168.%d.1", i, i))
		masquerade, forward := "masquerade", ""
		if kind == natSymmetric {
			masquerade = "masquerade fully-random"
		}
		if kind == natFullCone {
			forward = fmt.Sprintf("udp dport 4500 iifname wan dnat to 192.168.%d.2:4500", i)
		}
		gate.sh(fmt.Sprintf(`nft -f - <<X
table ip nat {
	chain pre { type nat hook prerouting priority dstnat; %s
	}
	chain post { type nat hook postrouting priority srcnat; oifname wan %s
	}
	chain in { type filter hook input priority filter; iifname wan ip protocol { udp, tcp } drop
	}
}
table inet block {
	chain through { type filter hook forward priority filter - 1; }
}
X`, forward, masquerade))
	}
	s.start(env...)
	key := Secret{byte(id), 42}
	n.conf.Workers = append(n.conf.Workers, wire.RelayWorker{ID: id, Keys: [][32]byte{key}})
	must(n.t, n.relay.Set(n.conf))
	s.conf.Relays = []Relay{{Name: "r", UDP: n.relay.UDP(), TLS: n.relay.TLS(), Pin: n.pin, Key: key}}
	return s, gate
}

// relayed makes two stations peers that know each other's relay, and nothing else.
func relayed(a, b *station) {
	a.t.Helper()
	for _, x := range []struct{ s, o *station }{{a, b}, {b, a}} {
		pub, err := x.o.key.Public()
		must(a.t, err)
		x.s.conf.Peers = append(x.s.conf.Peers, Peer{ID: x.o.id, Key: pub, Relays: []PeerRelay{{Relay: "r"}},
			Prefixes: []netip.Prefix{netip.PrefixFrom(x.o.inner, 32), netip.PrefixFrom(x.o.inner6, 128)}})
		x.s.set(x.o.id)
		x.s.neighbour(x.o)
	}
}

func (s *station) path() overlay.PathStatus {
	s.t.Helper()
	return s.status().Peers[0]
}

func TestNAT(t *testing.T) {
	for _, c := range []struct {
		a, b natKind
		want overlay.PathKind
	}{
		{natNone, natRestricted, overlay.PathDirect},
		{natNone, natSymmetric, overlay.PathDirect},
		{natFullCone, natRestricted, overlay.PathDirect},
		{natFullCone, natSymmetric, overlay.PathDirect},
		{natRestricted, natRestricted, overlay.PathDirect},
		{natRestricted, natSymmetric, overlay.PathRelay},
		{natSymmetric, natSymmetric, overlay.PathRelay},
	} {
		t.Run(fmt.Sprintf("%s and %s", c.a, c.b), func(t *testing.T) {
			t.Parallel()
			n := newInternet(t)
			a, _ := n.join(1, c.a)
			b, _ := n.join(2, c.b)
			relayed(a, b)
			must(t, transfer(a, b, false, 100_000))
			must(t, transfer(b, a, true, 100_000))
			if c.want == overlay.PathDirect {
				for _, s := range []*station{a, b} {
					eventually(t, "a direct path", func() bool { return s.path().Path == overlay.PathDirect })
				}
			} else if p := a.path(); p.Path != overlay.PathRelay || p.Reason == "" {
				t.Errorf("%+v", p)
			}
			must(t, transfer(a, b, false, 1_000_000))
			if st := a.status(); len(st.Relays) != 1 || st.Relays[0].Over != "udp" || !st.Relays[0].Reflexive.IsValid() || c.a != natNone && st.Relays[0].Reflexive.Addr().String() != "10.9.0.101" {
				t.Errorf("%+v", st.Relays)
			}
		})
	}
}

func TestUDPBlocked(t *testing.T) {
	n := newInternet(t)
	const hurry = timingVar + `={"Better":1000000000}`
	a, gate := n.join(1, natRestricted, hurry)
	b, _ := n.join(2, natRestricted, hurry)
	gate.sh("nft add rule inet block through ip protocol udp drop")
	relayed(a, b)
	must(t, transfer(a, b, false, 1_000_000))
	must(t, transfer(b, a, false, 1_000_000))
	p := a.path()
	if p.Path != overlay.PathRelay || p.Endpoint.Port() != 3478 {
		t.Errorf("%+v", p)
	}
	if r := a.status().Relays[0]; r.Over != "tls" || r.Reason == "" {
		t.Errorf("%+v", r)
	}
	if r := b.status().Relays[0]; r.Over != "udp" {
		t.Errorf("%+v", r)
	}
	gate.sh("nft flush chain inet block through")
	eventually(t, "a direct path when the block is lifted", func() bool {
		_ = transfer(a, b, false, 1000)
		return a.path().Path == overlay.PathDirect && b.path().Path == overlay.PathDirect
	})
	if st := n.relay.Stats(); st.Streams != 0 {
		t.Errorf("%+v", st)
	}
	// Blocked again: back to the relay, without a break of connections.
	gate.sh("nft add rule inet block through ip protocol udp drop")
	must(t, transfer(a, b, false, 1_000_000))
	if p := a.path(); p.Path != overlay.PathRelay {
		t.Errorf("%+v", p)
	}
}

// TestNATIsExchanged gives a station that has nothing to send another address outside, of which it cannot know: when it looks,
// relay and peer hear from there, and connections go on.
func TestNATIsExchanged(t *testing.T) {
	// By itself it would not look for an hour.
	const idle = timingVar + `={"KeepAlive":3600000000000,"Probe":3600000000000,"Better":3600000000000}`
	for name, blocked := range map[string]bool{"by UDP": false, "by TLS": true} {
		t.Run(name, func(t *testing.T) {
			n := newInternet(t)
			a, _ := n.join(1, natNone, idle)
			b, gate := n.join(2, natSymmetric, idle)
			relayed(a, b)
			must(t, transfer(a, b, false, 100_000))
			eventually(t, "a direct path", func() bool { return a.path().Path == overlay.PathDirect && b.path().Path == overlay.PathDirect })
			time.Sleep(3 * time.Second) // until nobody waits for an answer to what was sent last
			before := a.path().Endpoint
			if blocked {
				gate.sh("nft add rule inet block through ip protocol udp drop")
			}
			must(t, gate.in(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }))
			must(t, b.client.Look(t.Context()))
			if blocked {
				eventually(t, "the relay by TLS", func() bool { return b.status().Relays[0].Over == "tls" })
			} else {
				eventually(t, "the peer at another address", func() bool { p := a.path(); return p.Path == overlay.PathDirect && p.Endpoint != before })
			}
			must(t, transfer(a, b, false, 100_000))
		})
	}
}

// TestRelayStops loses the relay, and gets another, which knows nobody until they register.
func TestRelayStops(t *testing.T) {
	n := newInternet(t)
	a, _ := n.join(1, natSymmetric)
	b, _ := n.join(2, natSymmetric)
	relayed(a, b)
	must(t, transfer(a, b, false, 100_000))
	n.relay.Close()
	n.startRelay("r", 3478)
	must(t, n.relay.Set(n.conf))
	must(t, transfer(a, b, false, 100_000))
}

// TestTwoLevels has workers of two sites, from neither of which UDP gets out, speak by way of both sites' relays: TLS, UDP
// between the relays, TLS.
func TestTwoLevels(t *testing.T) {
	n := newInternet(t)
	near := n.relay
	a, gateA := n.join(1, natRestricted)
	n.conf = wire.RelayConfig{}
	n.startRelay("q", 3479)
	far := n.relay
	b, gateB := n.join(2, natSymmetric)
	for _, g := range []*space{gateA, gateB} {
		g.sh("nft add rule inet block through ip protocol udp drop")
	}
	between := [32]byte{5}
	must(t, near.Set(wire.RelayConfig{Workers: []wire.RelayWorker{{ID: 1, Keys: [][32]byte{a.conf.Relays[0].Key}}},
		Relays: []wire.RelaySite{{Name: "q", Addr: far.UDP(), Key: between}}, Routes: []wire.RelayRoute{{ID: 1002, Relay: "q", Remote: 2}}}))
	must(t, far.Set(wire.RelayConfig{Workers: []wire.RelayWorker{{ID: 2, Keys: [][32]byte{b.conf.Relays[0].Key}}},
		Relays: []wire.RelaySite{{Name: "r", Addr: near.UDP(), Key: between}}, Routes: []wire.RelayRoute{{ID: 1001, Relay: "r", Remote: 1}}}))
	relayed(a, b)
	a.conf.Peers[0].Relays[0].ID = 1002
	b.conf.Peers[0].Relays[0].ID = 1001
	must(t, a.client.Set(t.Context(), a.conf))
	must(t, b.client.Set(t.Context(), b.conf))
	must(t, transfer(a, b, false, 1_000_000))
	must(t, transfer(b, a, true, 1_000_000))
	for _, s := range []*station{a, b} {
		if p, r := s.path(), s.status().Relays[0]; p.Path != overlay.PathRelay || r.Over != "tls" {
			t.Errorf("%+v, %+v", p, r)
		}
	}
}

// TestRelayGoes takes a relay away in the moment in which a stream to it is there and nobody has heard of it yet. The relay
// says nothing.
func TestRelayGoes(t *testing.T) {
	cert, pin := certificate(t)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{Protocol}, MinVersion: tls.VersionTLS13})
	must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}()
	e := &Engine{log: slog.New(slog.DiscardHandler), inbox: make(chan func(), 1), start: time.Now()} // whose loop does not run
	ctx, cancel := context.WithCancel(t.Context())
	r := &relayClient{e: e, name: "r", ctx: ctx, cancel: cancel, conf: Relay{TLS: ln.Addr().(*net.TCPAddr).AddrPort(), Pin: pin}}
	r.dial(e.now())
	eventually(t, "a stream", func() bool { return len(e.inbox) == 1 })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.close()
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the loop waits for a stream that nobody ends")
	}
	ln.Close()
	<-ended
}
