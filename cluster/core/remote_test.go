package core

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
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
func infoOf(c *Core, extents ...string) *wire.SiteInfo {
	info := &wire.SiteInfo{Name: skerry.ClusterName(c.opt.Name), Key: c.mail().Public(), Relay: netip.MustParseAddrPort("192.0.2.9:7445")}
	for _, e := range extents {
		info.Extents = append(info.Extents, netip.MustParsePrefix(e))
	}
	return info
}

// introduce tells a core of another one.
func introduce(c, other *Core, extents ...string) {
	c.remoteItem(wire.SiteKey(other.opt.Name), wire.New().Marshal(infoOf(other, extents...)), false)
}

// sealed is mail of one site to another.
func sealed(t testing.TB, from *Core, to, topic string, v any) []byte {
	t.Helper()
	b, ok := from.mail().Seal(from.remote.sites.Site(to), topic, wire.New().Marshal(v))
	if !ok {
		t.Fatal("not sealed")
	}
	return b
}

// A site can take no addresses but its own: neither this site's nor a third one's.
func TestRemotePrefixes(t *testing.T) {
	a, b := twoSites(t)
	a.overlayNet.Extents = []netip.Prefix{netip.MustParsePrefix("10.70.0.0/20")}
	prefix := netip.MustParsePrefix
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}
	r := wire.RemoteRoute{Route: wire.Route{Service: k, Net: 5, Backends: []wire.RouteBackend{
		{Peer: 3, Addr: netip.MustParseAddr("10.64.16.5")}, {Peer: 3, Addr: netip.MustParseAddr("10.70.0.5")}, {Peer: 4, Addr: netip.MustParseAddr("10.64.17.1")}}},
		Peers: []wire.RemotePeer{{ID: 3, Key: wire.OverlayKey{3}, Prefixes: []netip.Prefix{
			prefix("10.64.16.0/26"), prefix("10.70.0.0/26"), prefix("10.65.0.0/26"), prefix("0.0.0.0/0")}}}}
	mail := sealed(t, b, "a", wire.TopicRoute(k), &r)
	a.remoteItem(wire.MailFrom("b", wire.TopicRoute(k)), mail, false)
	p := a.remotePeer("b/3")
	if p == nil || len(p.Prefixes) != 1 || p.Prefixes[0] != prefix("10.64.16.0/26") || !p.Indirect || len(p.Endpoints) != 0 {
		t.Errorf("%+v", p)
	}
	if list := a.remoteBackends(k); len(list) != 1 || list[0].Addr.String() != "10.64.16.5" || list[0].Peer != p.ID {
		t.Errorf("%+v", list)
	}
	// Its number here is kept, whatever the site says anew; without the mail nothing of it is listed.
	a.remoteItem(wire.MailFrom("b", wire.TopicRoute(k)), nil, true)
	if list := a.remoteBackends(k); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	a.remoteItem(wire.MailFrom("b", wire.TopicRoute(k)), mail, false)
	if q := a.remotePeer("b/3"); q.ID != p.ID {
		t.Errorf("%d, then %d", p.ID, q.ID)
	}
}

// routeMail has a site tell of instances of a service on some of its workers.
func routeMail(t *testing.T, a, b *Core, k skerry.ServiceKey, ids ...wire.PeerID) {
	t.Helper()
	r := wire.RemoteRoute{Route: wire.Route{Service: k, Net: 5}}
	for _, id := range ids {
		r.Peers = append(r.Peers, wire.RemotePeer{ID: id, Key: wire.OverlayKey{byte(id)}})
	}
	a.remoteItem(wire.MailFrom(b.opt.Name, wire.TopicRoute(k)), sealed(t, b, a.opt.Name, wire.TopicRoute(k), &r), false)
}

// A worker of another site keeps its number while anything speaks of it and for a while after, and is then forgotten; its
// number goes to nobody else, and never takes one from the workers here.
func TestRemoteWorkersAreForgotten(t *testing.T) {
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
	three, four := a.remote.sites.Number("b/3"), a.remote.sites.Number("b/4")
	if three < network.RemoteFirst || four < network.RemoteFirst || three == four || a.overlayNet.Last != 0 {
		t.Fatalf("numbers %d and %d, last %d", three, four, a.overlayNet.Last)
	}
	a.remoteItem(wire.MailFrom("b", wire.TopicRoute(web)), nil, true)
	pass(network.RemoteRest / 2)
	if a.remotePeer("b/4") == nil {
		t.Error("it is forgotten at once")
	}
	routeMail(t, a, b, db, 4) // it comes back in time, and the other one goes
	pass(3 * network.RemoteRest)
	if a.remote.sites.Number("b/4") != four || a.remotePeer("b/4") == nil {
		t.Error("one that is spoken of is forgotten")
	}
	if a.remote.sites.Number("b/3") != 0 || a.remotePeer("b/3") != nil {
		t.Error("one that nobody speaks of is kept")
	}
	routeMail(t, a, b, db, 3, 4)
	if id := a.remote.sites.Number("b/3"); id == three || id == four || id == 0 {
		t.Errorf("it comes back with number %d", id)
	}
	// After a start those are known that mail names again, and the others are forgotten in time.
	c := New(Options{Name: "a", Incarnation: "a1", Secret: [32]byte{1}})
	if err := c.Load(keyOverlayNet, mustJSON(&a.overlayNet)); err != nil {
		t.Fatal(err)
	}
	c.Start(now)
	a = c
	introduce(a, b, "10.64.16.0/20")
	routeMail(t, a, b, db, 4)
	pass(3 * network.RemoteRest)
	if a.remote.sites.Known() != 1 || a.remote.sites.Number("b/4") != four {
		t.Errorf("%v are known", a.remote.sites.Numbers())
	}
	a.remoteItem(wire.MailFrom("b", wire.TopicRoute(db)), nil, true)
	pass(3 * network.RemoteRest)
	if n := a.remote.sites.Known() + len(a.remote.sites.Peers()) + len(a.overlayNet.names) + len(a.remoteBackends(db)); n != 0 {
		t.Errorf("%d things are kept of what is gone", n)
	}
}

