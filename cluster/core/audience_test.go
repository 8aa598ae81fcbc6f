package core

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// farewell is a site where a copy on the first worker is to end and its worker is not told, because the second one has not confirmed that.
func farewell(t *testing.T) (s *overlayNetSite, a, b string, told func() bool) {
	t.Helper()
	s = newOverlayNetSite(t)
	a = s.join(1)
	web := key("acme", "shop")
	s.apply("acme", "shop", 1)
	s.want[a] = []skerry.ServiceKey{web}
	s.tell(a)
	b = s.join(2)
	s.now = s.now.Add(time.Minute) // the site has not just started
	s.do(DrainWorker{Name: a})
	s.want[b] = []skerry.ServiceKey{web}
	s.tell(b)
	s.acknowledge(a)
	r := item[wire.Route](s, b, wire.RouteKey(web))
	if r == nil || len(r.Backends) != 2 {
		t.Fatalf("%+v", r)
	}
	told = func() bool {
		_, has := s.c.Children.Get(a).Desired.Get(wire.AssignmentKey(r.Backends[0].Instance))
		return !has
	}
	if told() {
		t.Fatal("its worker was told before others know")
	}
	t.Cleanup(func() {
		for _, x := range s.c.Audit() {
			t.Error(x)
		}
	})
	return s, a, b, told
}

// A worker that confirms nothing holds up the end of a copy for a bounded time, and one that is lost for none.
func TestFarewellIsBounded(t *testing.T) {
	s, _, _, told := farewell(t)
	s.now = s.now.Add(moves.FarewellTime - time.Millisecond)
	s.keep(s.c.Tick(s.now))
	if told() {
		t.Error("its worker was told too early")
	}
	if due := s.c.NextWake(); due.IsZero() || due.After(s.now.Add(time.Millisecond)) {
		t.Errorf("the core wakes at %v", due)
	}
	s.now = s.now.Add(time.Millisecond)
	s.keep(s.c.Tick(s.now))
	if !told() {
		t.Error("its worker waits for ever")
	}
}

// What is told of the service may change faster than it is confirmed: it is enough that the end of the copy is.
func TestFarewellInABusyService(t *testing.T) {
	s, _, b, told := farewell(t)
	k := s.c.Children.Get(b)
	ack := &wire.SetAck{Set: members.Desired, Incarnation: k.Desired.Incarnation(), Gen: k.Desired.Gen(), Digest: k.Desired.Digest()}
	s.c.Children.Delete(b, wire.RouteKey(key("acme", "shop")))
	if s.keep(s.c.Step(s.now, ChildFrame{Name: b, Msg: ack})); !told() {
		t.Error("it waits for what was told later")
	}
}

func TestFarewellDoesNotWaitForTheLost(t *testing.T) {
	s, _, b, told := farewell(t)
	s.keep(s.c.Step(s.now, ChildDown{Name: b}))
	if told() {
		t.Error("a worker that may be back in a moment was not waited for")
	}
	for range 100 {
		if told() {
			break
		}
		s.now = s.now.Add(100 * time.Millisecond)
		s.keep(s.c.Tick(s.now))
	}
	if w := s.c.workers[b]; !told() || !w.sight.Lost() {
		t.Errorf("told: %v, lost: %v", told(), w.sight.Lost())
	}
	if p := s.c.farewells; !p.Due().IsZero() {
		t.Errorf("something is still due at %v", p.Due())
	}
}

// What has ended by itself meanwhile is not started again.
func TestFarewellOfWhatHasEnded(t *testing.T) {
	s, a, _, told := farewell(t)
	s.send(a, nil)
	if !told() {
		t.Error("its worker would start it again")
	}
}

// What must not run twice, and must end because the root is out of touch, is not held up by whoever has not confirmed that: the root counts
// on it.
func TestNoFarewellWithoutTheRoot(t *testing.T) {
	site := newOverlayNetSite(t)
	a := site.join(1)
	web := key("acme", "shop")
	site.apply("acme", "shop", 1)
	site.want[a] = []skerry.ServiceKey{web}
	site.tell(a)
	id := item[wire.Route](site, a, wire.RouteKey(web)).Backends[0].Instance
	p := site.c.places[id]
	p.Origin, p.A.Failover, p.A.Spec.OnDisconnect = "root", true, spec.StopAfter(20*time.Second)
	site.c.lifecycle.boundTo(p)
	site.now = site.now.Add(wire.AutonomyGrace)
	site.keep(site.c.Tick(site.now))
	if p.Obs.Phase != skerry.PhaseCutOff {
		t.Fatalf("it is to run on: %+v", p.Obs)
	}
	if _, has := site.c.Children.Get(a).Desired.Get(wire.AssignmentKey(id)); has {
		t.Error("its worker is not told to end it")
	}
}

