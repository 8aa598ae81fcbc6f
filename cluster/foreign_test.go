package cluster

import (
	"bytes"
	"net/netip"
	"slices"
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

// routeMail has a site tell of instances of a service on some of its workers.
func routeMail(t *testing.T, a, b *Core, k skerry.ServiceKey, ids ...skerry.PeerID) {
	t.Helper()
	r := skerry.ForeignRoute{Route: skerry.Route{Service: k, Net: 5}}
	for _, id := range ids {
		r.Peers = append(r.Peers, skerry.ForeignPeer{ID: id, Key: skerry.OverlayKey{byte(id)}})
	}
	sealed, ok := b.seal(a.opt.Name, skerry.TopicRoute(k), &r)
	if !ok {
		t.Fatal("not sealed")
	}
	a.foreignItem(skerry.MailFrom(b.opt.Name, skerry.TopicRoute(k)), sealed, false)
}

// A worker of another site keeps its number while anything speaks of it and for a while after, and is then forgotten; its
// number goes to nobody else, and never takes one from the workers here.
func TestForeignWorkersAreForgotten(t *testing.T) {
	a, b := twoSites(t)
	web, db := key("acme", "shop"), skerry.ServiceKey{App: key("acme", "shop").App, Service: "db"}
	now := time.Unix(1e9, 0)
	pass := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(10 * time.Minute)
			a.Tick(now)
		}
	}
	routeMail(t, a, b, web, 3, 4)
	routeMail(t, a, b, db, 3)
	three, four := a.fabric.Foreign["b/3"], a.fabric.Foreign["b/4"]
	if three < foreignFirst || four < foreignFirst || three == four || a.fabric.Last != 0 {
		t.Fatalf("numbers %d and %d, last %d", three, four, a.fabric.Last)
	}
	a.foreignItem(skerry.MailFrom("b", skerry.TopicRoute(web)), nil, true)
	pass(foreignRest / 2)
	if a.foreignPeer("b/4") == nil {
		t.Error("it is forgotten at once")
	}
	routeMail(t, a, b, db, 4) // it comes back in time, and the other one goes
	pass(3 * foreignRest)
	if a.fabric.Foreign["b/4"] != four || a.foreignPeer("b/4") == nil || a.fabric.names[four] != "b/4" {
		t.Error("one that is spoken of is forgotten")
	}
	if a.fabric.Foreign["b/3"] != 0 || a.foreignPeer("b/3") != nil || a.fabric.names[three] != "" {
		t.Error("one that nobody speaks of is kept")
	}
	routeMail(t, a, b, db, 3, 4)
	if id := a.fabric.Foreign["b/3"]; id == three || id == four || id == 0 {
		t.Errorf("it comes back with number %d", id)
	}
	// After a start those are known that mail names again, and the others are forgotten in time.
	c := New(Options{Name: "a", Incarnation: "a1", Secret: [32]byte{1}})
	if err := c.Load(keyFabric, mustJSON(&a.fabric)); err != nil {
		t.Fatal(err)
	}
	c.Start(now)
	a = c
	introduce(a, b, "10.64.16.0/20")
	routeMail(t, a, b, db, 4)
	pass(3 * foreignRest)
	if len(a.fabric.Foreign) != 1 || a.fabric.Foreign["b/4"] != four || a.foreign.known["b"] != 1 {
		t.Errorf("%v are known, counted as %v", a.fabric.Foreign, a.foreign.known)
	}
	a.foreignItem(skerry.MailFrom("b", skerry.TopicRoute(db)), nil, true)
	pass(3 * foreignRest)
	if n := len(a.fabric.Foreign) + len(a.foreign.peers) + len(a.foreign.known) + len(a.foreign.refs) + len(a.foreign.idle) + len(a.fabric.names) + len(a.foreign.routes); n != 0 {
		t.Errorf("%d things are kept of what is gone", n)
	}
}

