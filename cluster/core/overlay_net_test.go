package core

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// overlayNetSite is a site whose workers take part in the overlay, and say that what they are given runs.
type overlayNetSite struct {
	*peersSite
	src  map[string]*reconcile.Source
	obs  map[string]map[skerry.InstanceID]wire.Observation
	want map[string][]skerry.ServiceKey
	each skerry.MilliCPU // of every instance
}

func newOverlayNetSite(t testing.TB) *overlayNetSite {
	s := &overlayNetSite{peersSite: newPeersSite(t), src: map[string]*reconcile.Source{},
		obs: map[string]map[skerry.InstanceID]wire.Observation{}, want: map[string][]skerry.ServiceKey{}, each: 50}
	s.c.opt.Admission = Admission{Trusted: []string{"acme", "other"}}
	for _, org := range []string{"acme", "other"} {
		s.do(apps.PutOrg{Org: apps.Org{Name: org}})
		s.do(apps.PutNamespace{Namespace: apps.Namespace{Name: org, Org: org}})
	}
	return s
}

func (s *overlayNetSite) do(msg any) {
	s.t.Helper()
	fx := s.c.Step(s.now, msg)
	if fx.Err != nil {
		s.t.Fatal(fx.Err)
	}
	s.keep(fx)
}

func (s *overlayNetSite) join(n int, networks ...string) string {
	name := fmt.Sprint("w", n)
	f := &wire.OverlayFacts{Key: wire.OverlayKey{byte(n)},
		Endpoints: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 7446)}}
	for _, p := range networks {
		f.Networks = append(f.Networks, netip.MustParsePrefix(p))
	}
	s.keep(s.c.Step(s.now, ChildUp{Hello: &wire.Hello{Name: name}}))
	s.report(name, wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}},
		Capacity: spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB}, Overlay: f}})
	return name
}

// item reads an item of a worker's desired set.
func item[T any](s *overlayNetSite, name, key string) *T {
	v, ok := s.c.Children.Get(name).Desired.Get(key)
	if !ok {
		return nil
	}
	out := new(T)
	if err := wire.New().Unmarshal(v, out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// tell has a worker report all that it is to run, at an address each, and all that it wants.
func (s *overlayNetSite) tell(name string) {
	items := map[string][]byte{}
	node := item[wire.OverlayNode](s, name, wire.NodeKey)
	if s.obs[name] == nil {
		s.obs[name] = map[skerry.InstanceID]wire.Observation{}
	}
	for _, key := range s.c.Children.Get(name).Desired.Keys() {
		if !strings.HasPrefix(key, "inst/") {
			continue
		}
		a := item[spec.Assignment](s, name, key)
		o, ok := s.obs[name][a.ID]
		if !ok {
			addr := node.Blocks[0].Addr()
			for range len(s.obs[name]) {
				addr = addr.Next()
			}
			o = wire.Observation{ID: a.ID, Address: addr.String(), State: skerry.Running, Ready: true}
		}
		o.Gen, o.Fence = a.Gen, a.Fence
		s.obs[name][a.ID] = o
	}
	codec := wire.New()
	for id, o := range s.obs[name] {
		items[wire.AssignmentKey(id)] = codec.Marshal(&o)
	}
	for _, k := range s.want[name] {
		items[wire.WantKey(k)] = codec.Marshal(&wire.Want{Service: k})
	}
	s.send(name, items)
}

func (s *overlayNetSite) apply(ns, name string, replicas int, export ...spec.Export) {
	s.applyImporting(ns, name, nil, replicas, export...)
}

func (s *overlayNetSite) applyImporting(ns, name string, imports []spec.Import, replicas int, export ...spec.Export) {
	svc := spec.ServiceSpec{Name: "web", Replicas: &replicas, Export: export, Resources: spec.Resources{CPU: s.each, Memory: 8 * skerry.MiB}}
	svc.Image = "web:1"
	s.do(apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: name, Namespace: ns}, Spec: spec.ApplicationSpec{Imports: imports, Services: []spec.ServiceSpec{svc}}}})
}

