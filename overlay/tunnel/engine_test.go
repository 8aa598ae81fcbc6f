//go:build linux

package tunnel

import (
	"testing"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

func TestPair(t *testing.T) {
	a, b := pair(t, true)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(t, transfer(a, b, false, 1000))
	must(t, transfer(b, a, true, 1000))
	must(t, transfer(a, b, false, 50<<20))
	must(t, transfer(b, a, true, 50<<20))
	for _, s := range []*station{a, b} {
		eventually(t, "a direct path", func() bool { p := s.status().Peers[0]; return p.Path == overlay.PathDirect && p.RTT > 0 })
		p := s.status().Peers[0]
		if p.RxBytes < 50<<20 || p.TxBytes < 50<<20 || p.Handshake.IsZero() || p.Cipher == "" || p.Reason != "" {
			t.Errorf("%+v", p)
		}
	}
}

// TestNothingTicksWithoutPeers: an engine that has nobody to reach sleeps until something comes, and one that has looks after it.
func TestNothingTicksWithoutPeers(t *testing.T) {
	e := New(Options{})
	t.Cleanup(func() { must(t, e.Close()) })
	if got := e.pause(true); got != 0 {
		t.Errorf("alone: got a pause of %v, want none", got)
	}
	must(t, e.call(func() { e.keys[wire.OverlayKey{1}] = &peer{} }))
	var idle, busy time.Duration
	must(t, e.call(func() {
		idle, busy = e.pause(true), e.pause(false)
		delete(e.keys, wire.OverlayKey{1})
	}))
	if idle != tickIdle || busy != tickBusy {
		t.Errorf("with a peer: got pauses of %v and %v, want %v and %v", idle, busy, tickIdle, tickBusy)
	}
}