// A site that names ever new workers is cut short, and counted.
func TestForeignWorkersWithoutBound(t *testing.T) {
	a, b := twoSites(t)
	web := key("acme", "shop")
	routeMail(t, a, b, web, 1)
	for n := range 3 {
		var in skerry.ForeignPeers
		for i := range 8000 {
			in.Peers = append(in.Peers, skerry.ForeignPeer{ID: skerry.PeerID(8000*n + i + 2), To: []skerry.PeerID{7, 8}})
		}
		sealed, _ := b.seal("a", skerry.TopicPeers, &in)
		a.foreignItem(skerry.MailFrom("b", skerry.TopicPeers), sealed, false)
		a.Tick(time.Unix(1e9+int64(n), 0))
	}
	if n := len(a.fabric.Foreign); n != maxForeign || len(a.foreign.peers) != maxForeign {
		t.Errorf("%d numbers, %d workers", n, len(a.foreign.peers))
	}
	if n := a.fabric.refused[refusedPeers]; n != 3*8000+1-maxForeign {
		t.Errorf("%d were counted", n)
	}
	if a.foreignPeer("b/1") == nil {
		t.Error("one that is in use gave way")
	}
	now := time.Unix(1e9, 0)
	a.foreignItem(skerry.MailFrom("b", skerry.TopicPeers), nil, true)
	for range 20 {
		now = now.Add(foreignRest / 4)
		a.Tick(now)
	}
	if len(a.fabric.Foreign) != 1 {
		t.Errorf("%d are kept", len(a.fabric.Foreign))
	}
	ids := make([]skerry.PeerID, skerry.MaxBackends+1)
	for i := range ids {
		ids[i] = skerry.PeerID(i + 1)
	}
	routeMail(t, a, b, web, ids...)
	if len(a.foreign.routes) != 0 {
		t.Error("a route with more ends than one may have is taken")
	}
}

// A site gets no addresses that belong to hosts, to the world, to this site or to another one.
func TestForeignExtents(t *testing.T) {
	s := newFabricSite(t)
	w := s.join(1, "192.168.5.0/24")
	s.apply("acme", "shop", 1)
	r := newRootOf(s)
	own := s.c.fabric.Extents[0]
	r.neighbour("b", "10.65.0.0/20")
	bad := []string{"10.65.0.0/24", "0.0.0.0/0", "8.8.0.0/20", "192.168.0.0/16", "192.168.5.128/26", "10.0.0.0/8", own.String(), "fd00::/8", "2001:db8::/48", "::/0", "::ffff:10.1.0.0/116"}
	r.neighbour("c", append(bad, "10.66.0.0/20", "fd77:1:2::/48")...)
	node := func() []string {
		var out []string
		for _, p := range item[skerry.OverlayNode](s, w, skerry.NodeKey).Instances {
			out = append(out, p.String())
		}
		return out
	}
	for _, want := range []string{"10.65.0.0/20", "10.66.0.0/20", "fd77:1:2::/48"} {
		if !slices.Contains(node(), want) {
			t.Errorf("%s is not counted to the overlay: %v", want, node())
		}
	}
	if n := len(node()); n != 5 || s.c.fabric.refused[refusedExtents] < len(bad) {
		t.Errorf("%v; %v", node(), s.c.fabric.refused)
	}
	// A host that is in them comes before them, and gives them free again.
	v := s.join(2, "10.66.3.0/24")
	if slices.Contains(node(), "10.66.0.0/20") {
		t.Error("what comes from a host's network is taken for forged")
	}
	s.report(v, skerry.WorkerReport{Facts: &skerry.WorkerFacts{Arch: "amd64", Runtimes: []skerry.RuntimeReport{{Name: "oci", Passed: true}}, Capacity: skerry.Resources{CPU: 4000, Memory: 4 * skerry.GiB},
		Overlay: &skerry.OverlayFacts{Key: skerry.OverlayKey{2}}}})
	if !slices.Contains(node(), "10.66.0.0/20") {
		t.Errorf("the network is gone, and what was kept from it is not back: %v", node())
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
