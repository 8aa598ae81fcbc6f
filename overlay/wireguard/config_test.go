package wireguard

import (
	"bytes"
	"net/netip"
	"testing"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

func TestPrefixes(t *testing.T) {
	seen := map[netip.Prefix]bool{}
	for i := range 100 {
		p := Prefix(wire.OverlayKey{byte(i)})
		if !overlay.LinkPrefix(p) || !p.Addr().IsPrivate() || seen[p] {
			t.Errorf("%s", p)
		}
		seen[p] = true
	}
}

func TestPublic(t *testing.T) {
	// From RFC 7748, section 6.1.
	key := [32]byte{0x77, 0x07, 0x6d, 0x0a, 0x73, 0x18, 0xa5, 0x7d, 0x3c, 0x16, 0xc1, 0x72, 0x51, 0xb2, 0x66, 0x45, 0xdf, 0x4c, 0x2f, 0x87, 0xeb, 0xc0, 0x99, 0x2a, 0xb1, 0x77, 0xfb, 0xa5, 0x1d, 0xb9, 0x2c, 0x2a}
	got, err := Public(key)
	if err != nil || !bytes.HasPrefix(got[:], []byte{0x85, 0x20, 0xf0, 0x09, 0x89, 0x30, 0xa7, 0x54}) {
		t.Errorf("%x, %v", got, err)
	}
}

func TestCheck(t *testing.T) {
	at := netip.MustParseAddrPort
	own := wire.OverlayKey{9}
	for name, c := range map[string]Config{
		"":                  {MTU: 1380, Peers: []Peer{{ID: 1, Key: wire.OverlayKey{1}, At: at("192.0.2.1:1")}, {ID: 2, Key: wire.OverlayKey{2}}}},
		"small MTU":         {MTU: 100},
		"no number":         {Peers: []Peer{{Key: wire.OverlayKey{1}}}},
		"two of a number":   {Peers: []Peer{{ID: 1, Key: wire.OverlayKey{1}}, {ID: 1, Key: wire.OverlayKey{2}}}},
		"no key":            {Peers: []Peer{{ID: 1}}},
		"two of a key":      {Peers: []Peer{{ID: 1, Key: wire.OverlayKey{1}}, {ID: 2, Key: wire.OverlayKey{1}}}},
		"this worker's key": {Peers: []Peer{{ID: 1, Key: own}}},
		"no port":           {Peers: []Peer{{ID: 1, Key: wire.OverlayKey{1}, At: at("192.0.2.1:0")}}},
		"no host":           {Peers: []Peer{{ID: 1, Key: wire.OverlayKey{1}, At: at("0.0.0.0:1")}}},
		"many hosts":        {Peers: []Peer{{ID: 1, Key: wire.OverlayKey{1}, At: at("224.0.0.1:1")}}},
	} {
		if err := c.check(own); (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// answerTo does what the programs of overlay/bpf do with a question.
func answerTo(b []byte) []byte {
	b = bytes.Clone(b)
	var from [16]byte
	copy(from[:], b[8:24])
	copy(b[8:24], b[24:40])
	copy(b[24:40], from[:])
	b[40] = echoReply
	sum := uint32(b[42])<<8 + uint32(b[43]) - 1<<8 // one more of the type is one less of the sum
	if sum > 0xffff {
		sum-- // around
	}
	b[42], b[43] = byte(sum>>8), byte(sum)
	return b
}

func TestQuestion(t *testing.T) {
	one, two := Prefix(wire.OverlayKey{1}), Prefix(wire.OverlayKey{2})
	q := question(one, two, 0x1234567890abcdef)
	sum := uint32(16 + icmp6)
	for i := 8; i < len(q); i += 2 {
		sum += uint32(q[i])<<8 | uint32(q[i+1])
	}
	if sum%0xffff != 0 {
		t.Errorf("the sum is %x", sum)
	}
	if _, _, ok := parseAnswer(q, two); ok {
		t.Error("a question is taken for an answer")
	}
	a := answerTo(q)
	if from, n, ok := parseAnswer(a, one); !ok || from != two || n != 0x1234567890abcdef {
		t.Errorf("%s %x %v", from, n, ok)
	}
	if _, _, ok := parseAnswer(a, two); ok {
		t.Error("an answer for another is taken")
	}
	a[23] = 1 // in a network
	if _, _, ok := parseAnswer(a, one); ok {
		t.Error("an answer of an instance is taken")
	}
}

func TestDatagram(t *testing.T) {
	at := netip.MustParseAddrPort
	b := datagram(at("192.0.2.1:1000"), at("192.0.2.2:2000"), []byte("abc"))
	var sum uint32
	for _, part := range [][]byte{{192, 0, 2, 1, 192, 0, 2, 2, 0, 17, 0, 11}, append(bytes.Clone(b), 0)} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(part[i])<<8 | uint32(part[i+1])
		}
	}
	if sum%0xffff != 0 || len(b) != 11 {
		t.Errorf("%x: sum %x", b, sum)
	}
	head := append([]byte{0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2}, b...)
	if p, ok := payloadOf(head, 1000, 2000); !ok || string(p) != "abc" {
		t.Errorf("%q %v", p, ok)
	}
	if _, ok := payloadOf(head, 1000, 2001); ok {
		t.Error("one for another port is taken")
	}
}

func FuzzPayload(f *testing.F) {
	f.Add(append([]byte{0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2}, datagram(netip.MustParseAddrPort("192.0.2.1:1000"), netip.MustParseAddrPort("192.0.2.2:2000"), []byte("abc"))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := payloadOf(b, 1000, 2000); ok && len(p) > len(b)-28 {
			t.Errorf("%x of %x", p, b)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	one, two := Prefix(wire.OverlayKey{1}), Prefix(wire.OverlayKey{2})
	f.Add(answerTo(question(one, two, 7)))
	f.Add([]byte{0x60})
	f.Fuzz(func(t *testing.T, b []byte) {
		from, _, ok := parseAnswer(b, one)
		if ok && (!overlay.LinkPrefix(from) || len(b) != echoLen) {
			t.Errorf("%s of %x", from, b)
		}
	})
}
