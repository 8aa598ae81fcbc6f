package orchestrator

import (
	"encoding/binary"
	"net/netip"
)

// Traffic is what one sort of control traffic was, in both directions.
type Traffic struct {
	Messages int // TLS records with data, or datagrams
	Packets  int
	Bytes    int // with IP headers
}

// sniffer counts the control messages of one host by looking at its packets. The link between tiers is TLS over TCP,
// with a record for each frame or more that were ready together: its headers are not sealed. Beats and what workers ask
// each other are datagrams, each one a message.
type sniffer struct {
	self  netip.Addr
	sort  func(peer netip.Addr, port uint16, tcp bool) string // "" leaves a packet out of account
	flows map[flow]*records
	sums  map[string]*Traffic
}

type flow struct {
	from, to         netip.Addr
	fromPort, toPort uint16
}

func newWire(self netip.Addr, sort func(peer netip.Addr, port uint16, tcp bool) string) *sniffer {
	return &sniffer{self: self, sort: sort, flows: map[flow]*records{}, sums: map[string]*Traffic{}}
}

const (
	protoTCP, protoUDP = 6, 17
	recordHeader       = 5
	recordData         = 23 // of TLS: what programs send; in TLS 1.3 it hides everything after the greeting
	maxRecord          = 1<<14 + 256
)

// packet looks at an IPv4 packet. What is cut off or no TCP or UDP of the host is left out.
func (w *sniffer) packet(data []byte) {
	if len(data) < 20 || data[0]>>4 != 4 {
		return
	}
	head, total := int(data[0]&15)*4, int(binary.BigEndian.Uint16(data[2:]))
	if total == 0 {
		total = len(data) // larger than the field holds: it has not been cut into segments yet
	}
	if head < 20 || total < head || total > len(data) || binary.BigEndian.Uint16(data[6:])&0x1fff != 0 {
		return
	}
	proto, body := data[9], data[head:total]
	f := flow{from: netip.AddrFrom4([4]byte(data[12:])), to: netip.AddrFrom4([4]byte(data[16:]))}
	if proto != protoTCP && proto != protoUDP || len(body) < 8 || f.from != w.self && f.to != w.self {
		return
	}
	f.fromPort, f.toPort = binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:])
	peer := f.to
	if f.to == w.self {
		peer = f.from
	}
	// The lower port is that of the service, as services have theirs below those that systems give to clients.
	sort := w.sort(peer, min(f.fromPort, f.toPort), proto == protoTCP)
	if sort == "" {
		return
	}
	t := w.sums[sort]
	if t == nil {
		t = &Traffic{}
		w.sums[sort] = t
	}
	t.Packets, t.Bytes = t.Packets+1, t.Bytes+total
	if proto == protoUDP {
		t.Messages++
		return
	}
	if len(body) < 20 {
		return
	}
	off := int(body[12]>>4) * 4
	if off < 20 || off > len(body) {
		return
	}
	r := w.flows[f]
	if r == nil {
		r = &records{}
		w.flows[f] = r
	}
	t.Messages += r.segment(binary.BigEndian.Uint32(body[4:]), body[off:])
}

// records finds the records in one direction of a TLS connection.
type records struct {
	begun bool
	next  uint32 // sequence number of what comes next
	skip  int    // bytes until the next header
	head  []byte // of a header that is cut in two
}

// segment gives the number of records with data that begin in a segment. What was seen before is left out; after a gap,
// and at the beginning, it waits for a segment that begins with a header, as most do: a frame is written at once.
func (r *records) segment(seq uint32, data []byte) (n int) {
	if r.begun {
		switch old := int32(r.next - seq); {
		case old > 0 && int(old) >= len(data):
			return 0 // sent again
		case old > 0:
			data = data[old:]
			seq = r.next
		case old < 0:
			r.begun = false // one was not seen
		}
	}
	if len(data) == 0 {
		return 0
	}
	if !r.begun {
		if !isRecord(data) {
			return 0
		}
		*r = records{begun: true}
	}
	r.next = seq + uint32(len(data))
	for len(data) > 0 {
		if r.skip > 0 {
			k := min(r.skip, len(data))
			r.skip, data = r.skip-k, data[k:]
			continue
		}
		k := min(recordHeader-len(r.head), len(data))
		r.head, data = append(r.head, data[:k]...), data[k:]
		if len(r.head) < recordHeader {
			return n
		}
		if !isRecord(r.head) {
			*r = records{}
			return n
		}
		if r.head[0] == recordData {
			n++
		}
		r.skip, r.head = int(binary.BigEndian.Uint16(r.head[3:])), r.head[:0]
	}
	return n
}

// isRecord reports whether data begins with the header of a TLS record.
func isRecord(data []byte) bool {
	return len(data) >= recordHeader && data[0] >= 20 && data[0] <= recordData && data[1] == 3 && data[2] <= 4 &&
		int(binary.BigEndian.Uint16(data[3:])) <= maxRecord
}
