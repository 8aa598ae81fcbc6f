package core

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// rootOf lets a test be the root of a site.
type rootOf struct {
	s   *overlayNetSite
	src *reconcile.Source
}

func newRootOf(s *overlayNetSite) *rootOf {
	r := &rootOf{s, reconcile.NewSource(members.Desired, "", "root", reconcile.Options{})}
	s.do(ParentUp{Welcome: &wire.Welcome{Incarnation: "root"}})
	return r
}

// put gives the site items; one without a value is taken away.
func (r *rootOf) put(items map[string][]byte) {
	r.s.t.Helper()
	for k, v := range items {
		if v == nil {
			r.src.Delete(k)
		} else if _, err := r.src.Put(k, v); err != nil {
			r.s.t.Fatal(err)
		}
	}
	r.src.Connect(r.s.now, r.s.c.Up.Desired.State())
	defer r.src.Disconnect()
	for msgs := r.src.Next(r.s.now); len(msgs) > 0; msgs = r.src.Next(r.s.now) {
		for _, m := range msgs {
			fx := r.s.c.Step(r.s.now, ParentFrame{Msg: m})
			r.s.keep(fx)
			for _, out := range fx.Sends {
				if msg, ok := out.Msg.(wire.Message); ok && out.To == "" {
					r.src.Handle(r.s.now, msg)
				}
			}
		}
	}
}

// neighbour is another site's core, which a site knows and which knows it.
func (r *rootOf) neighbour(name string, extents ...string) *Core {
	other := New(Options{Name: name, Incarnation: skerry.Incarnation(name + "1"), Secret: [32]byte{9}})
	other.Start(r.s.now)
	introduce(other, r.s.c)
	r.put(map[string][]byte{wire.SiteKey(name): wire.New().Marshal(infoOf(other, extents...))})
	return other
}

