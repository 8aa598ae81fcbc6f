package sim

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// meshed is a federation of two sites of two workers each that take part in the overlay.
func meshed(t *testing.T) *World {
	t.Helper()
	w := newWorld(t, 1)
	for s, site := range []string{"a", "b"} {
		meshedSite(w, s, site, 2)
	}
	w.Run(time.Second)
	return w
}

// meshedSite adds a site with workers that take part in the overlay.
func meshedSite(w *World, number int, name string, workers int) {
	n := w.AddCluster(name)
	public := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(number + 1)}), 7445)
	w.Do(n, cluster.RelayUp{UDP: netip.MustParseAddrPort("0.0.0.0:7445"), Public: public})
	for i := range workers {
		f := facts(2000)
		f.Overlay = &wire.OverlayFacts{Key: keyOf(number, i), Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.9.9.9:1")}}
		w.AddWorker(name, fmt.Sprintf("w%d", i+1), f)
	}
}

// keyOf is the overlay's key of a worker; no other bytes look like it.
func keyOf(site, worker int) (k wire.OverlayKey) {
	copy(k[:], fmt.Sprintf("the key of worker %d at site %d..", worker, site))
	return k
}

// overlayItem is what a worker was told under a key.
func overlayItem[T any](n *Node, key string) *T {
	v, _ := n.overlay[key].(*T)
	return v
}

func TestRoutesBetweenSites(t *testing.T) {
	w := meshed(t)
	w.must(t, w.Root, app("shop", 2, func(s *spec.ServiceSpec) { s.Placement.Cluster = "b"; s.Placement.Policy = "spread" }))
	two := app("shop", 2, func(s *spec.ServiceSpec) { s.Placement.Cluster = "b"; s.Placement.Policy = "spread" })
	client := two.App.Spec.Services[0]
	one := 1
	client.Name, client.Replicas, client.Placement.Cluster = "client", &one, "a"
	two.App.Spec.Services = append(two.App.Spec.Services, client)
	w.must(t, w.Root, two)
	w.Run(10 * time.Second)
	var from *Node
	for _, n := range ordered(w.Workers) {
		if strings.HasPrefix(n.Name, "a/") && n.Tasks() == 1 {
			from = n
		}
	}
	net := overlayItem[wire.AppNetwork](from, wire.NetworkItem(web("shop").App))
	if net == nil || net.Net == 0 || net.Net >= wire.LocalNetworks {
		t.Fatalf("the client's worker was told %+v", net)
	}
	w.Do(from, worker.Interest{Services: []skerry.ServiceKey{web("shop")}})
	w.Run(5 * time.Second)
	r := overlayItem[wire.Route](from, wire.RouteKey(web("shop")))
	if r == nil || len(r.Backends) != 2 || r.Net != net.Net {
		t.Fatalf("%+v", r)
	}
	for _, b := range r.Backends {
		p := overlayItem[wire.OverlayPeer](from, wire.OverlayPeerKey(b.Peer))
		if p == nil || p.Name != "" || len(p.Endpoints) != 0 || !p.Prefixes[0].Contains(b.Addr) || p.Key != keyOf(1, 0) && p.Key != keyOf(1, 1) {
			t.Errorf("peer %d is %+v", b.Peer, p)
		}
	}
	// The other ends know whose packets come.
	me := overlayItem[wire.OverlayNode](from, wire.NodeKey)
	for _, name := range []string{"b/w1", "b/w2"} {
		found := false
		for _, v := range w.Workers[name].overlay {
			if p, ok := v.(*wire.OverlayPeer); ok && p.Prefixes[0] == me.Blocks[0] {
				found = true
			}
		}
		if !found {
			t.Errorf("%s does not know its client: %v", name, w.Workers[name].overlay)
		}
	}
	// The root carried all that, and knows no worker's key or address.
	for key, value := range w.Root.Store {
		for s := range 2 {
			for i := range 2 {
				k := keyOf(s, i)
				if bytes.Contains(value, k[:]) {
					t.Errorf("the root's record %s holds the key of a worker", key)
				}
			}
		}
		if bytes.Contains(value, []byte("10.9.9.9")) || bytes.Contains(value, append(me.Blocks[0].Addr().AsSlice(), 26)) {
			t.Errorf("the root's record %s holds the address of a worker", key)
		}
	}
	// Without the root the sites go on, and when it comes back nothing changes.
	w.Kill(w.Root)
	w.Run(time.Minute)
	if r := overlayItem[wire.Route](from, wire.RouteKey(web("shop"))); r == nil || len(r.Backends) != 2 {
		t.Errorf("without the root: %+v", r)
	}
	w.Restart(w.Root, nil)
	w.Run(time.Minute)
	// One instance fewer there is one fewer here; uninterested, nothing is left at either end.
	w.must(t, w.Root, app("shop", 1, func(s *spec.ServiceSpec) { s.Placement.Cluster = "b" }))
	w.Run(20 * time.Second)
	for _, n := range ordered(w.Workers) {
		for key := range n.overlay {
			if strings.HasPrefix(key, "peer/") || strings.HasPrefix(key, "route/") {
				t.Errorf("%s still has %s", n.Name, key)
			}
		}
	}
	for _, x := range w.Faults {
		t.Error(x)
	}
}
