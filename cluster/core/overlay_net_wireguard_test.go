package core

import (
	"net/netip"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// Workers whose kernels have WireGuard are told of each other's key and port, as they are now; those without of nobody's; and
// one that is removed is taken from all.
func TestPeersByWireGuard(t *testing.T) {
	s := newOverlayNetSite(t)
	s.each = 3000 // one on each
	has := map[string]*wire.WireGuardFacts{"w1": {Key: wire.OverlayKey{11}, Port: 51821}, "w2": {Key: wire.OverlayKey{12}, Port: 51822}}
	facts := func(name string) {
		f := *s.c.workers[name].Facts
		o := *f.Overlay
		o.WireGuard = has[name]
		f.Overlay = &o
		s.report(name, wire.WorkerReport{Facts: &f})
	}
	id := map[string]wire.PeerID{}
	for n := range 3 {
		name := s.join(n + 1)
		facts(name)
		id[name] = item[wire.OverlayNode](s, name, wire.NodeKey).ID
	}
	s.apply("acme", "shop", 3)
	for name := range id {
		s.want[name] = []skerry.ServiceKey{key("acme", "shop")}
		s.tell(name)
	}
	told := func(name, of string) *wire.WireGuardFacts {
		t.Helper()
		p := item[wire.OverlayPeer](s, name, wire.OverlayPeerKey(id[of]))
		if p == nil {
			t.Fatalf("%s is not told of %s", name, of)
		}
		return p.WireGuard
	}
	if f := told("w1", "w2"); f == nil || *f != *has["w2"] {
		t.Errorf("w1 is told %+v of w2", f)
	}
	if f := told("w1", "w3"); f != nil {
		t.Errorf("w1 is told %+v of w3, which has none", f)
	}
	if f := told("w3", "w1"); f != nil {
		t.Errorf("w3 is told %+v of w1, and has none itself", f)
	}
	has["w2"] = &wire.WireGuardFacts{Key: wire.OverlayKey{13}, Port: 51823, Reflexive: netip.MustParseAddrPort("198.51.100.2:40000")}
	facts("w2")
	if f := told("w1", "w2"); f == nil || *f != *has["w2"] {
		t.Errorf("w1 is told %+v of w2, which has another key now", f)
	}
	has["w1"] = nil
	facts("w1")
	if f, g := told("w1", "w2"), told("w2", "w1"); f != nil || g != nil {
		t.Errorf("w1 has none any more, and they are told %+v and %+v", f, g)
	}
	s.keep(s.c.Step(s.now, ChildDown{Name: "w2"}))
	s.do(RemoveWorker{Name: "w2"})
	if p := item[wire.OverlayPeer](s, "w1", wire.OverlayPeerKey(id["w2"])); p != nil {
		t.Errorf("w1 is still told %+v of a worker that was removed", p)
	}
}
