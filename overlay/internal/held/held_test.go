package held

import (
	"net/netip"
	"testing"
	"time"
)

func TestHoldingIsBounded(t *testing.T) {
	h, now := New(), time.Unix(1000, 0)
	a := Target{7, netip.MustParseAddr("10.30.0.1")}
	for i := range 3 * each {
		if tell := h.Hold(a, []byte{byte(i)}, now); tell != (i == 0) {
			t.Errorf("packet %d: tell is %v", i, tell)
		}
	}
	if got := h.Take(now, func(Target) bool { return true }); len(got) != each || got[0][0] != 0 {
		t.Errorf("%d packets", len(got))
	}
	for i := range 5 * All {
		h.Hold(Target{7, netip.AddrFrom4([4]byte{10, 30, byte(i >> 8), byte(i)})}, []byte{1}, now)
	}
	if h.frames > All/2 || len(h.by) > All/2 {
		t.Errorf("%d packets for %d", h.frames, len(h.by))
	}
	// Another application is not held up by one that asks for everything.
	if b := (Target{8, a.Dst}); !h.Hold(b, []byte{2}, now) || len(h.Take(now, func(t Target) bool { return t == b })) != 1 {
		t.Error("nothing of another network is held")
	}
	if got := h.Take(now.Add(holdFor+1), func(Target) bool { return true }); len(got) != 0 || h.frames != 0 {
		t.Errorf("%d packets, %d left", len(got), h.frames)
	}
	// What is still wanted is told again.
	now = now.Add(time.Minute)
	for range 3 {
		if !h.Hold(a, []byte{1}, now) {
			t.Error("not told")
		}
		now = now.Add(again)
	}
}