func key(ns, app string) skerry.ServiceKey {
	return skerry.ServiceKey{App: skerry.AppKey{Namespace: ns, Name: app}, Service: "web"}
}

func TestRoutesGoToThoseWhoWantThem(t *testing.T) {
	s := newOverlayNetSite(t)
	a, b := s.join(1, "10.0.0.0/8"), s.join(2)
	if n := item[wire.OverlayNode](s, a, wire.NodeKey); n != nil && len(n.Blocks) > 0 {
		t.Errorf("a host that is in all of the pool has blocks %v", n.Blocks)
	}
	s.report(a, wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}},
		Capacity: spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB},
		Overlay:  &wire.OverlayFacts{Key: wire.OverlayKey{1}, Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}})
	na, nb := item[wire.OverlayNode](s, a, wire.NodeKey), item[wire.OverlayNode](s, b, wire.NodeKey)
	if na == nil || nb == nil || len(na.Blocks) != 1 || len(nb.Blocks) != 1 || na.Blocks[0] == nb.Blocks[0] || na.V6 == nb.V6 ||
		na.ID == nb.ID {
		t.Fatalf("%+v\n%+v", na, nb)
	}
	s.each = 1500 // two on each
	s.apply("acme", "shop", 4)
	s.tell(a)
	s.tell(b)
	net := item[wire.AppNetwork](s, a, wire.NetworkItem(key("acme", "shop").App))
	if net == nil || net.Net != wire.LocalNetworks || len(net.Services) != 1 || len(net.Services[0].Instances) != 4 ||
		!net.Services[0].Closest.IsValid() {
		t.Fatalf("%+v", net)
	}
	web := key("acme", "shop")
	if item[wire.Route](s, a, wire.RouteKey(web)) != nil || item[wire.OverlayPeer](s, a, wire.OverlayPeerKey(nb.ID)) != nil {
		t.Error("a worker that wants nothing is told something")
	}
	s.want[a] = []skerry.ServiceKey{web}
	s.tell(a)
	r := item[wire.Route](s, a, wire.RouteKey(web))
	if r == nil || r.Net != net.Net || len(r.Backends) != 4 {
		t.Fatalf("%+v", r)
	}
	for _, e := range r.Backends {
		n := na
		if e.Peer == nb.ID {
			n = nb
		}
		if !n.Blocks[0].Contains(e.Addr) || !n.V6.Contains(e.Addr6) || e.Draining {
			t.Errorf("%+v is not of %+v", e, n)
		}
	}
	// Both ends of a path know each other.
	pa, pb := item[wire.OverlayPeer](s, a, wire.OverlayPeerKey(nb.ID)), item[wire.OverlayPeer](s, b, wire.OverlayPeerKey(na.ID))
	if pa == nil || pb == nil || pa.Key != (wire.OverlayKey{2}) || pb.Key != (wire.OverlayKey{1}) ||
		!slices.Contains(pa.Prefixes, nb.Blocks[0]) || pa.Plain.IsValid() {
		t.Fatalf("%+v\n%+v", pa, pb)
	}
	// Not ready: it keeps its flows and gets no new ones. Gone: it is not listed.
	var some skerry.InstanceID
	for id := range s.obs[b] {
		some = id
	}
	o := s.obs[b][some]
	o.Ready = false
	s.obs[b][some] = o
	s.tell(b)
	if r = item[wire.Route](s, a, wire.RouteKey(web)); len(r.Backends) != 4 ||
		!slices.ContainsFunc(r.Backends, func(e wire.RouteBackend) bool { return e.Instance == some && e.Draining }) {
		t.Errorf("%+v", r)
	}
	o.State, o.Address = skerry.Running, "10.200.0.1"
	s.obs[b][some] = o
	s.tell(b)
	if r = item[wire.Route](s, a, wire.RouteKey(web)); len(r.Backends) != 3 {
		t.Errorf("a worker gives others an address that is not its own: %+v", r)
	}
	// Another life of the orchestrator knows all that again.
	s.start()
	s.c.opt.Admission = Admission{Trusted: []string{"acme", "other"}}
	for _, name := range []string{a, b} {
		s.keep(s.c.Step(s.now, ChildUp{Hello: &wire.Hello{Name: name}}))
		s.tell(name)
	}
	if r = item[wire.Route](s, a, wire.RouteKey(web)); r == nil || len(r.Backends) != 3 ||
		item[wire.OverlayPeer](s, b, wire.OverlayPeerKey(na.ID)) == nil {
		t.Errorf("%+v", r)
	}
	// No longer wanted: nothing is left, at either end.
	s.want[a] = nil
	s.tell(a)
	if item[wire.Route](s, a, wire.RouteKey(web)) != nil || item[wire.OverlayPeer](s, a, wire.OverlayPeerKey(nb.ID)) != nil ||
		item[wire.OverlayPeer](s, b, wire.OverlayPeerKey(na.ID)) != nil {
		t.Error("something is left")
	}
	if faults := s.c.Audit(); len(faults) > 0 {
		t.Error(faults)
	}
}

