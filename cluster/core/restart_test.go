package core

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// restart begins another life of the site, of which no worker has come back.
func (s *overlayNetSite) restart() {
	s.start()
	s.c.opt.Admission = Admission{Trusted: []string{"acme", "other"}}
}

// back connects a worker with what it holds of its set; its frames to the site come later. It gives what the worker was sent.
func (s *overlayNetSite) back(name string, held *reconcile.Replica) {
	s.t.Helper()
	told := s.src[name]
	observed := wire.SetAck{Set: "observed", Incarnation: told.Incarnation(), Gen: told.Gen(), Digest: told.Digest()}
	s.deliver(name, held, s.c.Step(s.now, ChildUp{Hello: &wire.Hello{Name: name, Sets: []wire.SetAck{held.State(), observed}}}))
}

// deliver brings a worker what a step sends it, and the site its answers.
func (s *overlayNetSite) deliver(name string, held *reconcile.Replica, fx wire.Effects) {
	s.t.Helper()
	s.keep(fx)
	for _, out := range fx.Sends {
		if m, ok := out.Msg.(wire.Message); ok && out.To == name {
			for _, reply := range held.Apply(m).Reply {
				s.deliver(name, held, s.c.Step(s.now, ChildFrame{Name: name, Msg: reply}))
			}
		}
	}
}

// knows lists what a worker holds of the overlay: directories, peers and where routes lead.
func knows(t *testing.T, held *reconcile.Replica) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for key, value := range held.All() {
		kind, _, _ := strings.Cut(key, "/")
		if kind == "route" {
			r := new(wire.Route)
			if err := wire.New().Unmarshal(value, r); err != nil {
				t.Fatal(err)
			}
			for _, b := range r.Backends {
				out[fmt.Sprintf("%s -> %s draining=%v", key, b.Addr, b.Draining)] = true
			}
		}
		if kind != "inst" {
			out[key] = true
		}
	}
	return out
}