// mail gives what the site wrote to another one about a topic.
func mail[T any](s *overlayNetSite, to *Core, topic string) *T {
	v, ok := s.c.Up.Observed.Get(wire.MailTo(to.opt.Name, topic))
	if !ok {
		return nil
	}
	out := new(T)
	plain, err := to.mail().Open(to.remote.sites.Site(s.c.opt.Name), topic, v)
	if err == nil {
		err = wire.New().Unmarshal(plain, out)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// Another site goes on hearing of a service when nobody here wants it any more.
func TestRoutesAbroadOutliveThoseHere(t *testing.T) {
	s := newOverlayNetSite(t)
	w := s.join(1)
	s.apply("acme", "shop", 1)
	s.tell(w)
	web := key("acme", "shop")
	r := newRootOf(s)
	b := r.neighbour("b", "10.64.16.0/20")
	r.put(map[string][]byte{wire.WantedKey(web, "b"): {1}})
	s.want[w] = []skerry.ServiceKey{web}
	s.tell(w)
	s.want[w] = nil
	s.tell(w)
	s.apply("acme", "shop", 2)
	s.tell(w)
	if m := mail[wire.RemoteRoute](s, b, wire.TopicRoute(web)); m == nil || len(m.Route.Backends) != 2 {
		t.Errorf("two instances run, and the other site was told %+v", m)
	}
	r.put(map[string][]byte{wire.WantedKey(web, "b"): nil})
	if s.c.interests.Wanted(web) || mail[wire.RemoteRoute](s, b, wire.TopicRoute(web)) != nil {
		t.Error("something is kept of what nobody wants")
	}
}

// Another site hears when an instance that was told to end has ended; and nothing is kept of one whose worker is removed.
func TestRoutesAbroadOfThoseThatLeave(t *testing.T) {
	s := newOverlayNetSite(t)
	w := s.join(1)
	s.apply("acme", "shop", 2)
	s.tell(w)
	web := key("acme", "shop")
	r := newRootOf(s)
	b := r.neighbour("b", "10.64.16.0/20")
	r.put(map[string][]byte{wire.WantedKey(web, "b"): {1}})
	ends := func() (all, draining int) {
		for _, e := range mail[wire.RemoteRoute](s, b, wire.TopicRoute(web)).Route.Backends {
			if all++; e.Draining {
				draining++
			}
		}
		return all, draining
	}
	var one skerry.InstanceID
	for one = range s.c.places {
	}
	s.acknowledge(w)
	s.do(apps.DeleteInstance{ID: one, Actor: "me"})
	if all, draining := ends(); all != 2 || draining != 1 {
		t.Fatalf("%d ends, %d of them drain", all, draining)
	}
	s.acknowledge(w)
	s.tell(w) // what takes its place runs
	delete(s.obs[w], one)
	s.tell(w)
	if all, draining := ends(); draining != 0 || all != 2 {
		t.Errorf("it has ended, and there are %d ends of which %d drain", all, draining)
	}
	for one = range s.c.places {
		if s.obs[w][one].Address != "" {
			break
		}
	}
	s.do(apps.DeleteInstance{ID: one, Actor: "me"})
	s.do(ChildDown{Name: w})
	s.do(RemoveWorker{Name: w})
	if faults := s.c.Audit(); len(faults) > 0 {
		t.Error(faults)
	}
}

// Workers here are told of another site's because of what they have that it wants, not because it says so.
func TestPathsFromOtherSites(t *testing.T) {
	s := newOverlayNetSite(t)
	a := s.join(1)
	s.apply("acme", "shop", 1)
	s.tell(a)
	c := s.join(2)
	s.do(CordonWorker{Name: a, Reason: "full"})
	s.apply("acme", "secret", 1)
	s.tell(c)
	web := key("acme", "shop")
	r := newRootOf(s)
	b := r.neighbour("b", "10.64.16.0/20")
	in := wire.RemotePeers{Peers: []wire.RemotePeer{{ID: 3, Key: wire.OverlayKey{3}}}}
	for id := range wire.PeerID(100) {
		in.Peers[0].To = append(in.Peers[0].To, id)
	}
	peer := func(name string) bool {
		return item[wire.OverlayPeer](s, name, wire.OverlayPeerKey(s.c.remote.sites.Number("b/3"))) != nil
	}
	r.put(map[string][]byte{wire.MailFrom("b", wire.TopicPeers): sealed(t, b, s.c.opt.Name, wire.TopicPeers, &in)})
	if peer(a) || peer(c) {
		t.Error("the other site wants nothing, and is let in")
	}
	r.put(map[string][]byte{wire.WantedKey(web, "b"): {1}})
	if !peer(a) || peer(c) {
		t.Errorf("told of it: the worker with what is wanted %v, the other one %v", peer(a), peer(c))
	}
	many := wire.RemotePeers{}
	for id := range wire.PeerID(network.MaxUsers + 100) {
		many.Peers = append(many.Peers, wire.RemotePeer{ID: id + 1, To: []wire.PeerID{s.c.workers[a].Peer}})
	}
	r.put(map[string][]byte{wire.MailFrom("b", wire.TopicPeers): sealed(t, b, s.c.opt.Name, wire.TopicPeers, &many)})
	n := 0
	for _, k := range s.c.Children.Get(a).Desired.Keys() {
		if strings.HasPrefix(k, "peer/") {
			n++
		}
	}
	if n != network.MaxUsers || s.c.remote.sites.Refused()[network.RefusedPeers] == 0 {
		t.Errorf("a worker is told of %d; %v", n, s.c.remote.sites.Refused())
	}
}

// What is exported to an application is reached where nothing of its own application runs; and no longer, once it is not.
func TestExportsBetweenSites(t *testing.T) {
	s := newOverlayNetSite(t)
	w := s.join(1)
	r := newRootOf(s)
	b := r.neighbour("b", "10.64.16.0/20")
	spy, web := key("other", "spy"), key("acme", "shop")
	codec := wire.New()
	directory := func(services ...wire.NetworkService) []byte {
		return codec.Marshal(&wire.AppNetwork{App: spy.App, Org: "other", Net: 5, Services: append([]wire.NetworkService{{Name: "web", RoundRobin: netip.MustParseAddr("10.30.1.1")}}, services...)})
	}
	imported := wire.NetworkService{Name: "web", RoundRobin: netip.MustParseAddr("10.30.1.2"), Of: web, Net: 77}
	one := 1
	svc := spec.ServiceSpec{Name: "web", Replicas: &one, Mode: spec.ModeService, Resources: spec.Resources{CPU: 50, Memory: 8 * skerry.MiB}}
	svc.Image = "web:1"
	a := spec.Assignment{ID: "web-r1", Service: spy, Org: "other", Gen: 1, Fence: skerry.Fence{RootEpoch: 1}, Spec: svc}
	r.put(map[string][]byte{wire.NetworkItem(spy.App): directory(imported), wire.AssignmentKey(a.ID): codec.Marshal(&a)})
	s.tell(w)
	forged := skerry.ServiceKey{App: spy.App, Service: "made-up"}
	s.want[w] = []skerry.ServiceKey{web, forged, key("acme", "unknown")}
	s.tell(w)
	if _, ok := s.c.Up.Observed.Get(wire.WantKey(web)); !ok {
		t.Fatal("the root is not asked for the routes")
	}
	if _, ok := s.c.Up.Observed.Get(wire.WantKey(key("acme", "unknown"))); ok {
		t.Error("the root is asked for routes that nobody here may have")
	}
	if _, ok := s.c.Up.Observed.Get(wire.WantKey(forged)); ok {
		t.Error("the root is asked for routes of a service that there is not")
	}
	prefix := netip.MustParsePrefix("10.64.16.0/26")
	mail := sealed(t, b, s.c.opt.Name, wire.TopicRoute(web), &wire.RemoteRoute{Route: wire.Route{Service: web, Net: 77, Backends: []wire.RouteBackend{{Peer: 3, Addr: prefix.Addr().Next()}}},
		Peers: []wire.RemotePeer{{ID: 3, Key: wire.OverlayKey{3}, Prefixes: []netip.Prefix{prefix}}}})
	r.put(map[string][]byte{wire.MailFrom("b", wire.TopicRoute(web)): mail})
	if got := item[wire.Route](s, w, wire.RouteKey(web)); got == nil || got.Net != 77 || len(got.Backends) != 1 {
		t.Fatalf("%+v", got)
	}
	r.put(map[string][]byte{wire.NetworkItem(spy.App): directory()})
	if got := item[wire.Route](s, w, wire.RouteKey(web)); got != nil {
		t.Errorf("the export is gone, and its route is not: %+v", got)
	}
	if _, ok := s.c.Up.Observed.Get(wire.WantKey(web)); ok {
		t.Error("the root is still asked for the routes")
	}
	// It ends here: what was told because of it ends, too, whatever the worker still wants.
	r.put(map[string][]byte{wire.NetworkItem(spy.App): directory(imported)})
	if item[wire.Route](s, w, wire.RouteKey(web)) == nil {
		t.Fatal("the export is back, and its route is not")
	}
	r.put(map[string][]byte{wire.AssignmentKey(a.ID): nil, wire.NetworkItem(spy.App): nil})
	s.obs[w] = nil
	s.send(w, map[string][]byte{wire.WantKey(web): codec.Marshal(&wire.Want{Service: web})})
	s.wait(time.Second)
	if got := item[wire.Route](s, w, wire.RouteKey(web)); got != nil {
		t.Errorf("a worker that runs nothing more is told %+v", got)
	}
	if len(s.c.overlayNet.read) != 0 {
		t.Errorf("%d directories are kept", len(s.c.overlayNet.read))
	}
}

// A worker that wants without bound is cut short, counted and told of, and costs the root and others nothing; when it wants
// less, what was refused is taken up.
func TestInterestsWithoutBound(t *testing.T) {
	s := newOverlayNetSite(t)
	a, b := s.join(1), s.join(2)
	s.each = 3000
	s.apply("acme", "shop", 2)
	s.tell(a)
	s.tell(b)
	web := key("acme", "shop")
	s.want[a] = []skerry.ServiceKey{web}
	s.tell(a)
	codec := wire.New()
	items := map[string][]byte{}
	for id, o := range s.obs[b] {
		items[wire.AssignmentKey(id)] = codec.Marshal(&o)
	}
	var forged []string
	for n := range network.MaxWants + 30 {
		k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: fmt.Sprint("app", n)}, Service: strings.Repeat("x", 60)}
		forged = append(forged, wire.WantKey(k))
		items[wire.WantKey(k)] = codec.Marshal(&wire.Want{Service: k})
	}
	for _, k := range []skerry.ServiceKey{{}, {App: skerry.AppKey{Namespace: "a/b", Name: "c"}, Service: "d"}, {App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: strings.Repeat("y", 5000)}} {
		items[wire.WantKey(k)] = codec.Marshal(&wire.Want{Service: k})
	}
	items["want/acme/shop/other"] = codec.Marshal(&wire.Want{Service: web})
	s.send(b, items)
	if n := len(s.c.interests.Of(b)); n != network.MaxWants {
		t.Fatalf("%d interests are kept", n)
	}
	if got := s.c.overlayNet.refused; got[refusedWants] != 30 || got[refusedUnread] != 4 {
		t.Errorf("%v were refused", got)
	}
	if got := item[wire.Route](s, a, wire.RouteKey(web)); got == nil || len(got.Backends) != 2 {
		t.Errorf("another worker is told %+v", got)
	}
	for _, key := range s.c.Up.Observed.Keys() {
		if strings.HasPrefix(key, "want/") && slices.Contains(forged, key) {
			t.Fatalf("the root is told of %s", key)
		}
	}
	for _, key := range forged[:1000] {
		delete(items, key)
	}
	items[wire.WantKey(web)] = codec.Marshal(&wire.Want{Service: web})
	s.send(b, items)
	s.wait(2 * time.Second)
	if n := len(s.c.interests.Of(b)); n != network.MaxWants+30-1000+1 {
		t.Errorf("%d interests are kept after some have ended", n)
	}
	if got := item[wire.Route](s, b, wire.RouteKey(web)); got == nil || len(got.Backends) != 2 {
		t.Errorf("an honest interest of it is answered with %+v", got)
	}
	if faults := s.c.Audit(); len(faults) > 0 {
		t.Error(faults)
	}
}
