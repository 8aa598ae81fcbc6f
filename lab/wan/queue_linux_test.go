package wan

import (
	"bytes"
	"testing"
)

// sent builds what the kernel sends for a packet.
func sent(id uint32, payload []byte) []byte {
	return message(nil, msgPacket, 0, 7, attribute(attrPacket, append(be32(id), 8, 0, 2)...), attribute(attrPayload, payload...))
}

var header = []byte{0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}

func TestParse(t *testing.T) {
	two := append(sent(1, header), sent(2, []byte{0x60, 0, 0, 0})...)
	var got []uint32
	var pairs []Pair
	if err := parse(two, func(id uint32, p Pair) { got, pairs = append(got, id), append(pairs, p) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0] != 1 || got[1] != 2 || pairs[0] != ab || pairs[1] != (Pair{}) {
		t.Error(got, pairs)
	}
	for cut := 1; cut < len(two); cut++ {
		parse(two[:cut], func(uint32, Pair) {}) // any error, no panic
	}
}

func TestVerdictMessage(t *testing.T) {
	m := appendVerdict(nil, 7, verdict{0x01020304, true})
	if len(m) != 32 || !bytes.Equal(m[24:], []byte{0, 0, 0, 0, 1, 2, 3, 4}) {
		t.Errorf("%x", m)
	}
	if odd := attribute(1, 9); len(odd) != 8 || odd[4] != 9 || odd[5]|odd[6]|odd[7] != 0 {
		t.Errorf("%x", odd)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sent(1, header))
	f.Add(append(sent(1, header), sent(2, nil)...))
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		_ = parse(b, func(uint32, Pair) { n++ })
		if n*nlmsgHeader > len(b) {
			t.Error("more packets than fit")
		}
	})
}
