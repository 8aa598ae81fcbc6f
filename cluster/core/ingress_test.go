package core

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// ingressSite is a site of workers with and without an ingress.
type ingressSite struct {
	apart bool // each application names an area of its own
	*overlayNetSite
	events []wire.Event
	states map[string]*wire.IngressState
}

func newIngressSite(t *testing.T) *ingressSite {
	s := &ingressSite{overlayNetSite: newOverlayNetSite(t), states: map[string]*wire.IngressState{}}
	s.c.ingress.Start(&wire.IngressCertificate{CertPEM: []byte("certificate"), KeyPEM: []byte("key")})
	s.each = 50
	return s
}

func (s *ingressSite) ingressWorker(n int) string {
	name := s.join(n)
	f := *s.c.workers[name].Facts
	o := *f.Overlay
	o.Ingress = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})}
	o.Networks = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("172.16.%d.0/24", n))}
	f.Overlay = &o
	s.report(name, wire.WorkerReport{Facts: &f})
	return name
}

// offer applies an application whose only service has ways in.
func (s *ingressSite) offer(ns, name string, list ...spec.Ingress) {
	s.t.Helper()
	n := 1
	svc := spec.ServiceSpec{Name: "web", Replicas: &n, Ingress: list, Ports: []spec.Port{{Name: "http", Port: 80}}, Resources: spec.Resources{CPU: s.each, Memory: 8 * skerry.MiB}}
	svc.Image = "web:1"
	for _, way := range list {
		if way.Alias != "" {
			svc.Aliases = append(svc.Aliases, way.Alias)
		}
	}
	if s.apart {
		svc.Placement.Area = ns + "-" + name
	}
	fx := s.c.Step(s.now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: name, Namespace: ns}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{svc}}}})
	if fx.Err != nil {
		s.t.Fatal(fx.Err)
	}
	s.keep(fx)
	s.events = append(s.events, fx.Events...)
}

// readmit has the site look at everything again, as after a start with another admission policy.
func (s *ingressSite) readmit() {
	s.c.ingress = network.NewIngress(ingressView{s.c.overlay})
	for k, v := range s.kv {
		if k == network.KeyIngress && s.c.ingress.Load(v) != nil {
			s.t.Errorf("%s cannot be read", k)
		}
	}
	s.keep(s.c.Tick(s.now))
	s.c.ingressesChanged()
	s.keep(s.c.Tick(s.now))
}

