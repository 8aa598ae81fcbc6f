//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/tunnel"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// fakeParts note what they are told.
type fakeParts struct {
	mu     sync.Mutex
	data   overlay.Config
	reset  []netip.Addr
	sealed tunnel.Config
	told   []string
	events chan overlay.Event
	heard  chan tunnel.Event
	wants  []skerry.ServiceKey
	used   map[overlay.ServiceAddr]bool
	hangs  error         // what the tunnel says, if anything
	ago    time.Duration // since a sign of life of any peer; 0: there was none
}

func (p *fakeParts) Set(_ context.Context, c overlay.Config) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.data = c
	return nil
}

func (p *fakeParts) Reset(a netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reset = append(p.reset, a)
	return nil
}
func (p *fakeParts) InUse() (map[overlay.ServiceAddr]bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used, nil
}
func (p *fakeParts) Events() <-chan overlay.Event  { return p.events }
func (p *fakeParts) Stats() (overlay.Stats, error) { return overlay.Stats{}, nil }
func (p *fakeParts) Close() error                  { return nil }
func (p *fakeParts) CleanUp() error                { return nil }

type fakeTunnel struct{ *fakeParts }

func (p fakeTunnel) Set(_ context.Context, c tunnel.Config) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangs != nil {
		return p.hangs
	}
	p.sealed = c
	return nil
}
func (p fakeTunnel) Status(context.Context) (tunnel.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangs != nil {
		return tunnel.Status{}, p.hangs
	}
	return tunnel.Status{Port: 7446, Candidate: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.9:999")}}, nil
}
func (p fakeTunnel) Unknown(_ context.Context, peer wire.PeerID, net wire.NetworkID, a netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, fmt.Sprint(peer, net, a))
	return nil
}
func (p fakeTunnel) Look(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, "look")
	return nil
}
func (p fakeTunnel) Ping(context.Context, wire.PeerID) (time.Duration, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ago, p.ago > 0, nil
}

func (p fakeTunnel) Events() <-chan tunnel.Event { return p.heard }

func shopNetwork() *wire.AppNetwork {
	a := netip.MustParseAddr
	return &wire.AppNetwork{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Net: 7, Services: []wire.NetworkService{
		{Name: "web", RoundRobin: a("10.30.1.1"), Closest: a("10.30.1.2"), LeastLoaded: a("10.30.1.3"), Instances: []netip.Addr{a("10.30.2.1"), a("10.30.2.2")}, Short: true, Links: []string{"store"}},
		{Name: "store", RoundRobin: a("10.30.3.1"), Closest: a("10.30.3.2"), LeastLoaded: a("10.30.3.3"), Short: true},
	}}
}

func shop(service string) skerry.ServiceKey {
	return skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: service}
}

// picture tells, in a text, what the data plane was told of services and peers.
func (p *fakeParts) picture() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, s := range p.data.Services {
		var to []string
		for _, b := range s.Slots {
			to = append(to, b.Addr.String())
		}
		out = append(out, fmt.Sprintf("%d/%s>%s", s.Net, s.Addr, strings.Join(to, "+")))
	}
	for _, q := range p.data.Peers {
		out = append(out, fmt.Sprintf("peer %d plain %v", q.ID, q.Plain != nil))
	}
	return strings.Join(out, " ")
}

// wanted, gone and sealedPeers give what was noted so far.
func (p *fakeParts) wanted() []skerry.ServiceKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wants
}

func (p *fakeParts) gone() []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.reset)
}

func (p *fakeParts) sealedPeers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sealed.Peers)
}

