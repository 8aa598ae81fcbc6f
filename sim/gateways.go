package sim

import (
	"fmt"
	"hash/fnv"

	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/wire"
)

// gatewayOf is where the gateway of a site answers others.
func gatewayOf(site string) string {
	h := fnv.New32a()
	h.Write([]byte(site))
	return fmt.Sprintf("192.0.2.%d:%d", h.Sum32()%254+1, h.Sum32()>>8%60_000+1)
}

// tellGateway has a site tell the root of its gateway, which begins to measure round trips to those of others.
func tellGateway(w *World, n *Node) {
	w.tell(n, cluster.GatewayHeard{Gateway: wire.Gateway{Probe: gatewayOf(n.Name)}})
}

// heard tells a site what its gateway measures to others.
func heard(w *World, n *Node, peers []string) {
	if !n.Up || w.Machine.Ways == nil {
		return
	}
	g := wire.Gateway{Probe: gatewayOf(n.Name)}
	for _, probe := range peers {
		for name := range w.Clusters {
			if ms := w.Machine.Ways(n.Name, name); gatewayOf(name) == probe && ms > 0 {
				g.Heard = append(g.Heard, wire.PeerRTT{Probe: probe, Ms: ms})
			}
		}
	}
	w.tell(n, cluster.GatewayHeard{Gateway: g})
}
