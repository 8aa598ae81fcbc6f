package sim

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// flows are the connections that a client of shop's may have.
type flows struct {
	w        *World
	client   *Node // its worker
	machines map[wire.OverlayKey]*Node
	draining map[netip.Addr]time.Time // by copy: since when it gets no new ones; the zero time: it does
}

// cut lists the copies that run although connections to them end that are younger than FarewellTime: the client's worker has no way there
// any more, or the copy's none back.
func (f *flows) cut() (out []string) {
	r := overlayItem[wire.Route](f.client, wire.RouteKey(web("shop")))
	me := overlayItem[wire.OverlayNode](f.client, wire.NodeKey)
	if r == nil || me == nil {
		return []string{"it has no route"}
	}
	now := f.w.Now
	listed := map[netip.Addr]bool{}
	for _, b := range r.Backends {
		listed[b.Addr] = true
		if since, known := f.draining[b.Addr]; !b.Draining {
			f.draining[b.Addr] = time.Time{}
		} else if !known || since.IsZero() {
			f.draining[b.Addr] = now
		}
	}
	for addr, since := range f.draining {
		at := f.at(addr)
		if at == nil { // it has ended
			delete(f.draining, addr)
			continue
		}
		if !since.IsZero() && now.Sub(since) >= moves.FarewellTime-time.Second {
			continue
		}
		if !listed[addr] {
			out = append(out, fmt.Sprintf("%s at %s is in no route", addr, at.Name))
			continue
		}
		if at != f.client && (!f.knows(f.client, at) || !f.knows(at, f.client)) {
			out = append(out, fmt.Sprintf("%s and %s do not know each other", f.client.Name, at.Name))
		}
	}
	return out
}

// at gives the machine on which a copy runs, or nil.
func (f *flows) at(addr netip.Addr) *Node {
	for _, n := range f.machines {
		for _, t := range n.tasks {
			if t.running && t.name == spec.MainContainer && n.addresses[t.id] == addr.String() {
				return n
			}
		}
	}
	return nil
}

// knows reports whether a worker was told of another one.
func (f *flows) knows(n, other *Node) bool {
	for _, v := range n.overlay {
		if p, ok := v.(*wire.OverlayPeer); ok && f.machines[p.Key] == other {
			return true
		}
	}
	return false
}

// A site that the root has given up may serve clients of other sites as ever: the root then sends new connections elsewhere, and whoever
// has one is not cut off, neither when the copy elsewhere is ready, nor when one of the two ends because the site is back.
func TestAGivenUpSiteFinishesItsAnswers(t *testing.T) {
	for _, policy := range []string{spec.KeepOriginal, spec.KeepReplacement} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t, 1)
			w.Audit = true
			machines := map[wire.OverlayKey]*Node{}
			var clients []*flows
			for i, name := range []string{"a", "b"} {
				meshedSite(w, i, name, 1)
				machines[keyOf(i, 0)] = w.Workers[name+"/w1"]
				clients = append(clients, &flows{w, w.Workers[name+"/w1"], machines, map[netip.Addr]time.Time{}})
			}
			w.Run(12 * time.Second)
			shop := app("shop", 1, func(s *spec.ServiceSpec) {
				s.Ports, s.OnReconnect = []spec.Port{{Name: "http", Port: 80}}, policy
			})
			for _, site := range []string{"a", "b"} {
				client := shop.App.Spec.Services[0]
				client.Name, client.Ports, client.Placement.Cluster = "client-"+site, nil, site
				shop.App.Spec.Services = append(shop.App.Spec.Services, client)
			}
			w.must(t, w.Root, shop)
			w.Run(10 * time.Second)
			first := string(w.RootCore().Apps.Instances(web("shop"))[0].Holder)
			other := map[string]string{"a": "b", "b": "a"}[first]
			for _, c := range clients {
				w.Do(c.client, worker.Interest{Services: []skerry.ServiceKey{web("shop")}})
			}
			w.Run(10 * time.Second)
			watch := func(d time.Duration, what string) {
				t.Helper()
				for end := w.Now.Add(d); w.Now.Before(end); {
					w.Run(50 * time.Millisecond)
					for _, c := range clients {
						if list := c.cut(); len(list) > 0 {
							t.Fatalf("%s, for the client on %s: %v", what, c.client.Name, list)
						}
					}
				}
			}
			watch(5*time.Second, "at first")
			w.Cut(w.Clusters[first])
			watch(root.DefaultLostAfter+30*time.Second, "while the root has given it up")
			for _, c := range clients {
				r := overlayItem[wire.Route](c.client, wire.RouteKey(web("shop")))
				if len(r.Backends) != 1 || c.at(r.Backends[0].Addr) != c.client || len(c.draining) == 2 != (c.client.Name == other+"/w1") {
					t.Errorf("the client on %s has the route %+v, and had connections to %d copies", c.client.Name, r.Backends, len(c.draining))
				}
			}
			w.Heal(w.Clusters[first])
			watch(time.Minute, "when the site is back")
			if len(w.Faults) > 0 {
				t.Errorf("faults: %v", w.Faults)
			}
		})
	}
}
