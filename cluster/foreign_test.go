package cluster

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/wire"
)

// twoSites are cores that the root has introduced to each other.
func twoSites(t testing.TB) (a, b *Core) {
	now := time.Unix(1e9, 0)
	make := func(name string, secret byte) *Core {
		c := New(Options{Name: name, Incarnation: skerry.Incarnation(name + "1"), Secret: [32]byte{secret}})
		c.Start(now)
		return c
	}
	a, b = make("a", 1), make("b", 2)
	introduce(a, b, "10.64.16.0/20")
	introduce(b, a, "10.65.0.0/20")
	return a, b
}

// infoOf is what others are told of a site.
func infoOf(c *Core, extents ...string) *skerry.SiteInfo {
	info := &skerry.SiteInfo{Name: skerry.ClusterName(c.opt.Name), Relay: netip.MustParseAddrPort("192.0.2.9:7445")}
	copy(info.Key[:], c.privateKey().PublicKey().Bytes())
	for _, e := range extents {
		info.Extents = append(info.Extents, netip.MustParsePrefix(e))
	}
	return info
}

// introduce tells a core of another one.
func introduce(c, other *Core, extents ...string) {
	c.foreignItem(skerry.SiteKey(other.opt.Name), wire.New().Marshal(infoOf(other, extents...)), false)
}

func TestMailBetweenSites(t *testing.T) {
	a, b := twoSites(t)
	mail := skerry.ForeignPeers{Peers: []skerry.ForeignPeer{{ID: 7, Key: skerry.OverlayKey{7}, To: []skerry.PeerID{1}}}}
	sealed, ok := a.seal("b", skerry.TopicPeers, &mail)
	if !ok {
		t.Fatal("not sealed")
	}
	if again, _ := a.seal("b", skerry.TopicPeers, &mail); !bytes.Equal(sealed, again) {
		t.Error("the same mail is not the same item")
	}
	var got skerry.ForeignPeers
	if err := b.open("a", skerry.TopicPeers, sealed, &got); err != nil || len(got.Peers) != 1 || got.Peers[0].Key != (skerry.OverlayKey{7}) {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, try := range map[string]func() error{
		"another topic":            func() error { return b.open("a", "route/x/y/z", sealed, &got) },
		"sent back":                func() error { return a.open("b", skerry.TopicPeers, sealed, &got) },
		"a site nobody introduced": func() error { return b.open("c", skerry.TopicPeers, sealed, &got) },
		"cut short":                func() error { return b.open("a", skerry.TopicPeers, sealed[:20], &got) },
		"changed": func() error {
			bad := bytes.Clone(sealed)
			bad[len(bad)-1] ^= 1
			return b.open("a", skerry.TopicPeers, bad, &got)
		},
	} {
		if try() == nil {
			t.Errorf("%s: it is read", name)
		}
	}
	if other, _ := a.seal("b", "route/x/y/z", &mail); bytes.Equal(other[:24], sealed[:24]) {
		t.Error("two topics share a nonce")
	}
	if _, ok := a.seal("c", skerry.TopicPeers, &mail); ok {
		t.Error("mail for a site nobody introduced is sealed")
	}
}

// A site can take no addresses but its own: neither this site's nor a third one's.
func TestForeignPrefixes(t *testing.T) {
	a, b := twoSites(t)
	a.fabric.Extents = []netip.Prefix{netip.MustParsePrefix("10.70.0.0/20")}
	prefix := netip.MustParsePrefix
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}
	r := skerry.ForeignRoute{Route: skerry.Route{Service: k, Net: 5, Backends: []skerry.RouteBackend{
		{Peer: 3, Addr: netip.MustParseAddr("10.64.16.5")}, {Peer: 3, Addr: netip.MustParseAddr("10.70.0.5")}, {Peer: 4, Addr: netip.MustParseAddr("10.64.17.1")}}},
		Peers: []skerry.ForeignPeer{{ID: 3, Key: skerry.OverlayKey{3}, Prefixes: []netip.Prefix{prefix("10.64.16.0/26"), prefix("10.70.0.0/26"), prefix("10.65.0.0/26"), prefix("0.0.0.0/0")}}}}
	sealed, ok := b.seal("a", skerry.TopicRoute(k), &r)
	if !ok {
		t.Fatal("not sealed")
	}
	a.foreignItem(skerry.MailFrom("b", skerry.TopicRoute(k)), sealed, false)
	p := a.foreignPeer("b/3")
	if p == nil || len(p.Prefixes) != 1 || p.Prefixes[0] != prefix("10.64.16.0/26") || !p.Indirect || len(p.Endpoints) != 0 {
		t.Errorf("%+v", p)
	}
	if list := a.foreignBackends(k); len(list) != 1 || list[0].Addr.String() != "10.64.16.5" || list[0].Peer != p.ID {
		t.Errorf("%+v", list)
	}
	// Its number here is kept, whatever the site says anew; without the mail nothing of it is listed.
	a.foreignItem(skerry.MailFrom("b", skerry.TopicRoute(k)), nil, true)
	if list := a.foreignBackends(k); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	a.meet("b", r.Peers[0])
	if q := a.foreignPeer("b/3"); q.ID != p.ID {
		t.Errorf("%d, then %d", p.ID, q.ID)
	}
}

// FuzzForeign has another site send anything, sealed as it should be.
func FuzzForeign(f *testing.F) {
	_, b := twoSites(f)
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}
	f.Add([]byte{0xa0}, true)
	f.Add(wire.New().Marshal(&skerry.ForeignRoute{Route: skerry.Route{Service: k, Backends: []skerry.RouteBackend{{Peer: 1, Addr: netip.MustParseAddr("10.64.16.1")}}},
		Peers: []skerry.ForeignPeer{{ID: 1, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.64.16.0/26")}}}}), true)
	f.Add(wire.New().Marshal(&skerry.ForeignPeers{Peers: []skerry.ForeignPeer{{ID: 9, To: []skerry.PeerID{1, 2}}}}), false)
	f.Fuzz(func(t *testing.T, data []byte, route bool) {
		a, _ := twoSites(t)
		topic := skerry.TopicPeers
		if route {
			topic = skerry.TopicRoute(k)
		}
		sealed, ok := b.sealBytes("a", topic, data)
		if !ok {
			t.Fatal("not sealed")
		}
		a.foreignItem(skerry.MailFrom("b", topic), sealed, false)
		for _, e := range a.foreignBackends(k) {
			if !netip.MustParsePrefix("10.64.16.0/20").Contains(e.Addr) {
				t.Errorf("an address of somebody else is taken: %+v", e)
			}
		}
		a.Tick(time.Unix(1e9+60, 0))
		if faults := a.Audit(); len(faults) > 0 {
			t.Error(faults)
		}
	})
}