// lacks lists what a worker held and holds no longer.
func lacks(t *testing.T, was map[string]bool, held *reconcile.Replica) (out []string) {
	is := knows(t, held)
	for k := range was {
		if !is[k] {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// A restart of the orchestrator takes nothing from what workers know, however late one of them is: not a route, no end of one, no peer; nor
// from what other sites are told. What a worker no longer wants is taken from it when it has told all.
func TestRestartTakesNothingFromWorkers(t *testing.T) {
	s := newOverlayNetSite(t)
	s.each = 1500
	names := []string{s.join(1), s.join(2)}
	web, far := key("acme", "shop"), key("acme", "far")
	s.apply("acme", "shop", 4)
	r := newRootOf(s)
	b := r.neighbour("b", "10.64.16.0/20")
	mine := []netip.Prefix{netip.MustParsePrefix("10.64.16.0/26")}
	ends := []wire.RouteBackend{{Peer: 3, Addr: mine[0].Addr()}}
	there := wire.RemoteRoute{Route: wire.Route{Service: web, Net: wire.LocalNetworks, Backends: ends},
		Peers: []wire.RemotePeer{{ID: 3, Key: wire.OverlayKey{3}, Prefixes: mine}}}
	mail := sealed(t, b, s.c.opt.Name, wire.TopicRoute(web), &there)
	r.put(map[string][]byte{wire.WantedKey(web, "b"): {1}, wire.MailFrom("b", wire.TopicRoute(web)): mail})
	for _, name := range names {
		s.want[name] = []skerry.ServiceKey{web, far}
		s.tell(name)
	}
	held, was := map[string]*reconcile.Replica{}, map[string]map[string]bool{}
	for _, name := range names {
		s.keep(s.c.Step(s.now, ChildDown{Name: name}))
		held[name] = reconcile.NewReplica("desired", "", reconcile.Options{})
		s.back(name, held[name])
		if was[name] = knows(t, held[name]); len(was[name]) < 9 {
			t.Fatalf("%s knows %v", name, was[name])
		}
	}
	above := func() []string { // what workers have confirmed is known when they are back
		confirmed := wire.MailTo("b", wire.TopicHeard(web))
		return slices.DeleteFunc(s.c.Up.Observed.Keys(), func(k string) bool { return strings.HasPrefix(k, "inst/") || k == confirmed })
	}
	told := above()
	if !slices.Contains(told, wire.MailTo("b", wire.TopicPeers)) || !slices.Contains(told, wire.MailTo("b", wire.TopicRoute(web))) {
		t.Fatalf("the root is told %v", told)
	}

	s.restart()
	if is := above(); !slices.Equal(is, told) {
		t.Errorf("the root was told %v, and after the restart %v", told, is)
	}
	for _, name := range names {
		s.back(name, held[name])
		for _, name := range names {
			if gone := lacks(t, was[name], held[name]); len(gone) > 0 {
				t.Errorf("as a worker is back %s has lost %v", name, gone)
			}
		}
	}
	s.want[names[0]] = nil
	for _, name := range names {
		s.tell(name)
	}
	if is := above(); !slices.Equal(is, told) {
		t.Errorf("the root was told %v, and after all were back %v", told, is)
	}
	if item[wire.Route](s, names[0], wire.RouteKey(web)) != nil || len(item[wire.Route](s, names[1], wire.RouteKey(web)).Backends) != 5 {
		t.Error("routes are not as workers want them")
	}
}

// What serves on a worker that is partitioned from the orchestrator alone goes on doing so when that is restarted.
func TestRestartKeepsThePartitionedInRoutes(t *testing.T) {
	s := newOverlayNetSite(t)
	a, b := s.join(1), s.join(2)
	s.each = 3000 // one on each, and no room for another
	s.apply("acme", "shop", 2)
	web := key("acme", "shop")
	s.want[a] = []skerry.ServiceKey{web}
	s.tell(a)
	s.tell(b)
	ends := func() int { return len(item[wire.Route](s, a, wire.RouteKey(web)).Backends) }
	s.now = s.now.Add(time.Minute) // the site has not just started
	s.keep(s.c.Step(s.now, ChildDown{Name: b}))
	s.keep(s.c.Step(s.now, Witnessed{Suspect: b, Witness: a, Reached: true}))
	s.wait(s.c.opt.LostAfter)
	if w := s.c.workers[b]; !w.sight.CutOff() || ends() != 2 {
		t.Fatalf("cut off: %v; the route has %d ends", w.sight.CutOff(), ends())
	}
	s.restart()
	s.keep(s.c.Step(s.now, ChildUp{Hello: &wire.Hello{Name: a}}))
	s.tell(a)
	if ends() != 2 {
		t.Errorf("after the restart the route has %d ends", ends())
	}
	s.wait(s.c.opt.StartGrace)
	if ends() != 1 {
		t.Errorf("it is given up after it was not heard for long, and the route has %d ends", ends())
	}
}

// As long as a site that has just started does not know how far instances are, a worker keeps those that it has.
func TestRestartKeepsTheNearest(t *testing.T) {
	w, has := &worker{Facts: &wire.WorkerFacts{Location: &spec.Location{}}}, &wire.Route{}
	var all []backend
	for i := range wire.MaxBackends + 8 {
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		all = append(all, backend{RouteBackend: wire.RouteBackend{Addr: addr}, worker: &worker{Facts: &wire.WorkerFacts{}}})
		if i >= 8 {
			has.Backends = append(has.Backends, all[i].RouteBackend)
		}
	}
	got := map[netip.Addr]bool{}
	for _, b := range w.nearest(all, has) {
		got[b.Addr] = true
	}
	for _, b := range has.Backends {
		if !got[b.Addr] {
			t.Errorf("%s is taken out of the route; in it are %v", b.Addr, slices.Collect(maps.Keys(got)))
		}
	}
}

// A root that was restored from a backup and does not know an application takes its directory from no worker: what is there runs on.
func TestRestoredRootTakesNoDirectory(t *testing.T) {
	s := newOverlayNetSite(t)
	w := s.join(1)
	k := key("acme", "shop")
	a, n := ofRootApp(k, "acme")
	r := newRootOf(s)
	codec := wire.New()
	r.put(map[string][]byte{wire.AssignmentKey(a.ID): codec.Marshal(&a), wire.NetworkItem(k.App): codec.Marshal(&n)})
	s.want[w] = []skerry.ServiceKey{k}
	s.tell(w)
	s.do(ParentDown{})
	r.src = reconcile.NewSource("desired", "", "restored", reconcile.Options{})
	s.do(ParentUp{Welcome: &wire.Welcome{Incarnation: "restored"}})
	r.put(map[string][]byte{wire.WantedKey(key("acme", "other"), "b"): {1}})
	s.restart()
	s.keep(s.c.Step(s.now, ChildUp{Hello: &wire.Hello{Name: w}}))
	s.tell(w)
	route := item[wire.Route](s, w, wire.RouteKey(k))
	if item[wire.AppNetwork](s, w, wire.NetworkItem(k.App)) == nil || route == nil || len(route.Backends) != 1 {
		t.Errorf("its route is %+v", route)
	}
	// With the last instance the directory goes, whether the root has named it or not.
	r.put(map[string][]byte{wire.AssignmentKey(a.ID): nil})
	s.acknowledge(w)
	s.wait(moves.FarewellTime)
	s.obs[w] = nil
	s.tell(w)
	s.acknowledge(w)
	if _, _, there := s.c.Up.Desired.Get(wire.NetworkItem(k.App)); !there || s.c.places[a.ID] != nil || s.c.network(k.App) != nil {
		t.Errorf("the root has named the directory: %v; the instance is %+v", !there, s.c.places[a.ID])
	}
}