// A worker is told of the nearest instances of a service; those that end are the last choice, however near they are.
func TestNearestInstancesAreTold(t *testing.T) {
	at := func(lat int) *worker {
		w := &worker{Facts: &wire.WorkerFacts{Location: &spec.Location{Lat: float64(lat)}}}
		w.reportAt = time.Unix(1, 0)
		return w
	}
	var all []backend
	for i := range wire.MaxBackends + 8 { // from the nearest on, of which four end
		b := wire.RouteBackend{Draining: i < 4, Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}
		all = append(all, backend{b, at(i + 1), fmt.Sprint(i)})
	}
	slices.Reverse(all)
	got := at(0).nearest(all, nil)
	if len(got) != wire.MaxBackends {
		t.Fatalf("%d instances", len(got))
	}
	for i, b := range got {
		if b.name != fmt.Sprint(i+4) {
			t.Errorf("place %d is taken by instance %s", i, b.name)
		}
	}
	if few := all[:2]; !slices.Equal(at(0).nearest(few, nil), few) {
		t.Error("few instances were chosen from")
	}

	// What a worker has stays, although others are somewhat nearer by now, and while it drains.
	has := newRoute(skerry.ServiceKey{}, 1, got)
	for i := range all {
		switch all[i].name {
		case "7":
			all[i].worker = at(60)
		case "35":
			all[i].worker, all[i].Draining = at(63), true // and it is far away
		}
	}
	names := func(list []backend) (out []string) {
		for _, b := range list {
			out = append(out, b.name)
		}
		slices.Sort(out)
		return out
	}
	if now := at(0).nearest(all, has); !slices.Equal(names(now), names(got)) {
		t.Errorf("with %v it changes to %v", names(got), names(now))
	}
	for i := range all {
		if all[i].name == "7" {
			all[i].worker = at(89)
		}
	}
	if now := names(at(0).nearest(all, has)); slices.Contains(now, "7") || !slices.Contains(now, "36") {
		t.Errorf("one that is far away now stays: %v", now)
	}
}

