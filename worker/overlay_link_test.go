//go:build linux

package worker

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/tunnel"
	"skerry.dev/skerry/overlay/wireguard"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// fakeLink is a WireGuard device.
type fakeLink struct {
	told wireguard.Config
	sets int
	up   map[wire.PeerID]bool
	seen netip.AddrPort
}

func (l *fakeLink) Set(_ context.Context, c wireguard.Config) error {
	l.told = c
	l.sets++
	return nil
}
func (l *fakeLink) Local() overlay.Link {
	return overlay.Link{Device: "sk.w", Prefix: wireguard.Prefix(l.Public())}
}
func (l *fakeLink) Public() wire.OverlayKey   { return wire.OverlayKey{9} }
func (l *fakeLink) Port() uint16              { return 51820 }
func (l *fakeLink) Reflexive() netip.AddrPort { return l.seen }
func (l *fakeLink) Up() map[wire.PeerID]bool  { return l.up }
func (l *fakeLink) Changed() <-chan struct{}  { return nil }
func (l *fakeLink) Status() (out []overlay.PathStatus) {
	for _, p := range l.told.Peers {
		s := overlay.PathStatus{Peer: p.ID, Name: p.Name, Path: overlay.PathNone, Reason: "nothing answers", Endpoint: p.At}
		if l.up[p.ID] {
			s.Path, s.Reason, s.TxBytes = overlay.PathWireGuard, "", 5
		}
		out = append(out, s)
	}
	return out
}

// reachingTunnel reaches some peers.
type reachingTunnel struct {
	fakeTunnel
	peers []overlay.PathStatus
}

func (r reachingTunnel) Status(context.Context) (tunnel.Status, error) {
	return tunnel.Status{Port: 7446, Peers: r.peers}, nil
}