// entries are the ways in that a worker is told to offer.
func (s *ingressSite) entries(worker string) string {
	var out []string
	for _, key := range s.c.Children.Get(worker).Desired.Keys() {
		if !strings.HasPrefix(key, "net/") {
			continue
		}
		n := item[wire.AppNetwork](s.overlayNetSite, worker, key)
		for _, v := range n.Services {
			for _, g := range v.Ingress {
				out = append(out, n.App.String()+" "+g.Entry())
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// serve has a worker say what it offers.
func (s *ingressSite) serve(worker string, st wire.IngressState) {
	items := map[string][]byte{wire.IngressKey: wire.New().Marshal(&st)}
	for id, o := range s.obs[worker] {
		items[wire.AssignmentKey(id)] = wire.New().Marshal(&o)
	}
	for _, k := range s.want[worker] {
		items[wire.WantKey(k)] = wire.New().Marshal(&wire.Want{Service: k})
	}
	s.send(worker, items)
}

func (s *ingressSite) why(ns, app string) (out []string) {
	for _, v := range s.c.ingress.Views(key(ns, app).App)["web"] {
		out = append(out, fmt.Sprint(v.Host, v.Path, " at ", v.At, " ", v.Problems))
	}
	return out
}

func web(host, path string) spec.Ingress {
	return spec.Ingress{Host: host, Path: path, Port: "http"}
}

func TestWaysInGoToWorkersThatOfferThem(t *testing.T) {
	s := newIngressSite(t)
	a, b := s.ingressWorker(1), s.join(2)
	self := web("safe.example.org", "/")
	self.TLS = spec.TLSSelf
	s.offer("acme", "shop", web("shop.example.org", "/"), self)
	s.tell(a)
	s.tell(b)
	if got := s.entries(a); got != "acme/shop 443 safe.example.org, acme/shop 80 shop.example.org" {
		t.Errorf("told %s", got)
	}
	if got := s.entries(b); got != "" {
		t.Errorf("a worker without an ingress is told %s", got)
	}
	app := key("acme", "shop").App
	if n := item[wire.AppNetwork](s.overlayNetSite, a, wire.NetworkItem(app)); n.Authority == nil || len(n.Authority.KeyPEM) == 0 {
		t.Errorf("no authority: %+v", n)
	}
	if n := item[wire.AppNetwork](s.overlayNetSite, b, wire.NetworkItem(app)); n != nil && (n.Authority != nil || len(n.Certificates) > 0) {
		t.Error("a worker without an ingress is told keys")
	}
	// It may have the routes, whether it runs something of the application or not; others may not.
	k := key("acme", "shop")
	s.want[a], s.want[b] = []skerry.ServiceKey{k}, []skerry.ServiceKey{k}
	s.tell(a)
	s.tell(b)
	runs := map[string]bool{}
	for name := range s.obs {
		runs[name] = len(s.obs[name]) > 0
	}
	if item[wire.Route](s.overlayNetSite, a, wire.RouteKey(k)) == nil {
		t.Error("the ingress has no routes")
	}
	if r := item[wire.Route](s.overlayNetSite, b, wire.RouteKey(k)); (r != nil) != runs[b] {
		t.Errorf("%s runs something: %v, and has %+v", b, runs[b], r)
	}
	// What it says decides where clients are led.
	if got := fmt.Sprint(s.why("acme", "shop")); !strings.Contains(got, "shop.example.org/ at [] [worker w1 does not serve it yet]") {
		t.Error(got)
	}
	s.serve(a, wire.IngressState{Serving: []skerry.AppKey{app}, Problems: []wire.IngressProblem{{Service: k, Entry: "443 safe.example.org", Text: "port 443 is taken"}}})
	if got := fmt.Sprint(s.why("acme", "shop")); !strings.Contains(got, "shop.example.org/ at [w1] []") || !strings.Contains(got, "safe.example.org/ at [] [w1: port 443 is taken]") {
		t.Error(got)
	}
	hosts := s.c.ingress.Hosts()
	if len(hosts) != 2 || hosts[0].Host != "safe.example.org" || hosts[0].Entries[0].Healthy || !hosts[1].Entries[0].Healthy || hosts[1].Entries[0].Addrs[0].String() != "192.0.2.1" {
		t.Errorf("%+v", hosts)
	}
	// A worker that stops to let clients in is told nothing any more.
	f := *s.c.workers[a].Facts
	o := *f.Overlay
	o.Ingress, f.Overlay = nil, &o
	s.report(a, wire.WorkerReport{Facts: &f})
	if got := s.entries(a); got != "" {
		t.Errorf("told %s", got)
	}
	if got := fmt.Sprint(s.why("acme", "shop")); !strings.Contains(got, "no worker has an ingress") {
		t.Error(got)
	}
}

// A worker that knows no aliases would lead clients of one to a single service. It does not offer ways in to one, and is not given their
// names; what else it offers stays.
func TestWaysInToAliasesNeedWorkersThatKnowThem(t *testing.T) {
	s := newIngressSite(t)
	older, newer := s.ingressWorker(1), s.ingressWorker(2)
	facts := *s.c.workers[newer].Facts
	facts.Features = []string{spec.FeatureAliases}
	s.report(newer, wire.WorkerReport{Facts: &facts})
	alias := web("alias.example", "")
	alias.Alias = "front"
	s.offer("acme", "shop", web("own.example", ""), alias)
	if got := s.entries(older); !strings.Contains(got, "own.example") || strings.Contains(got, "alias.example") {
		t.Errorf("the older worker offers %s", got)
	}
	if got := s.entries(newer); !strings.Contains(got, "own.example") || !strings.Contains(got, "alias.example") {
		t.Errorf("the newer worker offers %s", got)
	}
	s.tell(newer)                                 // it runs there
	for _, name := range []string{older, newer} { // the older one serves the application, and nothing of the alias
		s.serve(name, wire.IngressState{Serving: []skerry.AppKey{key("acme", "shop").App}})
	}
	for _, entry := range s.c.ingress.Entries(func(skerry.AppKey) bool { return false }) {
		if want := map[bool]int{true: 1, false: 2}[strings.Contains(entry.Entry, "alias.example")]; entry.Workers != want {
			t.Errorf("%s: %d workers are counted, want %d", entry.Entry, entry.Workers, want)
		}
	}
	for _, host := range s.c.ingress.Hosts() {
		for _, at := range host.Entries {
			if want := at.Worker == newer || host.Host == "own.example"; at.Healthy != want {
				t.Errorf("clients are sent to %s for %s: %v", at.Worker, host.Host, at.Healthy)
			}
		}
	}
	facts = *s.c.workers[older].Facts
	facts.Features = []string{spec.FeatureAliases}
	s.report(older, wire.WorkerReport{Facts: &facts})
	s.keep(s.c.Tick(s.now))
	if got := s.entries(older); !strings.Contains(got, "alias.example") {
		t.Errorf("the older worker was upgraded, and offers %s", got)
	}
}

// A worker counts for one in what the root is told, and says nothing of what others do, however often it says it.
func TestWaysInAreCountedOnce(t *testing.T) {
	s := newIngressSite(t)
	a, b, bad := s.ingressWorker(1), s.ingressWorker(2), s.ingressWorker(3)
	r := newRootOf(s.overlayNetSite)
	k := key("acme", "shop")
	way := web("shop.example.org", "/")
	way.Protocol, way.Listen, way.TLS = spec.IngressHTTP, 80, spec.TLSOff
	one := 1
	svc := spec.ServiceSpec{Name: "web", Replicas: &one, Mode: spec.ModeService, Resources: spec.Resources{CPU: 50, Memory: 8 * skerry.MiB}}
	svc.Image = "web:1"
	codec := wire.New()
	r.put(map[string][]byte{
		wire.NetworkItem(k.App): codec.Marshal(&wire.AppNetwork{App: k.App, Org: "acme", Net: 5, Services: []wire.NetworkService{
			{Name: "web", RoundRobin: netip.MustParseAddr("10.30.1.1"), Ports: []spec.Port{{Name: "http", Port: 80}}, Ingress: []spec.Ingress{way}}}}),
		wire.AssignmentKey("web-r1"): codec.Marshal(&spec.Assignment{ID: "web-r1", Service: k, Org: "acme", Gen: 1, Fence: skerry.Fence{RootEpoch: 1}, Spec: svc}),
	})
	for _, name := range []string{a, b, bad} {
		s.tell(name)
	}
	for _, name := range []string{a, b} {
		s.serve(name, wire.IngressState{Serving: []skerry.AppKey{k.App}})
	}
	offered := func() int {
		in := s.c.foldIngress()
		if in == nil || len(in.Entries) != 1 || in.Entries[0].Problem != "" {
			t.Fatalf("%+v", in)
		}
		return in.Entries[0].Workers
	}
	if n := offered(); n != 2 {
		t.Fatalf("%d workers offer it", n)
	}
	trouble := wire.IngressProblem{Service: k, Entry: way.Entry(), Text: strings.Repeat("x", 5000)}
	s.serve(bad, wire.IngressState{Problems: slices.Repeat([]wire.IngressProblem{trouble}, 50)})
	if n := offered(); n != 2 {
		t.Errorf("%d workers offer it when another one complains of what it does not serve", n)
	}
	s.serve(bad, wire.IngressState{Serving: []skerry.AppKey{k.App}, Problems: slices.Repeat([]wire.IngressProblem{trouble}, 50)})
	if n := offered(); n != 2 {
		t.Errorf("%d workers offer it when another one complains fifty times", n)
	}
	s.serve(bad, wire.IngressState{Serving: slices.Repeat([]skerry.AppKey{k.App}, 50)})
	if n := offered(); n != 3 {
		t.Errorf("%d workers offer it when one says so fifty times", n)
	}
}

func TestWaysInBelongToTheFirst(t *testing.T) {
	s := newIngressSite(t)
	s.apart = true // else the second that asks for an entry is refused when it is applied
	a := s.ingressWorker(1)
	tcp := spec.Ingress{Protocol: spec.IngressTCP, Listen: 5432, Port: "http"}
	s.offer("acme", "shop", web("shop.example.org", "/"), web("*.acme.example", "/"), tcp)
	for _, x := range []struct {
		ns, name string
		g        spec.Ingress
		why      string // empty: it gets it
	}{
		{"acme", "twin", web("shop.example.org", "/"), "the same host, path and port lead to a service of application acme/shop already"},
		{"acme", "twin", web("shop.example.org", "/api"), ""},
		{"other", "evil", web("shop.example.org", "/login"), "host shop.example.org belongs to another organisation on port 80"},
		{"other", "evil", web("login.acme.example", "/"), "host login.acme.example has names in common with a host of another organisation on port 80"},
		{"other", "evil", web("*.example.org", "/"), "host *.example.org has names in common with a host of another organisation on port 80"},
		{"other", "evil", web("login.deep.acme.example", "/"), ""},
		{"other", "evil", tcp, "the same host, path and port lead to a service of another organisation already"},
		{"other", "evil", spec.Ingress{Host: "x.example.org", Path: "/", Port: "http", Listen: 5432}, "port 5432 is used in another way (tcp without TLS) by another organisation"},
		{"other", "evil", spec.Ingress{Host: "y.example.org", Path: "/", Port: "http", TLS: spec.TLSSelf}, ""},
	} {
		s.events = nil
		s.offer(x.ns, x.name, x.g)
		got := fmt.Sprint(s.why(x.ns, x.name))
		if x.why != "" && !strings.Contains(got, x.why) {
			t.Errorf("%s %+v: %s", x.name, x.g, got)
		}
		told := slices.ContainsFunc(s.events, func(e wire.Event) bool {
			return e.Reason == "IngressRefused" && e.Type == wire.EventWarning && e.App == key(x.ns, x.name).App && strings.Contains(e.Text, x.why)
		})
		if told != (x.why != "") {
			t.Errorf("%s %+v: events %+v", x.name, x.g, s.events)
		}
		g := x.g
		if g.Listen == 0 {
			if g.Listen = 80; g.TLS != "" {
				g.Listen = 443
			}
		}
		if has := strings.Contains(s.entries(a), key(x.ns, x.name).App.String()+" "+g.Entry()); has != (x.why == "") {
			t.Errorf("%s %+v: told %s", x.name, x.g, s.entries(a))
		}
	}
	// Another life of the orchestrator knows who was first.
	s.offer("acme", "twin", web("shop.example.org", "/"))
	s.start()
	s.c.opt.Admission = Admission{Trusted: []string{"acme", "other"}}
	s.keep(s.c.Step(s.now, ChildUp{Hello: &wire.Hello{Name: a}}))
	s.readmit()
	if got := s.entries(a); !strings.Contains(got, "acme/shop 80 shop.example.org,") || strings.Contains(got, "acme/twin") {
		t.Errorf("told %s", got)
	}
	// What the first gives up, the next one gets.
	s.offer("acme", "shop", tcp)
	if got := s.entries(a); !strings.Contains(got, "acme/twin 80 shop.example.org") || strings.Contains(got, "acme/shop 80") {
		t.Errorf("told %s", got)
	}
}

func TestWaysInMustBeAdmitted(t *testing.T) {
	s := newIngressSite(t)
	a := s.ingressWorker(1)
	s.c.opt.Admission = Admission{Trusted: []string{"acme"}}
	s.offer("other", "guest", web("guest.example.org", "/"))
	if got := fmt.Sprint(s.why("other", "guest")); !strings.Contains(got, "the site does not admit it: no ingress for organisation other") || s.entries(a) != "" {
		t.Errorf("%s, told %s", got, s.entries(a))
	}
	s.c.opt.Admission.Ingress = true
	s.readmit()
	if got := s.entries(a); got != "other/guest 80 guest.example.org" {
		t.Errorf("told %s", got)
	}
}
