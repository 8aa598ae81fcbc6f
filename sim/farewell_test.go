package sim

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// misled lists the workers that send new connections to an instance of shop's that does not run there, as their routes have it.
func (w *World) misled() (out []string) {
	machines := map[wire.OverlayKey]*Node{keyOf(1, 0): w.Workers["b/w1"]}
	for i := range 4 {
		machines[keyOf(0, i)] = w.Workers[fmt.Sprintf("a/w%d", i+1)]
	}
	for _, n := range ordered(w.Workers) {
		r := overlayItem[wire.Route](n, wire.RouteKey(web("shop")))
		if r == nil {
			continue
		}
		me := overlayItem[wire.OverlayNode](n, wire.NodeKey)
		for _, b := range r.Backends {
			at := n
			if me == nil || b.Peer != me.ID {
				p := overlayItem[wire.OverlayPeer](n, wire.OverlayPeerKey(b.Peer))
				if p == nil {
					continue // it waits until it is told
				}
				at = machines[p.Key]
			}
			if b.Draining || at == nil {
				continue
			}
			runs := false
			for _, t := range at.tasks {
				runs = runs || t.running && t.name == spec.MainContainer && at.addresses[t.id] == b.Addr.String()
			}
			if !runs {
				out = append(out, fmt.Sprintf("%s sends requests to %s at %s, where nothing runs", n.Name, b.Addr, at.Name))
			}
		}
	}
	return out
}

// serving is a site with three workers, of which the last one is far away and has a client of two instances on the others. Another client is at
// another site.
func serving(t *testing.T) *World {
	t.Helper()
	w := newWorld(t, 1)
	w.Audit = true
	for s, site := range []string{"a", "b"} {
		n := w.AddCluster(site)
		w.Do(n, cluster.RelayUp{UDP: netip.MustParseAddrPort("0.0.0.0:7445"), Public: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(s + 1)}), 7445)})
		for i := range 4 - 3*s {
			f := facts(4000)
			f.Overlay = &wire.OverlayFacts{Key: keyOf(s, i), Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.9.9.9:1")}}
			if site == "a" && i < 3 {
				f.Labels = map[string]string{"role": "server"}
			}
			w.AddWorker(site, fmt.Sprintf("w%d", i+1), f)
		}
	}
	w.Run(time.Second)
	w.must(t, w.Root, shop(2, ""))
	w.Run(10 * time.Second)
	for _, name := range []string{"a/w4", "b/w1"} {
		w.Do(w.Workers[name], worker.Interest{Services: []skerry.ServiceKey{web("shop")}})
	}
	w.Run(10 * time.Second)
	for _, name := range []string{"a/w4", "b/w1"} {
		if r := overlayItem[wire.Route](w.Workers[name], wire.RouteKey(web("shop"))); r == nil || len(r.Backends) != 2 {
			t.Fatalf("%s was told %+v", name, r)
		}
	}
	return w
}

// shop is a service of so many instances, whose clients are at w4 of site a and at site b.
func shop(replicas int, version string) apps.Apply {
	a := app("shop", replicas, func(s *spec.ServiceSpec) {
		s.Placement.Cluster, s.Placement.Policy = "a", "spread"
		s.Placement.Labels = map[string]string{"role": "server"}
		s.Ports = []spec.Port{{Name: "http", Port: 80}}
		s.Env = map[string]string{"VERSION": version}
	})
	for i, site := range []string{"a", "b"} {
		one, client := 1, a.App.Spec.Services[0]
		client.Name, client.Replicas, client.Ports, client.Env = "client-"+site, &one, nil, nil
		client.Placement = spec.Placement{Cluster: site, Worker: []string{"w4", "w1"}[i]}
		a.App.Spec.Services = append(a.App.Spec.Services, client)
	}
	return a
}

// Whatever ends a copy that serves, and however late others hear of it: while their links work nobody sends a request to where nothing runs.
func TestNobodyIsSentToWhatHasEnded(t *testing.T) {
	migrate := func(w *World) (any, *Node) {
		id := overlayItem[wire.Route](w.Workers["a/w4"], wire.RouteKey(web("shop"))).Backends[0].Instance
		return cluster.MigrateInstance{ID: id, Actor: "t"}, w.Clusters["a"]
	}
	for _, c := range []struct {
		name string
		do   func(w *World) (any, *Node)
	}{
		{"scaled down", func(w *World) (any, *Node) { return shop(1, ""), w.Root }},
		{"updated", func(w *World) (any, *Node) { return shop(2, "2"), w.Root }},
		{"migrated", migrate},
		{"drained", func(w *World) (any, *Node) { return cluster.DrainWorker{Name: "w1", Parallel: 1}, w.Clusters["a"] }},
	} {
		for _, far := range []string{"a/w4", "b", "b/w1"} {
			for _, restarts := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s is far/restarts=%v", c.name, far, restarts), func(t *testing.T) {
					w := serving(t)
					n := w.Workers[far]
					if n == nil {
						n = w.Clusters[far]
					}
					n.extra = 3 * time.Second
					m, at := c.do(w)
					w.must(t, at, m)
					for i := range 1200 {
						w.Run(50 * time.Millisecond)
						if list := w.misled(); len(list) > 0 {
							t.Fatalf("after %s: %s", time.Duration(i)*50*time.Millisecond, strings.Join(list, "; "))
						}
						if restarts && i == 20 {
							w.Restart(w.Clusters["a"], nil)
						}
					}
					if n := w.Workers["a/w4"]; len(overlayItem[wire.Route](n, wire.RouteKey(web("shop"))).Backends) > 2 {
						t.Error("what was to end is still there")
					}
					for _, x := range w.Faults {
						t.Error(x)
					}
				})
			}
		}
	}
}
