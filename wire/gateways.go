package wire

import (
	"math"
	"net/netip"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// GatewayItem is the key of a Gateway in a site's observed set: its own. The root answers with Peers (PeersKey) in the desired set: the
// gateways that this one is to measure round trips to.
const GatewayItem = "gateway"

// Gateway is what the root learns of a site's place in the network of the federation: of the gateway alone, and of no worker.
type Gateway struct {
	Probe string    `json:"probe,omitempty" cbor:"1,keyasint,omitempty"` // host:port where it answers others by UDP; empty: nowhere
	Heard []PeerRTT `json:"heard,omitempty" cbor:"2,keyasint,omitempty"` // the usual round trips to other gateways of late
}

// maxGatewayHeard bounds the round trips that are read of one gateway.
const maxGatewayHeard = 64

// Bound leaves out what cannot be: round trips that are no numbers, negative or longer than ten seconds, addresses that are none, and what
// is too much.
func (g *Gateway) Bound() {
	if _, ok := parseProbe(g.Probe); !ok {
		g.Probe = ""
	}
	kept := g.Heard[:0]
	for _, h := range g.Heard[:min(len(g.Heard), maxGatewayHeard)] {
		if _, err := netip.ParseAddrPort(h.Probe); err == nil && h.Ms > 0 && h.Ms <= 10_000 {
			kept = append(kept, h)
		}
	}
	g.Heard = kept
}

// parseProbe reads where a gateway answers, which is one machine that others reach by a router, or the reader's own.
func parseProbe(s string) (a netip.Addr, ok bool) {
	p, err := netip.ParseAddrPort(s)
	a = p.Addr().Unmap()
	return a, err == nil && p.Port() > 0 && a.Zone() == "" && (a.IsGlobalUnicast() || a.IsLoopback())
}

// mostPeers bounds the gateways that one measures round trips to.
const mostPeers = 32

// BoundGateways leaves out what a gateway measures to nobody for: other sites have told of these addresses. Those of the machine itself are
// among them unless it answers at one; so are those of its link.
func (p *Peers) BoundGateways(own netip.Addr) {
	kept := make([]string, 0, min(len(p.List), mostPeers))
	for _, s := range p.List {
		if a, ok := parseProbe(s); ok && (!a.IsLoopback() || own.IsLoopback()) && len(kept) < mostPeers {
			kept = append(kept, s)
		}
	}
	p.List = kept
}

// Far is what a site learns of a service that has instances at other sites, if a limited link leads there from a service here, or
// from there to one here: where the gateways of those sites are, for which the instances there stand.
type Far struct {
	Service skerry.ServiceKey `json:"service" cbor:"1,keyasint"`
	// Links are the limited links of the service, which bind those here that they lead to.
	Links []spec.Link `json:"links,omitempty" cbor:"2,keyasint,omitempty"`
	At    []FarSite   `json:"at" cbor:"3,keyasint"`
}

// FarSite is another site.
type FarSite struct {
	Site string `json:"site" cbor:"1,keyasint"`
	// Ms is the round trip between the gateways, in milliseconds; 0: it is not known.
	Ms       float64        `json:"ms,omitempty" cbor:"2,keyasint,omitempty"`
	Location *spec.Location `json:"location,omitempty" cbor:"3,keyasint,omitempty"` // the middle of its workers; nil: not known
}

// FarKey is the key of a Far in a site's desired set. It comes before what it is about, in the order of keys.
func FarKey(k skerry.ServiceKey) string { return "far/" + k.String() }

// ParseFarKey reads a FarKey.
func ParseFarKey(key string) (k skerry.ServiceKey, ok bool) {
	rest, ok := strings.CutPrefix(key, "far/")
	if !ok {
		return k, false
	}
	return skerry.ParseServiceKey(rest)
}

// Bound leaves out what cannot be of what the root says.
func (f *Far) Bound() {
	for i := range f.At {
		a := &f.At[i]
		if !(a.Ms >= 0) || math.IsInf(a.Ms, 0) {
			a.Ms = 0
		}
		if a.Location != nil && !a.Location.Valid() {
			a.Location = nil
		}
	}
}