func TestRoutesOfOthers(t *testing.T) {
	s := newOverlayNetSite(t)
	a := s.join(1)
	s.apply("acme", "shop", 1)
	s.tell(a)
	b := s.join(2)
	s.do(CordonWorker{Name: a, Reason: "full"})
	s.apply("other", "spy", 1)
	s.tell(b)
	web := key("acme", "shop")
	s.want[b] = []skerry.ServiceKey{web}
	s.tell(b)
	if r := item[wire.Route](s, b, wire.RouteKey(web)); r != nil {
		t.Fatalf("a worker that runs nothing of the application is told %+v", r)
	}
	// An export opens the way, for the organisation that it names.
	s.apply("acme", "shop", 1, spec.Export{To: "other/spy"})
	if r := item[wire.Route](s, b, wire.RouteKey(web)); r != nil {
		t.Fatalf("an export within an organisation reaches another: %+v", r)
	}
	s.apply("acme", "shop", 1, spec.Export{To: "other/*", Org: "other"})
	if r := item[wire.Route](s, b, wire.RouteKey(web)); r != nil {
		t.Fatalf("an application is shown an export that it did not ask for: %+v", r)
	}
	s.applyImporting("other", "spy", []spec.Import{{From: "acme/*", Org: "acme"}}, 1)
	s.tell(b)
	s.tell(a)
	net := item[wire.AppNetwork](s, b, wire.NetworkItem(key("other", "spy").App))
	if len(net.Services) != 2 || net.Services[1].Of != web || net.Services[1].Short || !net.Services[1].RoundRobin.IsValid() {
		t.Fatalf("%+v", net)
	}
	r := item[wire.Route](s, b, wire.RouteKey(web))
	if r == nil || len(r.Backends) != 1 || r.Net == net.Net {
		t.Fatalf("%+v", r)
	}
	directory := item[wire.AppNetwork](s, a, wire.NetworkItem(web.App))
	if !slices.Equal(directory.Services[0].Allow, []wire.NetworkID{net.Net}) {
		t.Errorf("the instance lets in %v, not %d", directory.Services[0].Allow, net.Net)
	}
	s.apply("acme", "shop", 1)
	if r := item[wire.Route](s, b, wire.RouteKey(web)); r != nil {
		t.Errorf("the export is gone, and its route is not: %+v", r)
	}
	if directory := item[wire.AppNetwork](s, a, wire.NetworkItem(web.App)); len(directory.Services[0].Allow) != 0 {
		t.Errorf("the export is gone, and %v are let in", directory.Services[0].Allow)
	}
}