func TestOverlayNet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeParts{events: make(chan overlay.Event), heard: make(chan tunnel.Event)}
		f := newOverlayNet(Overlay{Device: p, Tunnel: fakeTunnel{p}, Secret: tunnel.Secret{1}, Tap: "t"}, slog.New(slog.DiscardHandler))
		f.post = func(m any) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.wants = m.(core.Interest).Services
		}
		f.facts = func() {}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { f.run(ctx) })
		defer wg.Wait()
		defer cancel()
		prefix, a := netip.MustParsePrefix, netip.MustParseAddr
		if f.addresses() != nil {
			t.Error("there are addresses before the cluster gave any")
		}
		f.doubt()
		f.doubt() // which is one with the first
		synctest.Wait()
		p.mu.Lock()
		if !slices.Contains(p.told, "look") {
			t.Error("nobody looks whether the way out is another one")
		}
		p.told = nil
		p.mu.Unlock()
		f.take(core.OverlayItem{Key: wire.NodeKey, Item: &wire.OverlayNode{ID: 1, Blocks: []netip.Prefix{prefix("10.64.0.0/26")}, V6: prefix("fd00:1::/64"), Instances: []netip.Prefix{prefix("10.64.0.0/10")}}})
		f.take(core.OverlayItem{Key: "net/acme/shop", Item: shopNetwork()})
		if h := f.addresses(); h == nil || h.Blocks[0] != prefix("10.64.0.0/26") {
			t.Errorf("%+v", h)
		}
		at := wire.Attachment{Device: "sk.1", Addresses: []netip.Prefix{prefix("10.64.0.1/32")}, MTU: 1404}
		if err := f.attached(ctx, map[skerry.InstanceID]joined{"web-1": {shop("web").App, shop("web"), 0, at, false}}); err != nil {
			t.Fatal(err)
		}
		// Links are wanted ahead; what is missed or looked up, from then on.
		if !slices.Equal(p.wanted(), []skerry.ServiceKey{shop("store")}) {
			t.Errorf("wants %v", p.wanted())
		}
		p.events <- overlay.Event{Kind: overlay.EventMiss, Net: 7, Dst: spec.ServiceTwin(a("10.30.1.2"))}
		synctest.Wait()
		if !slices.Equal(p.wanted(), []skerry.ServiceKey{shop("store"), shop("web")}) {
			t.Errorf("wants %v", p.wanted())
		}
		p.events <- overlay.Event{Kind: overlay.EventMiss, Net: 8, Dst: a("10.30.1.2")}
		ready := f.lookup(shop("web").App, shop("store"))
		f.take(core.OverlayItem{Key: wire.RouteKey(shop("store")), Item: &wire.Route{Service: shop("store"), Net: 7, Backends: []wire.RouteBackend{
			{Instance: "s1", Peer: 2, Addr: a("10.64.1.1")}, {Instance: "s2", Peer: 3, Addr: a("10.64.2.1")}}}})
		f.take(core.OverlayItem{Key: "peer/2", Item: &wire.OverlayPeer{ID: 2, Key: wire.OverlayKey{2}}})
		f.take(core.OverlayItem{Key: "peer/3", Item: &wire.OverlayPeer{ID: 3, Key: wire.OverlayKey{3}, Plain: netip.MustParseAddrPort("192.0.2.3:4789")}})
		synctest.Wait()
		select {
		case <-ready:
		default:
			t.Error("who waits for a route is not told that it is here")
		}
		both := "7/10.30.3.1>10.64.1.1+10.64.2.1 7/10.30.3.2>10.64.1.1+10.64.2.1 7/10.30.3.3>"
		if got := p.picture(); !strings.HasPrefix(got, both) || !strings.HasSuffix(got, "peer 2 plain false peer 3 plain false") || p.sealedPeers() != 2 {
			t.Errorf("got %s, %d sealed", got, p.sealedPeers())
		}
		// A peer says that its instance is gone: nothing new goes there, and what does is reset; so for an instance that the
		// cluster no longer lists. Nobody can say so of another's.
		f.take(core.OverlayItem{Key: "peer/2", Item: &wire.OverlayPeer{ID: 2, Key: wire.OverlayKey{2}, Prefixes: []netip.Prefix{prefix("10.64.1.0/26")}}})
		p.heard <- tunnel.Event{Kind: tunnel.EventUnknown, Peer: 2, Addr: a("10.64.2.1")}
		p.heard <- tunnel.Event{Kind: tunnel.EventUnknown, Peer: 2, Addr: a("10.64.1.1")}
		synctest.Wait()
		if got := p.picture(); !strings.HasPrefix(got, "7/10.30.3.1>10.64.2.1 ") || !slices.Equal(p.gone(), []netip.Addr{a("10.64.1.1")}) {
			t.Errorf("got %s, reset %v", got, p.gone())
		}
		p.heard <- tunnel.Event{Kind: tunnel.EventUnknown, Peer: 2, Addr: a("10.64.1.1")}  // again
		p.heard <- tunnel.Event{Kind: tunnel.EventUnknown, Peer: 2, Addr: a("10.64.1.50")} // which nothing leads to
		synctest.Wait()
		if len(p.gone()) != 1 {
			t.Errorf("reset %v", p.gone())
		}
		time.Sleep(deadFor + overlayNetEvery + time.Second)
		synctest.Wait()
		if got := p.picture(); !strings.HasPrefix(got, both) {
			t.Errorf("got %s", got)
		}
		// An instance is known by its IPv6 address, too.
		f.take(core.OverlayItem{Key: "peer/2", Item: &wire.OverlayPeer{ID: 2, Key: wire.OverlayKey{2}, Prefixes: []netip.Prefix{prefix("10.64.1.0/26"), prefix("fd00:2::/64")}}})
		f.take(core.OverlayItem{Key: wire.RouteKey(shop("store")), Item: &wire.Route{Service: shop("store"), Net: 7, Backends: []wire.RouteBackend{
			{Instance: "s1", Peer: 2, Addr: a("10.64.1.1"), Addr6: a("fd00:2::1")}, {Instance: "s2", Peer: 3, Addr: a("10.64.2.1")}}}})
		p.heard <- tunnel.Event{Kind: tunnel.EventUnknown, Peer: 2, Addr: a("fd00:2::1")}
		synctest.Wait()
		if got := p.picture(); !strings.HasPrefix(got, "7/10.30.3.1>10.64.2.1 ") || fmt.Sprint(p.gone()) != "[10.64.1.1 10.64.1.1 fd00:2::1]" {
			t.Errorf("got %s, reset %v", got, p.gone())
		}
		f.take(core.OverlayItem{Key: wire.RouteKey(shop("store")), Item: &wire.Route{Service: shop("store"), Net: 7, Backends: []wire.RouteBackend{
			{Instance: "s1", Peer: 2, Addr: a("10.64.1.1")}, {Instance: "s2", Peer: 3, Addr: a("10.64.2.1")}}}})
		synctest.Wait()
		p.mu.Lock()
		p.reset = p.reset[:1]
		p.mu.Unlock()
		// No way to a peer: its instances are the last resort.
		p.heard <- tunnel.Event{Kind: tunnel.EventPath, Peer: 3, Path: overlay.PathNone}
		synctest.Wait()
		if got := p.picture(); !strings.HasPrefix(got, "7/10.30.3.1>10.64.1.1 ") {
			t.Errorf("got %s", got)
		}
		f.take(core.OverlayItem{Key: wire.RouteKey(shop("store")), Item: &wire.Route{Service: shop("store"), Net: 7, Backends: []wire.RouteBackend{{Instance: "s2", Peer: 3, Addr: a("10.64.2.1")}}}})
		synctest.Wait()
		if got := p.picture(); !strings.HasPrefix(got, "7/10.30.3.1>10.64.2.1 ") || len(p.gone()) != 2 {
			t.Errorf("got %s, reset %v", got, p.gone())
		}
		// As long as a flow needs it a route is wanted.
		use := func(m map[overlay.ServiceAddr]bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.used = m
		}
		use(map[overlay.ServiceAddr]bool{{Net: 7, Addr: spec.ServiceTwin(a("10.30.2.2"))}: true})
		time.Sleep(wantedFor + overlayNetEvery)
		synctest.Wait()
		if !slices.Equal(p.wanted(), []skerry.ServiceKey{shop("store"), shop("web")}) {
			t.Errorf("wants %v", p.wanted())
		}
		use(nil)
		// Unused, a route is no longer wanted; a link is, for as long as there is who has it.
		time.Sleep(wantedFor + overlayNetEvery)
		synctest.Wait()
		if !slices.Equal(p.wanted(), []skerry.ServiceKey{shop("store")}) {
			t.Errorf("wants %v", p.wanted())
		}
		if err := f.attached(ctx, nil); err != nil || len(p.wanted()) != 0 {
			t.Errorf("%v, wants %v", err, p.wanted())
		}
		if n := f.tell(ctx, "192.0.2.1", nil); n == nil || n.Key.IsZero() || fmt.Sprint(n.Endpoints) != "[192.0.2.1:7446 203.0.113.9:999]" {
			t.Errorf("%+v", n)
		}
		// A tunnel that does not answer keeps nothing else from being told, and its addresses are those it had.
		p.mu.Lock()
		p.hangs = tunnel.ErrHangs
		p.mu.Unlock()
		before := len(p.gone())
		f.take(core.OverlayItem{Key: "peer/2", Item: &wire.OverlayPeer{ID: 2, Key: wire.OverlayKey{22}, Name: "other"}})
		f.take(core.OverlayItem{Key: wire.RouteKey(shop("store")), Item: &wire.Route{Service: shop("store"), Net: 7, Backends: []wire.RouteBackend{{Instance: "s3", Peer: 2, Addr: a("10.64.1.3")}}}})
		if err := f.attached(ctx, map[skerry.InstanceID]joined{"web-1": {shop("web").App, shop("web"), 0, at, false}}); !errors.Is(err, tunnel.ErrHangs) {
			t.Errorf("got %v", err)
		}
		if got := p.picture(); !strings.HasPrefix(got, "7/10.30.3.1>10.64.1.3 ") || len(p.gone()) != before+1 {
			t.Errorf("got %s, reset %v", got, p.gone())
		}
		// Names of services that the application does not have, or that belong to others, cost nothing.
		for i, had := 0, len(p.wanted()); i < 100; i++ {
			if ready := f.lookup(shop("web").App, shop(fmt.Sprint("made-up-", i))); ready != nil {
				t.Fatal("a service that there is not is waited for")
			}
			f.lookup(shop("web").App, skerry.ServiceKey{App: skerry.AppKey{Namespace: "other", Name: "bank"}, Service: fmt.Sprint("vault", i)})
			if len(p.wanted()) != had || len(f.waiters) > 1 {
				t.Fatalf("%d routes are wanted, %d are waited for", len(p.wanted()), len(f.waiters))
			}
		}
		// Who asks for ever other names of an application that is not known yet is bounded.
		f.mu.Lock()
		f.insts["x"] = joined{app: skerry.AppKey{Namespace: "acme", Name: "new"}}
		f.mu.Unlock()
		for i := range 3 * maxWaiters {
			f.lookup(skerry.AppKey{}, skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "new"}, Service: fmt.Sprint("s", i)})
		}
		if n := len(p.wanted()); n > maxWaiters+2 {
			t.Errorf("%d routes are wanted", n)
		}
		if n := f.tell(ctx, "192.0.2.1", nil); n == nil || fmt.Sprint(n.Endpoints) != "[192.0.2.1:7446 203.0.113.9:999]" {
			t.Errorf("%+v", n)
		}
	})
}