// Which peers are reached by the kernel's WireGuard, where it looks for them, and what people are told.
func TestOverlayNetLink(t *testing.T) {
	p := &fakeParts{events: make(chan overlay.Event), heard: make(chan tunnel.Event)}
	link := &fakeLink{}
	at := netip.MustParseAddrPort
	reach := reachingTunnel{fakeTunnel{p}, []overlay.PathStatus{
		{Peer: 2, Name: "w2", Path: overlay.PathDirect, Endpoint: at("192.0.2.2:7446"), TxBytes: 7},
		{Peer: 3, Path: overlay.PathRelay, Endpoint: at("192.0.2.99:7445"), Reason: "none of 2 direct addresses answers"},
		{Peer: 4, Path: overlay.PathDirect, Endpoint: at("192.0.2.4:7446")},
		{Peer: 5, Path: overlay.PathDirect, Endpoint: at("192.0.2.5:7446")},
		{Peer: 6, Path: overlay.PathRelay, Reason: "of another site: by the gateways"},
	}}
	f := newOverlayNet(Overlay{Device: p, Tunnel: reach, Secret: tunnel.Secret{1}, Tap: "t", Plain: 4790, WireGuard: link}, slog.New(slog.DiscardHandler))
	f.post, f.facts = func(any) {}, func() {}
	prefix := netip.MustParsePrefix
	f.take(core.OverlayItem{Key: wire.NodeKey, Item: &wire.OverlayNode{ID: 1, Trusted: true, Relays: []wire.Relay{{Name: "r", UDP: at("192.0.2.99:7445"), Key: [32]byte{8}}}, Blocks: []netip.Prefix{prefix("10.64.0.0/26")}, Instances: []netip.Prefix{prefix("10.64.0.0/10")}}})
	f.take(core.OverlayItem{Key: "net/acme/shop", Item: shopNetwork()})
	wg := func(k byte) *wire.WireGuardFacts {
		return &wire.WireGuardFacts{Key: wire.OverlayKey{k}, Port: 1000 + uint16(k)}
	}
	for _, q := range []*wire.OverlayPeer{
		{ID: 2, Name: "w2", Key: wire.OverlayKey{2}, WireGuard: wg(12)},
		{ID: 3, Name: "w3", Key: wire.OverlayKey{3}, WireGuard: wg(13)},
		{ID: 4, Name: "w4", Key: wire.OverlayKey{4}},
		{ID: 5, Name: "w5", Key: wire.OverlayKey{5}, WireGuard: wg(12)}, // says that w2's key is its own
		{ID: 6, Key: wire.OverlayKey{6}, WireGuard: wg(16), Indirect: true},
		{ID: 7, Name: "w7", Key: wire.OverlayKey{7}, WireGuard: wg(17), Plain: at("192.0.2.7:4790")},
		{ID: 8, Name: "w8", Key: wire.OverlayKey{8}, WireGuard: wg(9)}, // says that this worker's is
	} {
		f.take(core.OverlayItem{Key: wire.OverlayPeerKey(q.ID), Item: q})
	}
	a := netip.MustParseAddr
	f.take(core.OverlayItem{Key: wire.RouteKey(shop("store")), Item: &wire.Route{Service: shop("store"), Net: 7, Backends: []wire.RouteBackend{
		{Instance: "s1", Peer: 2, Addr: a("10.64.1.1")}, {Instance: "s2", Peer: 3, Addr: a("10.64.2.1")}}}})
	facts := f.tell(t.Context(), "192.0.2.1", nil)
	if facts.WireGuard == nil || *facts.WireGuard != (wire.WireGuardFacts{Key: link.Public(), Port: 51820}) {
		t.Errorf("the cluster is told %+v", facts.WireGuard)
	}
	attach := func() {
		t.Helper()
		err := f.attached(t.Context(), map[skerry.InstanceID]joined{"web-1": {shop("web").App, shop("web"), 0, wire.Attachment{Device: "sk.1", Addresses: []netip.Prefix{prefix("10.64.0.1/32")}, MTU: 1380}, false}})
		if err != nil {
			t.Fatal(err)
		}
	}
	used := func() (links, use []wire.PeerID) {
		for _, q := range p.data.Peers {
			if q.Link != nil {
				links = append(links, q.ID)
				if q.Link.Use {
					use = append(use, q.ID)
				}
			}
		}
		return links, use
	}
	attach()
	if c := link.told; c.MTU != 1380 || len(c.Peers) != 2 || c.Peers[0].ID != 2 || c.Peers[0].At != at("192.0.2.2:1012") || c.Peers[1].ID != 3 || c.Peers[1].At.IsValid() {
		t.Errorf("WireGuard is told %+v", c)
	}
	if links, use := used(); len(links) != 2 || len(use) != 0 || p.data.Local.Link == nil {
		t.Errorf("the data plane takes packets of %v by the device, and sends to %v", links, use)
	}
	link.up = map[wire.PeerID]bool{2: true}
	attach()
	if _, use := used(); len(use) != 1 || use[0] != 2 || link.sets != 1 {
		t.Errorf("the data plane sends to %v, WireGuard was told %d times", use, link.sets)
	}
	// The tunnel lets its sessions go when nothing is sent by it.
	reach.peers[0].Path = overlay.PathNone
	f.heard(tunnel.Event{Kind: tunnel.EventPath, Peer: 2, Path: overlay.PathNone})
	f.heard(tunnel.Event{Kind: tunnel.EventPath, Peer: 3, Path: overlay.PathNone})
	attach()
	if got := p.picture(); !strings.HasPrefix(got, "7/10.30.3.1>10.64.1.1 ") {
		t.Errorf("got %s", got)
	}
	if link.told.Peers[0].At.IsValid() {
		t.Error("a peer is looked for that nothing is sent to")
	}
	said := map[wire.PeerID]overlay.PathStatus{}
	st := f.status(t.Context())
	for _, q := range st.Peers {
		said[q.Peer] = q
	}
	if q := said[2]; q.Path != overlay.PathWireGuard || q.Reason != "" || q.TxBytes != 12 || st.WireGuard != 51820 {
		t.Errorf("%+v", q)
	}
	for id, want := range map[wire.PeerID]string{
		3: "none of 2 direct addresses answers; no kernel WireGuard: nothing answers",
		4: "no kernel WireGuard: the peer has none",
		6: "of another site: by the gateways; no kernel WireGuard: not between sites",
		7: "",
	} {
		if said[id].Reason != want {
			t.Errorf("of %d: %q, not %q", id, said[id].Reason, want)
		}
	}
	reach.peers[0].Path = overlay.PathDirect
	// Behind a NAT it is tried where its relay sees it, if that is the machine that the tunnel reaches.
	for seen, want := range map[string]string{"192.0.2.2:40012": "192.0.2.2:40012", "198.51.100.9:40012": "192.0.2.2:1012"} {
		q := wg(12)
		q.Reflexive = at(seen)
		f.take(core.OverlayItem{Key: "peer/2", Item: &wire.OverlayPeer{ID: 2, Name: "w2", Key: wire.OverlayKey{2}, WireGuard: q}})
		attach()
		if got := link.told.Peers[0].At; got != at(want) {
			t.Errorf("seen at %s it is tried at %s", seen, got)
		}
	}
	// This worker tells where it is seen, as soon as it knows.
	told := make(chan bool)
	f.facts = func() { told <- true }
	link.seen = at("198.51.100.1:40001")
	f.turned()
	<-told
	f.turned() // the same: nobody is told
	if r := link.told.Relays; len(r) != 1 || r[0].UDP != at("192.0.2.99:7445") || r[0].ID != 1 || r[0].Key != ([32]byte{8}) {
		t.Errorf("relays %+v", r)
	}
	if facts := f.tell(t.Context(), "192.0.2.1", nil); facts.WireGuard.Reflexive != link.seen {
		t.Errorf("the cluster is told %+v", facts.WireGuard)
	}
	// A peer that goes is told to WireGuard, too, and so is one whose key changes.
	f.take(core.OverlayItem{Key: "peer/3"})
	f.take(core.OverlayItem{Key: "peer/2", Item: &wire.OverlayPeer{ID: 2, Name: "w2", Key: wire.OverlayKey{2}, WireGuard: wg(22)}})
	attach()
	if c := link.told; len(c.Peers) != 2 || c.Peers[0].Key != (wire.OverlayKey{22}) || c.Peers[1].ID != 5 {
		t.Errorf("WireGuard is told %+v", c.Peers)
	}
}