// A host that comes later, from a network in which instances have addresses already, is told of once.
func TestHostsInNetworksOfInstances(t *testing.T) {
	s := newOverlayNetSite(t)
	a := s.join(1)
	b := item[wire.OverlayNode](s, a, wire.NodeKey).Blocks[0]
	name := s.join(2)
	told := 0
	for n := range 3 {
		r := wire.WorkerReport{Facts: &wire.WorkerFacts{Arch: "amd64", Capacity: spec.Resources{CPU: skerry.MilliCPU(1000 + n)},
			Overlay: &wire.OverlayFacts{Key: wire.OverlayKey{byte(n)},
				Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.PrefixFrom(b.Addr(), 20).Masked()}}}}
		fx := s.c.Step(s.now, ChildFrame{Name: name, Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&r)}})
		for _, e := range fx.Events {
			if e.Reason == "AddressesInUse" && strings.Contains(e.Text, b.String()) && strings.Contains(e.Text, a) {
				told++
			}
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// TestHostComesToANetworkOfItsInstances: a worker whose host gets a route to addresses of its own block is given another.
func TestHostComesToANetworkOfItsInstances(t *testing.T) {
	s := newOverlayNetSite(t)
	a := s.join(1)
	was := item[wire.OverlayNode](s, a, wire.NodeKey).Blocks[0]
	networks := []netip.Prefix{}
	move := func(to netip.Prefix) netip.Prefix {
		t.Helper()
		networks = append(networks, to)
		facts := *s.c.workers[a].Facts
		facts.Overlay = &wire.OverlayFacts{Key: wire.OverlayKey{1}, Networks: slices.Clone(networks)}
		s.report(a, wire.WorkerReport{Facts: &facts})
		blocks := item[wire.OverlayNode](s, a, wire.NodeKey).Blocks
		if len(blocks) != 1 {
			t.Fatalf("it has the blocks %v", blocks)
		}
		return blocks[0]
	}
	now := move(was)
	if now == was {
		t.Fatalf("it is to give addresses of %s, a network that its host is in", was)
	}
	taken := func() {
		s.tell(a)
		s.acknowledge(a)
		s.report(a, wire.WorkerReport{})
	}
	s.apply("acme", "shop", 2)
	taken()
	if left := s.c.workers[a].Blocks; len(left) != 1 {
		t.Errorf("it keeps %v, of which nothing has an address", left)
	}
	// One that is in ever other networks does not use up the addresses of the site.
	for range 80 {
		now = move(now)
		taken()
	}
	if n := s.c.overlayNet.Blocks.Resting(s.now, a); n > 5 || len(s.c.overlayNet.Extents) > 1 {
		t.Errorf("%d blocks rest, the site has the extents %v", n, s.c.overlayNet.Extents)
	}
	s.now = s.now.Add(blockRest)
	taken()
	if b := item[wire.OverlayNode](s, a, wire.NodeKey).Blocks; len(b) != 1 || s.c.workers[a].overlaps(b[0]) {
		t.Errorf("its blocks have rested, and it is to give addresses of %v yet", b)
	}
}

// TestHostInAllThatTheSiteHas: a worker that says, whenever it may have another block, that its host is in all networks of which the site
// gives addresses has the site take some further ones, and not all that there are.
func TestHostInAllThatTheSiteHas(t *testing.T) {
	s := newOverlayNetSite(t)
	a := s.join(1)
	for range 3 * spareExtents {
		facts := *s.c.workers[a].Facts
		facts.Overlay = &wire.OverlayFacts{Key: wire.OverlayKey{1}, Networks: slices.Clone(s.c.overlayNet.Extents)}
		s.report(a, wire.WorkerReport{Facts: &facts})
		s.send(a, map[string][]byte{})
		s.acknowledge(a)
		s.report(a, wire.WorkerReport{})
		s.now = s.now.Add(blockRest)
	}
	if n := len(s.c.overlayNet.Extents); n < 2 || n > spareExtents+1 {
		t.Errorf("the site has %d extents, for one worker", n)
	}
	if node := item[wire.OverlayNode](s, s.join(2), wire.NodeKey); len(node.Blocks) == 0 {
		t.Error("another worker has no block of addresses")
	}
}

// TestHostInAllNetworks: what one worker says of its networks does not keep the others from their addresses.
func TestHostInAllNetworks(t *testing.T) {
	s := newOverlayNetSite(t)
	s.join(1, "0.0.0.0/0")
	b := s.join(2)
	if node := item[wire.OverlayNode](s, b, wire.NodeKey); len(node.Blocks) == 0 {
		t.Fatal("it has no block of addresses")
	}
}

func TestTagsTurnWithoutAGap(t *testing.T) {
	s := newOverlayNetSite(t)
	s.c.opt.Trusted = true
	for _, n := range []int{1, 2} {
		name := s.join(n)
		f := *s.c.workers[name].Facts
		f.Overlay.Plain = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 4789)
	}
	a, b := s.c.workers["w1"], s.c.workers["w2"]
	s.wait(tagTurn)
	last := s.c.peerFor(a, b)
	seen := map[uint64]bool{}
	for range 20 {
		s.wait(tagTurn)
		now := s.c.peerFor(b, a)
		if seen[last.TagOut] = true; !slices.Contains(now.TagsIn, last.TagOut) {
			t.Fatal("who has not been told yet is not understood")
		}
		next := s.c.peerFor(a, b)
		if !slices.Contains(now.TagsIn, next.TagOut) || next.TagOut == now.TagOut {
			t.Fatal("tags do not fit")
		}
		last = next
	}
	if len(seen) < 9 {
		t.Errorf("%d tags in 20 half turns", len(seen))
	}
}

func TestRemovedWorkersBlocksRest(t *testing.T) {
	s := newOverlayNetSite(t)
	a := s.join(1)
	s.apply("acme", "shop", 30)
	s.tell(a)
	if n := item[wire.OverlayNode](s, a, wire.NodeKey); len(n.Blocks) != 1 {
		t.Errorf("%v", n.Blocks)
	}
	s.apply("acme", "more", 30)
	s.tell(a)
	n := item[wire.OverlayNode](s, a, wire.NodeKey)
	if len(n.Blocks) != 2 {
		t.Fatalf("60 instances have %v", n.Blocks)
	}
	// With fewer instances it gives one back, once nothing has an address of it.
	s.do(apps.Delete{Key: key("acme", "more").App})
	s.do(apps.Delete{Key: key("acme", "shop").App})
	s.obs[a] = nil
	s.tell(a)
	for range 3 {
		s.acknowledge(a)
		s.report(a, wire.WorkerReport{})
	}
	if m := item[wire.OverlayNode](s, a, wire.NodeKey); len(m.Blocks) != 1 || len(s.c.workers[a].Blocks) != 1 {
		t.Errorf("it keeps %v, known as %v", m.Blocks, s.c.workers[a].Blocks)
	}
	s.keep(s.c.Step(s.now, ChildDown{Name: a}))
	s.do(RemoveWorker{Name: a})
	b := s.join(2)
	if m := item[wire.OverlayNode](s, b, wire.NodeKey); slices.Contains(n.Blocks, m.Blocks[0]) || m.ID == n.ID {
		t.Errorf("addresses are given anew at once: %v, %v", n, m)
	}
	s.now = s.now.Add(blockRest + time.Minute)
	c := s.join(3)
	if m := item[wire.OverlayNode](s, c, wire.NodeKey); !slices.Contains(n.Blocks, m.Blocks[0]) {
		t.Errorf("addresses rest for ever: %v, %v", n, m)
	}
}

