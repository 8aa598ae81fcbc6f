package sim

import (
	"fmt"
	"testing"
	"time"

	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/wire"
)

// Whoever is restarted, a root, an orchestrator or the agent of a worker, and however slow the link of another one is: no client's worker
// loses an instance that serves from its route, or the way there.
func TestRestartsTakeNoRoutes(t *testing.T) {
	for _, who := range []string{"root", "a", "b", "a/w1", "a/w4", "b/w1"} {
		for _, far := range []string{"", "a", "b", "a/w1", "a/w4", "b/w1"} {
			t.Run(fmt.Sprintf("%s is restarted/%q is far", who, far), func(t *testing.T) {
				w := serving(t)
				node := func(name string) *Node {
					if name == "root" {
						return w.Root
					}
					if n := w.Clusters[name]; n != nil {
						return n
					}
					return w.Workers[name]
				}
				if n := node(far); n != nil {
					n.extra = 700 * time.Millisecond
				}
				n := node(who)
				w.Kill(n)
				w.Run(200 * time.Millisecond)
				w.Boot(n)
				if _, ok := n.Core.(*cluster.Core); ok { // its relay is there before its links
					w.Do(n, relayOf(int(who[0]-'a')))
				}
				w.Connect(n)
				for _, c := range w.childrenOf(n) {
					w.Connect(c)
				}
				for i := range 1000 {
					w.Run(10 * time.Millisecond)
					for _, name := range []string{"a/w4", "b/w1"} {
						if why := w.loses(w.Workers[name]); why != "" {
							t.Fatalf("after %s %s %s", time.Duration(i)*10*time.Millisecond, name, why)
						}
					}
				}
				if len(w.Faults) > 0 {
					t.Errorf("what does not balance: %v", w.Faults)
				}
			})
		}
	}
}

// loses says what a worker does not know of the two instances of shop's, or "".
func (w *World) loses(n *Node) string {
	r, me := overlayItem[wire.Route](n, wire.RouteKey(web("shop"))), overlayItem[wire.OverlayNode](n, wire.NodeKey)
	if r == nil || me == nil || overlayItem[wire.AppNetwork](n, wire.NetworkItem(web("shop").App)) == nil {
		return "has lost its route, its network or itself"
	}
	if len(r.Backends) != 2 || len(me.Relays) != 1 {
		return fmt.Sprintf("knows %d instances and %d relays", len(r.Backends), len(me.Relays))
	}
	for _, b := range r.Backends {
		p := overlayItem[wire.OverlayPeer](n, wire.OverlayPeerKey(b.Peer))
		if b.Draining || p == nil || !p.Prefixes[0].Contains(b.Addr) {
			return fmt.Sprintf("knows %+v, and of its worker %+v", b, p)
		}
		if !w.expects(n, p.Key) {
			return "is not expected where " + b.Addr.String() + " is"
		}
	}
	return ""
}

// expects reports whether the worker that has a key takes packets of another one.
func (w *World) expects(from *Node, key wire.OverlayKey) bool {
	me := overlayItem[wire.OverlayNode](from, wire.NodeKey)
	for i := range 3 {
		if keyOf(0, i) != key {
			continue
		}
		for _, v := range w.Workers[fmt.Sprintf("a/w%d", i+1)].overlay {
			if p, ok := v.(*wire.OverlayPeer); ok && p.Prefixes[0] == me.Blocks[0] {
				return true
			}
		}
	}
	return false
}
