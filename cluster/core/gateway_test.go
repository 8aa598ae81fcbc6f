package core

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/wire"
)

// Whatever other sites and the root say, a gateway sends nothing to its own machine, its link, or many at once, and no
// address stands for these in another form. Where all sites are on one machine they measure each other.
func TestGatewaysMeasureOnlyToGateways(t *testing.T) {
	given := []string{"192.0.2.1:7443", "127.0.0.1:22", "[::1]:22", "[::ffff:127.0.0.1]:22", "0.0.0.0:53", "[::ffff:0.0.0.0]:53",
		"169.254.169.254:80",
		"[fe80::1]:9", "[fe80::1%eth0]:9", "[2001:db8::1%eth0]:9", "224.0.0.1:9", "[::ffff:224.0.0.1]:9", "255.255.255.255:9",
		"192.0.2.1:0", "host:1", "",
		"[2001:db8::1]:7443"}
	for public, want := range map[string][]string{
		"198.51.100.1:7443": {"192.0.2.1:7443", "[2001:db8::1]:7443"},
		"127.0.0.1:7443":    {"192.0.2.1:7443", "127.0.0.1:22", "[::1]:22", "[::ffff:127.0.0.1]:22", "[2001:db8::1]:7443"},
	} {
		c := New(Options{Name: "a", Incarnation: "c"})
		c.Start(time.Unix(1e9, 0))
		c.remoteItem(wire.PeersKey, wire.New().Marshal(&wire.Peers{KeyID: 3, Key: []byte("key"), List: given}), false)
		fx := c.Step(time.Unix(1e9, 0), RelayUp{UDP: netip.MustParseAddrPort("0.0.0.0:7443"), Public: netip.MustParseAddrPort(public)})
		var got []string
		for _, a := range fx.Actions {
			if m, ok := a.(MeasureSites); ok && m.Peers.KeyID == 3 {
				got = m.Peers.List
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("at %s it measures to %q, want %q", public, got, want)
		}
	}
	var many wire.Peers
	for n := range 1000 {
		many.List = append(many.List, fmt.Sprintf("192.0.2.1:%d", n+1))
	}
	if many.BoundGateways(netip.Addr{}); len(many.List) != coord.MostGateways {
		t.Errorf("it measures to %d", len(many.List))
	}
}

// What is as good as the same is not told again.
func TestSameGateway(t *testing.T) {
	one := func(ms ...float64) *wire.Gateway {
		g := &wire.Gateway{Probe: "192.0.2.1:1"}
		for i, x := range ms {
			g.Heard = append(g.Heard, wire.PeerRTT{Probe: fmt.Sprintf("192.0.2.%d:1", i+2), Ms: x})
		}
		return g
	}
	turned := one(20, 100)
	turned.Heard[0], turned.Heard[1] = turned.Heard[1], turned.Heard[0]
	for _, c := range []struct {
		told, now *wire.Gateway
		same      bool
	}{
		{nil, one(), false}, {one(), one(), true}, {one(), one(5), false}, {one(5), one(), false},
		{one(5), one(5.9), true}, {one(5), one(6.1), false},
		{one(20, 100), turned, true}, {one(100), one(109), true}, {one(100), one(111), false}, {one(), &wire.Gateway{}, false},
	} {
		if got := SameGateway(c.told, c.now); got != c.same {
			t.Errorf("%+v and %+v: %v", c.told, c.now, got)
		}
	}
}
