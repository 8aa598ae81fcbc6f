package core

import (
	"maps"
	"math"

	"skerry.dev/skerry/wire"
)

type (
	// MeasureSites has the site's gateway measure round trips to those of other sites. The answers are GatewayHeard, again and again.
	MeasureSites struct{ Peers wire.Peers }
	// GatewayHeard says where the site's gateway answers others, and the usual round trips to those that it measures to.
	GatewayHeard struct{ wire.Gateway }
)

// measureSites tells the gateway whom to measure to.
func (a *abroad) measureSites(fx *wire.Effects) {
	g := &a.remote.gateway
	if !g.due {
		return
	}
	g.due = false
	var p wire.Peers
	if g.peers == nil || a.codec.Unmarshal(g.peers, &p) == nil {
		p.BoundGateways(a.remote.relay.Public.Addr())
		fx.Actions = append(fx.Actions, MeasureSites{p})
	}
}

// gatewayHeard tells the root of round trips that have changed. A millisecond, or a tenth, is no change: each costs traffic.
func (a *abroad) gatewayHeard(m GatewayHeard) {
	g := &a.remote.gateway
	if a.opt.Standalone || SameGateway(g.told, &m.Gateway) {
		return
	}
	g.told = &m.Gateway
	_, _ = a.Up.Observed.Put(wire.GatewayItem, a.codec.Marshal(g.told))
}

// LeastHeard is the shortest round trip that is told of, in milliseconds: below it there is no difference that matters, and 0 is none.
const LeastHeard = 0.1

// SameGateway reports whether what is told and what is now are as good as the same.
func SameGateway(told, now *wire.Gateway) bool {
	by := func(list []wire.PeerRTT) map[string]float64 {
		out := map[string]float64{}
		for _, h := range list {
			out[h.Probe] = h.Ms
		}
		return out
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= max(1, a/10) }
	return told != nil && told.Probe == now.Probe && maps.EqualFunc(by(told.Heard), by(now.Heard), near)
}
