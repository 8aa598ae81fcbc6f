package orchestrator

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

var here, there = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")

// ipv4 makes a packet; seq is of TCP.
func ipv4(proto byte, from, to netip.Addr, fromPort, toPort uint16, seq uint32, payload []byte) []byte {
	head := 20
	if proto == protoUDP {
		head = 8
	}
	p := make([]byte, 20+head, 20+head+len(payload))
	p[0], p[9] = 0x45, proto
	copy(p[12:], from.AsSlice())
	copy(p[16:], to.AsSlice())
	binary.BigEndian.PutUint16(p[20:], fromPort)
	binary.BigEndian.PutUint16(p[22:], toPort)
	if proto == protoTCP {
		binary.BigEndian.PutUint32(p[24:], seq)
		p[32] = 5 << 4
	}
	p = append(p, payload...)
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	return p
}

func record(kind byte, n int) []byte {
	out := make([]byte, recordHeader+n)
	out[0], out[1], out[2] = kind, 3, 3
	binary.BigEndian.PutUint16(out[3:], uint16(n))
	return out
}

func anything(netip.Addr, uint16, bool) string { return "all" }

// Messages are records with data, wherever segments cut them, and each once.
func TestWireRecords(t *testing.T) {
	stream := append(record(22, 40), record(recordData, 100)...)
	stream = append(stream, record(recordData, 3)...)
	stream = append(stream, record(21, 2)...)
	stream = append(stream, record(recordData, 0)...)
	for size := 1; size <= len(stream); size++ {
		w := newWire(here, anything)
		// A first segment of less than a header would be taken for the middle of something.
		for at, end := 0, max(size, recordHeader); at < len(stream); at, end = end, end+size {
			p := ipv4(protoTCP, here, there, 40000, 7444, uint32(at)-50, stream[at:min(end, len(stream))])
			w.packet(p)
			w.packet(p) // sent again
		}
		if got := w.sums["all"]; got == nil || got.Messages != 3 {
			t.Fatalf("segments of %d: %+v", size, got)
		}
	}
}

// What was missed is not guessed: it goes on at the next header.
func TestWireGap(t *testing.T) {
	w := newWire(here, anything)
	send := func(seq uint32, data []byte) { w.packet(ipv4(protoTCP, there, here, 7444, 40000, seq, data)) }
	send(1000, []byte("the middle of something"))
	if w.sums["all"].Messages != 0 {
		t.Fatal("a message was seen in the middle of a record")
	}
	one := record(recordData, 50)
	send(2000, one)
	send(9000, one[10:]) // after a gap, and not at a header
	send(9100, one)
	if got := w.sums["all"].Messages; got != 2 {
		t.Error(got)
	}
}

func TestWireSorts(t *testing.T) {
	w := newWire(here, func(peer netip.Addr, port uint16, tcp bool) string {
		switch {
		case peer != there:
			return ""
		case tcp && port == 7444:
			return "link"
		case !tcp:
			return "beats"
		}
		return ""
	})
	w.packet(ipv4(protoTCP, here, there, 40000, 7444, 1, record(recordData, 10)))
	w.packet(ipv4(protoTCP, there, here, 7444, 40000, 1, record(recordData, 10)))
	w.packet(ipv4(protoTCP, here, there, 40000, 7443, 1, record(recordData, 10)))
	w.packet(ipv4(protoUDP, here, there, 40000, 7444, 0, []byte("beat")))
	w.packet(ipv4(protoUDP, netip.MustParseAddr("10.0.0.3"), here, 40000, 7444, 0, []byte("beat")))
	w.packet(ipv4(protoUDP, there, netip.MustParseAddr("10.0.0.3"), 40000, 7444, 0, []byte("beat")))
	if l, b := w.sums["link"], w.sums["beats"]; l == nil || b == nil || l.Messages != 2 || l.Packets != 2 || l.Bytes != 2*(40+15) || b.Messages != 1 || len(w.sums) != 2 {
		t.Errorf("%+v %+v %v", l, b, w.sums)
	}
}

// Packets of any shape harm nobody, and never are more messages than bytes allow.
func FuzzWire(f *testing.F) {
	f.Add(ipv4(protoTCP, here, there, 1, 2, 3, record(recordData, 10)))
	f.Add(ipv4(protoUDP, there, here, 1, 2, 0, []byte("beat")))
	f.Add([]byte{0x4f, 0, 0, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		w := newWire(here, anything)
		w.packet(p)
		w.packet(p)
		for _, s := range w.sums {
			if s.Messages > 2*len(p) || s.Packets > 2 {
				t.Errorf("%+v", s)
			}
		}
	})
}