// On a trusted network packets go unsealed once this worker's address is known; the tunnel knows those peers all the same.
func TestOverlayNetPlain(t *testing.T) {
	p := &fakeParts{events: make(chan overlay.Event), heard: make(chan tunnel.Event)}
	f := newOverlayNet(Overlay{Device: p, Tunnel: fakeTunnel{p}, Secret: tunnel.Secret{1}, Tap: "t", Plain: 4790}, slog.New(slog.DiscardHandler))
	f.post, f.facts = func(any) {}, func() {}
	prefix, a := netip.MustParsePrefix, netip.MustParseAddr
	f.take(core.OverlayItem{Key: wire.NodeKey, Item: &wire.OverlayNode{ID: 1, Trusted: true, Blocks: []netip.Prefix{prefix("10.64.0.0/26")}, Instances: []netip.Prefix{prefix("10.64.0.0/10")}}})
	f.take(core.OverlayItem{Key: "net/acme/shop", Item: shopNetwork()})
	f.take(core.OverlayItem{Key: "peer/2", Item: &wire.OverlayPeer{ID: 2, Key: wire.OverlayKey{2}, Plain: netip.MustParseAddrPort("192.0.2.2:4790")}})
	f.take(core.OverlayItem{Key: "peer/3", Item: &wire.OverlayPeer{ID: 3, Key: wire.OverlayKey{3}}})
	f.take(core.OverlayItem{Key: wire.RouteKey(shop("store")), Item: &wire.Route{Service: shop("store"), Net: 7, Backends: []wire.RouteBackend{
		{Instance: "s1", Peer: 2, Addr: a("10.64.1.1")}, {Instance: "s2", Peer: 3, Addr: a("10.64.2.1")}}}})
	at := wire.Attachment{Device: "sk.1", Addresses: []netip.Prefix{prefix("10.64.0.1/32")}, MTU: 1404}
	attach := func() string {
		t.Helper()
		if err := f.attached(t.Context(), map[skerry.InstanceID]joined{"web-1": {shop("web").App, shop("web"), 0, at, false}}); err != nil {
			t.Fatal(err)
		}
		return p.picture()
	}
	f.tell(t.Context(), "a-name.example.org", nil)
	if got := attach(); !strings.HasSuffix(got, "peer 2 plain false peer 3 plain false") || p.sealedPeers() != 2 {
		t.Errorf("without an address: %s, %d sealed", got, p.sealedPeers())
	}
	f.tell(t.Context(), "192.0.2.1", nil)
	if got := attach(); !strings.HasSuffix(got, "peer 2 plain true peer 3 plain false") || p.sealedPeers() != 2 {
		t.Errorf("with one: %s, %d sealed", got, p.sealedPeers())
	}
	// Peers that lie of themselves are no reason to do without the others.
	f.take(core.OverlayItem{Key: "peer/4", Item: &wire.OverlayPeer{ID: 4, Key: wire.OverlayKey{2}, Plain: netip.MustParseAddrPort("0.0.0.0:4790")}})
	f.take(core.OverlayItem{Key: "peer/5", Item: &wire.OverlayPeer{ID: 5, Key: wire.OverlayKey{5}, Plain: netip.MustParseAddrPort("192.0.2.5:0"), Endpoints: make([]netip.AddrPort, 100)}})
	if got := attach(); !strings.HasSuffix(got, "peer 2 plain true peer 3 plain false peer 4 plain false peer 5 plain false") || p.sealedPeers() != 3 {
		t.Errorf("%s, %d sealed", got, p.sealedPeers())
	}
	if err := p.sealed.Check(); err != nil {
		t.Error(err)
	}
	f.take(core.OverlayItem{Key: "peer/4"})
	f.take(core.OverlayItem{Key: "peer/5"})
	// A session that has ended says nothing of a path that needs none.
	f.heard(tunnel.Event{Kind: tunnel.EventPath, Peer: 2, Path: overlay.PathNone})
	f.heard(tunnel.Event{Kind: tunnel.EventPath, Peer: 3, Path: overlay.PathNone})
	if got := attach(); !strings.HasPrefix(got, "7/10.30.3.1>10.64.1.1 ") {
		t.Errorf("got %s", got)
	}
	if st := f.status(t.Context()); len(st.Peers) != 1 || st.Peers[0].Path != overlay.PathPlain {
		t.Errorf("%+v", st.Peers)
	}
	rec := httptest.NewRecorder()
	(&Server{overlayNet: f}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/overlay", nil))
	var v view.OverlayView
	if err := json.Unmarshal(rec.Body.Bytes(), &v); err != nil || len(v.Peers) != 1 || v.Peers[0].Peer != 2 || v.Peers[0].Path != "plain" || !v.Peers[0].Endpoint.IsValid() {
		t.Errorf("%s: %v", rec.Body, err)
	}
}