// Another site confirms what it was sent when the copy was to end, or what it was sent later. One that has never confirmed anything, or has
// left, is not waited for.
func TestConfirmationsOfASite(t *testing.T) {
	here, there := twoSites(t)
	web, to := key("acme", "shop"), audience{here.overlay}
	send := func(mail string) uint64 {
		if _, err := here.Up.Observed.Put(wire.MailTo("b", wire.TopicRoute(web)), []byte(mail)); err != nil {
			t.Fatal(err)
		}
		return to.Sent("b/", web)
	}
	confirm := func(sum uint64) {
		topic := wire.TopicHeard(web)
		here.remoteItem(wire.MailFrom("b", topic), sealed(t, there, "a", topic, &wire.HeardRoute{Service: web, Mail: sum}), false)
	}
	before := send("it runs")
	ends := send("it ends")
	expect := func(after string, waits bool) {
		t.Helper()
		if to.Waits("b/", web, ends) != waits {
			t.Errorf("%s: it is waited for: %v", after, !waits)
		}
	}
	expect("no confirmation at all", false)
	confirm(before)
	expect("the confirmation of what was sent before", true)
	confirm(ends)
	expect("the confirmation", false)
	later := send("it ends, and another one is busy")
	expect("another mail", false)
	confirm(later)
	expect("its confirmation", false)
	confirm(before)
	here.remoteItem(wire.SiteKey("b"), nil, true)
	expect("its end", false)
}

// A site confirms a route of another one by a mail of its own: however often routes change, and however many workers exchange packets with
// the other site, what it wrote of them is not sent again. With the route the confirmation ends.
func TestConfirmationIsAllThatIsSent(t *testing.T) {
	s := newOverlayNetSite(t)
	w := s.join(1)
	web := key("acme", "shop")
	s.apply("acme", "shop", 1)
	s.want[w] = []skerry.ServiceKey{web}
	s.tell(w)
	r := newRootOf(s)
	b := r.neighbour("b", "10.64.16.0/20")
	mine := netip.MustParsePrefix("10.64.16.0/26")
	changed := func(load float64) (keys []string) {
		end := wire.RouteBackend{Peer: 3, Addr: mine.Addr(), Load: load}
		route := wire.RemoteRoute{Route: wire.Route{Service: web, Net: wire.LocalNetworks, Backends: []wire.RouteBackend{end}},
			Peers: []wire.RemotePeer{{ID: 3, Key: wire.OverlayKey{3}, Prefixes: []netip.Prefix{mine}}}}
		was := map[string][]byte{}
		for _, k := range s.c.Up.Observed.Keys() {
			was[k], _ = s.c.Up.Observed.Get(k)
		}
		topic := wire.TopicRoute(web)
		r.put(map[string][]byte{wire.MailFrom("b", topic): sealed(t, b, s.c.opt.Name, topic, &route)})
		s.acknowledge(w)
		for _, k := range s.c.Up.Observed.Keys() {
			if v, _ := s.c.Up.Observed.Get(k); string(v) != string(was[k]) {
				keys = append(keys, k)
			}
		}
		return keys
	}
	confirmation := wire.MailTo("b", wire.TopicHeard(web))
	if keys := changed(0); !slices.Contains(keys, confirmation) || !slices.Contains(keys, wire.MailTo("b", wire.TopicPeers)) {
		t.Fatalf("at first it sends %v", keys)
	}
	for i := range 3 {
		if keys := changed(float64(i+1) / 8); !slices.Equal(keys, []string{confirmation}) {
			t.Errorf("after a change of the load it sends %v", keys)
		}
	}
	r.put(map[string][]byte{wire.MailFrom("b", wire.TopicRoute(web)): nil})
	if _, ok := s.c.Up.Observed.Get(confirmation); ok {
		t.Error("it confirms a route that was withdrawn")
	}
}