// A site that names ever new workers is cut short, and counted.
func TestRemoteWorkersWithoutBound(t *testing.T) {
	a, b := twoSites(t)
	web := key("acme", "shop")
	routeMail(t, a, b, web, 1)
	for n := range 3 {
		var in wire.RemotePeers
		for i := range 8000 {
			in.Peers = append(in.Peers, wire.RemotePeer{ID: wire.PeerID(8000*n + i + 2), To: []wire.PeerID{7, 8}})
		}
		a.remoteItem(wire.MailFrom("b", wire.TopicPeers), sealed(t, b, "a", wire.TopicPeers, &in), false)
		a.Tick(time.Unix(1e9+int64(n), 0))
	}
	if n := a.remote.sites.Known(); n != network.MaxRemote || len(a.remote.sites.Peers()) != network.MaxRemote {
		t.Errorf("%d numbers, %d workers", n, len(a.remote.sites.Peers()))
	}
	if n := a.remote.sites.Refused()[network.RefusedPeers]; n != 3*8000+1-network.MaxRemote {
		t.Errorf("%d were counted", n)
	}
	if a.remotePeer("b/1") == nil {
		t.Error("one that is in use gave way")
	}
	now := time.Unix(1e9, 0)
	a.remoteItem(wire.MailFrom("b", wire.TopicPeers), nil, true)
	for range 20 {
		now = now.Add(network.RemoteRest / 4)
		a.Tick(now)
	}
	if a.remote.sites.Known() != 1 {
		t.Errorf("%d are kept", a.remote.sites.Known())
	}
	ids := make([]wire.PeerID, wire.MaxBackends+1)
	for i := range ids {
		ids[i] = wire.PeerID(i + 1)
	}
	routeMail(t, a, b, web, ids...)
	if len(a.remoteBackends(web)) != 0 {
		t.Error("a route with more ends than one may have is taken")
	}
}

// A site gets no addresses that belong to hosts, to the world, to this site or to another one.
func TestRemoteExtents(t *testing.T) {
	s := newOverlayNetSite(t)
	w := s.join(1, "192.168.5.0/24")
	s.apply("acme", "shop", 1)
	r := newRootOf(s)
	extent := s.c.overlayNet.Extents[0]
	r.neighbour("b", "10.65.0.0/20")
	bad := []string{"10.65.0.0/24", "0.0.0.0/0", "8.8.0.0/20", "192.168.0.0/16", "192.168.5.128/26", "10.0.0.0/8", extent.String(), "fd00::/8", "2001:db8::/48", "::/0", "::ffff:10.1.0.0/116"}
	r.neighbour("c", append(bad, "10.66.0.0/20", "fd77:1:2::/48")...)
	node := func() []string {
		var out []string
		for _, p := range item[wire.OverlayNode](s, w, wire.NodeKey).Instances {
			out = append(out, p.String())
		}
		return out
	}
	for _, want := range []string{"10.65.0.0/20", "10.66.0.0/20", "fd77:1:2::/48"} {
		if !slices.Contains(node(), want) {
			t.Errorf("%s is not counted to the overlay: %v", want, node())
		}
	}
	if n := len(node()); n != 5 || s.c.remote.sites.Refused()[network.RefusedExtents] < len(bad) {
		t.Errorf("%v; %v", node(), s.c.remote.sites.Refused())
	}
	// A host that is in them comes before them, and gives them free again.
	v := s.join(2, "10.66.3.0/24")
	if slices.Contains(node(), "10.66.0.0/20") {
		t.Error("what comes from a host's network is taken for forged")
	}
	s.report(v, wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}}, Capacity: spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB},
		Overlay: &wire.OverlayFacts{Key: wire.OverlayKey{2}}}})
	if !slices.Contains(node(), "10.66.0.0/20") {
		t.Errorf("the network is gone, and what was kept from it is not back: %v", node())
	}
}

// FuzzRemote has another site send anything, sealed as it should be.
func FuzzRemote(f *testing.F) {
	_, b := twoSites(f)
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}
	f.Add([]byte{0xa0}, true)
	f.Add(wire.New().Marshal(&wire.RemoteRoute{Route: wire.Route{Service: k, Backends: []wire.RouteBackend{{Peer: 1, Addr: netip.MustParseAddr("10.64.16.1")}}},
		Peers: []wire.RemotePeer{{ID: 1, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.64.16.0/26")}}}}), true)
	f.Add(wire.New().Marshal(&wire.RemotePeers{Peers: []wire.RemotePeer{{ID: 9, To: []wire.PeerID{1, 2}}}}), false)
	f.Fuzz(func(t *testing.T, data []byte, route bool) {
		a, _ := twoSites(t)
		topic := wire.TopicPeers
		if route {
			topic = wire.TopicRoute(k)
		}
		mail, ok := b.mail().Seal(b.remote.sites.Site("a"), topic, data)
		if !ok {
			t.Fatal("not sealed")
		}
		a.remoteItem(wire.MailFrom("b", topic), mail, false)
		for _, e := range a.remoteBackends(k) {
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
