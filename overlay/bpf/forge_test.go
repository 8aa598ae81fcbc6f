//go:build linux

package bpf

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/forge"
	"skerry.dev/skerry/overlay/internal/planetest"
)

func miss(p []byte) []byte {
	return planetest.Ether([]byte{2, byte(overlay.FrameMiss), 0, 0, 0, 0}, []byte{2, 0, 0, 0, 0, 7}, p)
}

func TestFragmentsAddUp(t *testing.T) {
	src, dst := netip.MustParseAddr("10.40.1.2"), netip.MustParseAddr("10.30.0.1")
	data := bytes.Repeat([]byte("0123456789"), 400)
	p := planetest.UDP(src, dst, 1, 2, data)
	if cut(miss(p), 1404) != nil {
		t.Error("a packet that must not be cut was cut")
	}
	p[6] = 0
	if cut(miss(p), 5000) != nil {
		t.Error("a packet that fits was cut")
	}
	var got []byte
	for i, f := range cut(miss(p), 1404) {
		ip := f[etherLen:]
		frag := binary.BigEndian.Uint16(ip[6:])
		if len(ip) > 1404 || len(ip) != int(binary.BigEndian.Uint16(ip[2:])) || forge.Checksum(ip[:20]) != 0 || f[1] != byte(overlay.FrameAgain) {
			t.Errorf("fragment %d: %x", i, ip[:20])
		}
		if int(frag&0x1fff)*8 != len(got) || frag&0x2000 == 0 != (len(got)+len(ip)-20 == len(p)-20) {
			t.Errorf("fragment %d at %x", i, frag)
		}
		got = append(got, ip[20:]...)
	}
	if !bytes.Equal(got, p[20:]) {
		t.Errorf("%d of %d bytes", len(got), len(p)-20)
	}
}

func TestAnswers(t *testing.T) {
	for _, six := range []bool{false, true} {
		src, dst := netip.MustParseAddr("10.40.1.2"), planetest.Svc(1, six)
		head := 20
		if six {
			src, head = netip.MustParseAddr("fd00:40:1::2"), 40
		}
		f, ok := parseFrame(answerReset(miss(planetest.TCP(src, dst, 1000, 80, 16, 12345))))
		if !ok || f.kind != overlay.FrameToInst || f.src != dst || f.dst != src {
			t.Errorf("%+v, %v", f, ok)
		}
		seg := answerReset(miss(planetest.TCP(src, dst, 1000, 80, 16, 12345)))[etherLen+head:]
		if binary.BigEndian.Uint16(seg) != 80 || binary.BigEndian.Uint16(seg[2:]) != 1000 || binary.BigEndian.Uint32(seg[4:]) != 12345 || seg[13] != 4 {
			t.Errorf("%x", seg)
		}
		if answerReset(miss(planetest.TCP(src, dst, 1000, 80, 4, 0))) != nil || answerReset(miss(planetest.UDP(src, dst, 1, 2, nil))) != nil {
			t.Error("a reset, or what is no TCP, was answered")
		}
		big := forgeTooBig(miss(planetest.UDP(src, dst, 1, 2, make([]byte, 1500))), 1404)
		f, ok = parseFrame(big)
		if !ok || f.src != dst || f.dst != src || binary.BigEndian.Uint16(big[etherLen+head+6:]) != 1404 {
			t.Errorf("%+v, %x", f, big[:60])
		}
		if forgeTooBig(big, 1404) != nil {
			t.Error("an error was answered by an error")
		}
	}
}

// Frames of the agent's tap come from instances: nothing in them may do harm, and what is made of them is well-formed.
func FuzzFrame(f *testing.F) {
	a4, a6 := netip.MustParseAddr("10.40.1.2"), netip.MustParseAddr("fd00:40:1::2")
	to4, to6 := planetest.Svc(1, false), planetest.Svc(1, true)
	for _, p := range [][]byte{planetest.UDP(a4, to4, 1, 2, make([]byte, 100)), planetest.UDP(a6, to6, 1, 2, []byte("x")),
		planetest.TCP(a4, to4, 1, 2, 16, 9), planetest.TCP(a6, to6, 1, 2, 16, 9)} {
		f.Add(miss(p), 600)
	}
	f.Fuzz(func(t *testing.T, frame []byte, mtu int) {
		mtu = max(576, mtu%65536)
		before := bytes.Clone(frame)
		whole := 0
		for _, out := range cut(frame, mtu) {
			if got, ok := parseFrame(out); !ok || got.kind != overlay.FrameAgain || len(out) > mtu+etherLen {
				t.Errorf("a fragment of %d bytes, %+v", len(out), got)
			}
			whole += len(out) - etherLen - 20
		}
		if whole > len(frame) {
			t.Errorf("fragments of %d bytes of a frame of %d", whole, len(frame))
		}
		for _, out := range [][]byte{answerReset(frame), forgeTooBig(frame, mtu)} {
			if out == nil {
				continue
			}
			was, ok := parseFrame(frame)
			got, ok2 := parseFrame(out)
			if !ok || !ok2 || got.kind != overlay.FrameToInst || got.src != was.dst || got.dst != was.src || len(out) > 1400 {
				t.Errorf("%d bytes, %+v for %+v", len(out), got, was)
			}
		}
		if !bytes.Equal(frame, before) {
			t.Error("the frame was changed")
		}
	})
}

func FuzzEvent(f *testing.F) {
	f.Add(make([]byte, 48))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, ok := parseEvent(b); ok && (len(b) < 48 || e.Kind < eventUnknown || e.Kind > eventReset) {
			t.Errorf("%+v of %d bytes", e, len(b))
		}
	})
}
