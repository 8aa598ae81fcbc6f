//go:build linux

package worker

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// An alias leads to the instances of all its services, and to none before it is known where all are: the first would get all of its
// flows. Its name is answered, and its ways in lead to it.
func TestAliasOfServices(t *testing.T) {
	a := netip.MustParseAddr
	n := shopNetwork()
	n.Services[0].Ports = []spec.Port{{Port: 80}}
	n.Services[1].Ports = []spec.Port{{Port: 8080, ServicePort: 80}}
	n.Services[0].Ingress = []spec.Ingress{{Port: "80", Alias: "all",
		Policy: spec.BalanceRoundRobin, Listen: 80, Protocol: spec.IngressHTTP}}
	n.Aliases = []wire.NetworkService{{Name: "all",
		RoundRobin: a("10.30.4.1"), Closest: a("10.30.4.2"), LeastLoaded: a("10.30.4.3"), Short: true,
		Leads: []skerry.ServiceKey{shop("web"), shop("store")}}}
	parts := &fakeParts{events: make(chan overlay.Event)}
	f := newOverlayNet(Overlay{Device: parts}, slog.New(slog.DiscardHandler))
	f.post, f.facts = func(any) {}, func() {}
	f.node = &wire.OverlayNode{ID: 1, Blocks: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/26")}}
	f.nets[n.App] = n
	f.insts["asks"] = joined{app: n.App, service: shop("web"), at: wire.Attachment{Device: "veth0",
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.64.0.1/32")}}}

	waits := f.lookup(n.App, shop("all"))
	if waits == nil || !slices.Contains(f.asked, shop("web")) || !slices.Contains(f.asked, shop("store")) {
		t.Fatalf("a question for its name waits %v, and routes are wanted of %v", waits != nil, f.asked)
	}
	led := func(to netip.Addr) (out []string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, s := range f.dataLocked().Services {
			if s.Addr != to {
				continue
			}
			for _, slot := range s.Slots {
				out = append(out, slot.Addr.String())
			}
		}
		return out
	}
	route := func(service, addr string, ordinal int) {
		takeRoute(f, &wire.Route{Service: shop(service), Net: 7, Backends: []wire.RouteBackend{{Peer: 2, Addr: a(addr), Ordinal: ordinal}}})
	}
	route("web", "10.64.1.1", 0)
	<-waits
	if got := led(a("10.30.4.1")); got != nil || len(led(a("10.30.1.1"))) != 1 {
		t.Errorf("with one route of two it leads to %v", got)
	}
	route("store", "10.64.1.2", 1)
	if f.lookup(n.App, shop("all")) != nil {
		t.Error("a question waits, and all is known")
	}
	for _, addr := range []string{"10.30.4.1", "10.30.4.2", "10.30.4.3"} {
		got := led(a(addr))
		slices.Sort(got)
		if got = slices.Compact(got); strings.Join(got, " ") != "10.64.1.1 10.64.1.2" {
			t.Errorf("%s leads to %v", addr, got)
		}
	}
	if got := led(a("10.30.1.1")); len(got) != 1 {
		t.Errorf("the service itself leads to %v", got)
	}
	f.mu.Lock()
	names := f.namesLocked()
	f.mu.Unlock()
	if s := names.Apps[0].Services; len(s) != 3 || s[2].Key != shop("all") || len(s[2].Addrs) != 3 {
		t.Errorf("names lead to %+v", s)
	}
	f.missed(7, spec.ServiceTwin(a("10.30.4.2")))
	for _, name := range []string{"web", "store"} {
		if f.wanted[shop(name)].IsZero() {
			t.Errorf("a packet to it does not have the routes of %s fetched", name)
		}
	}
	e := &workerIngress{overlayNet: f}
	ingress := map[skerry.InstanceID]wire.Attachment{ingressID(7): {Addresses: []netip.Prefix{netip.MustParsePrefix("10.64.0.2/32")}}}
	o := e.offers(nil, ingress)
	if len(o.Listeners) != 1 || len(o.Listeners[0].Routes) != 1 || o.Listeners[0].Routes[0].Targets[0].String() != "10.30.4.1:80" {
		t.Fatalf("clients are led to %+v", o.Config)
	}
	if ends := o.ends["acme/shop/web"]; !strings.Contains(ends, "10.64.1.2") {
		t.Errorf("a change of the other service is not seen in %q", ends)
	}

	// A way in to the service alone, beside that to the alias, hides nothing of it.
	n.Services[0].Ingress = append(n.Services[0].Ingress, spec.Ingress{Port: "80", Host: "own.example", Policy: spec.BalanceRoundRobin,
		Listen: 80, Protocol: spec.IngressHTTP})
	if ends := e.offers(nil, ingress).ends["acme/shop/web"]; !strings.Contains(ends, "10.64.1.2") {
		t.Errorf("a change of the other service is not seen in %q, which has that of the last way in alone", ends)
	}

	// A service that joins is asked for at once, and not when a packet to the alias was lost.
	more := *n
	more.Aliases = slices.Clone(n.Aliases)
	more.Aliases[0].Leads = append(slices.Clone(n.Aliases[0].Leads), shop("later"))
	f.take(core.OverlayItem{Key: wire.NetworkItem(n.App), Item: &more})
	if f.wanted[shop("later")].IsZero() {
		t.Error("the routes of a service that joined the alias are not fetched")
	}
}