// send brings what a worker reports to the core.
func (s *overlayNetSite) send(name string, items map[string][]byte) {
	src := s.src[name]
	if src == nil {
		src = reconcile.NewSource(members.Observed, "", skerry.Incarnation(name), reconcile.Options{})
		s.src[name] = src
	}
	for k, v := range items {
		if _, err := src.Put(k, v); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, k := range src.Keys() {
		if items[k] == nil {
			src.Delete(k)
		}
	}
	src.Connect(s.now, s.c.Children.Get(name).Observed.State())
	for msgs := src.Next(s.now); len(msgs) > 0; msgs = src.Next(s.now) {
		for _, m := range msgs {
			fx := s.c.Step(s.now, ChildFrame{Name: name, Msg: m})
			s.keep(fx)
			for _, out := range fx.Sends {
				if msg, ok := out.Msg.(wire.Message); ok && out.To == name {
					src.Handle(s.now, msg)
				}
			}
		}
	}
	src.Disconnect()
}

// acknowledge has a worker confirm its desired set.
func (s *overlayNetSite) acknowledge(name string) {
	k := s.c.Children.Get(name)
	ack := &wire.SetAck{Set: members.Desired, Incarnation: k.Desired.Incarnation(), Gen: k.Desired.Gen(), Digest: k.Desired.Digest()}
	s.keep(s.c.Step(s.now, ChildFrame{Name: name, Msg: ack}))
}

// A copy that was migrated away serves for as long as requests are under way to it: its worker stays in the application's
// network until it has ended, and the way to it is told as one that drains.
func TestMigratedCopyIsReachableUntilItEnds(t *testing.T) {
	s := newOverlayNetSite(t)
	a := s.join(1)
	web := key("acme", "shop")
	s.apply("acme", "shop", 1)
	s.want[a] = []skerry.ServiceKey{web}
	s.tell(a)
	b := s.join(2)
	s.do(DrainWorker{Name: a})
	s.want[b] = []skerry.ServiceKey{web}
	s.tell(b)
	r := item[wire.Route](s, b, wire.RouteKey(web))
	if r == nil || len(r.Backends) != 2 || r.Backends[0].Draining == r.Backends[1].Draining {
		t.Fatalf("%+v", r)
	}
	if item[wire.AppNetwork](s, a, wire.NetworkItem(web.App)) == nil {
		t.Error("the worker has left the network of what it still runs")
	}
	// Its worker is told when both that have the route have confirmed that it drains.
	for _, who := range []string{"", a, b} {
		if who != "" {
			s.acknowledge(who)
		}
		if _, has := s.c.Children.Get(a).Desired.Get(wire.AssignmentKey(r.Backends[0].Instance)); has != (who != b) {
			t.Errorf("after the word of %q the first copy is to run: %v", who, has)
		}
	}
	delete(s.obs, a)
	s.want[a] = nil
	s.tell(a)
	s.acknowledge(a)
	if r := item[wire.Route](s, b, wire.RouteKey(web)); len(r.Backends) != 1 || item[wire.AppNetwork](s, a, wire.NetworkItem(web.App)) != nil {
		t.Errorf("something is left: %+v", r)
	}
	if faults := s.c.Audit(); len(faults) > 0 {
		t.Error(faults)
	}
}
