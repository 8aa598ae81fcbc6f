package tunnel

import (
	"bytes"
	"encoding/binary"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

const (
	// maxRuns is how many flows are joined at the same time. With more, the oldest is written as it is.
	maxRuns = 8
	// maxJoined is the most packets in one large segment.
	maxJoined = 64
	maxIP     = 65535
)

// merger joins packets of a flow that follow each other into large segments. It copies nothing: what it is given must stay
// until flush. Packets of a flow keep their order.
type merger struct {
	write func(iov [][]byte) // a frame for the tap
	runs  [maxRuns]run
	used  [maxRuns]*run // in the order in which they began
	n     int
}

// run is a large segment in the making.
type run struct {
	peer   wire.PeerID
	net    wire.NetworkID
	ip     ipPacket
	head   int    // length of IP and transport headers
	seg    int    // payload of every packet but the last
	total  int    // length of the whole IP packet
	seq    uint32 // of what would come next
	id     uint16 // IPv4 identification of what would come next
	closed bool   // nothing may follow: the last was short, or said so
	frame  [frameLen]byte
	iov    [][]byte // frame, first packet, payloads
}

// add takes a packet from a peer: meta bytes and an IP packet. It reports whether that is well-formed.
func (m *merger) add(peer wire.PeerID, data []byte) bool {
	flags, net := data[0], wire.NetworkID(binary.BigEndian.Uint32(data[1:]))
	pkt := data[metaLen:]
	ip, ok := parseIP(pkt)
	if !ok || ip.total != len(pkt) {
		return false
	}
	partial := flags&flagPartial != 0
	at := csumAt(ip.proto)
	if partial && (ip.l4 == 0 || at == 0 || ip.l4+at+2 > len(pkt)) {
		return false
	}
	head, joins := 0, false
	if ip.l4 != 0 && at != 0 {
		head, joins = headers(pkt, ip)
		r := m.find(peer, net, pkt, ip)
		if r != nil {
			if partial && joins && r.follows(pkt, ip, head) {
				r.take(pkt, ip, head)
				if r.closed {
					m.end(r)
				}
				return true
			}
			m.end(r)
		}
	}
	r := m.begin()
	r.peer, r.net, r.ip, r.head, r.total = peer, net, ip, head, len(pkt)
	r.iov = append(r.iov[:0], r.frame[:], pkt)
	clear(r.frame[:])
	if partial {
		f := &r.frame
		f[0] = vnetNeedsCsum
		binary.NativeEndian.PutUint16(f[6:], uint16(etherLen+ip.l4))
		binary.NativeEndian.PutUint16(f[8:], uint16(at))
	}
	putLabel(r.frame[vnetLen:], label{peer, overlay.FrameData, net}, ip.v6)
	r.seg = len(pkt) - head
	if !partial || !joins || ip.proto == protoTCP && pkt[ip.l4+13]&(tcpPSH|tcpFIN) != 0 {
		m.end(r)
		return true
	}
	if ip.proto == protoTCP {
		r.seq = binary.BigEndian.Uint32(pkt[ip.l4+4:]) + uint32(r.seg)
	}
	r.id = binary.BigEndian.Uint16(pkt[4:]) + 1
	r.closed = false
	return true
}

// headers gives the length of a packet's headers, and whether others may be joined to it.
func headers(pkt []byte, ip ipPacket) (head int, joins bool) {
	if !ip.v6 && ip.l4 != 20 {
		return 0, false
	}
	l4 := pkt[ip.l4:]
	if ip.proto == protoUDP {
		return ip.l4 + 8, len(l4) > 8 && int(binary.BigEndian.Uint16(l4[4:])) == len(l4)
	}
	if len(l4) < 20 {
		return 0, false
	}
	doff := int(l4[12]>>4) * 4
	if doff < 20 || len(l4) <= doff {
		return 0, false
	}
	return ip.l4 + doff, l4[13]&^(tcpPSH|tcpFIN) == tcpACK && l4[12]&15 == 0
}

// find gives the run of a packet's flow.
func (m *merger) find(peer wire.PeerID, net wire.NetworkID, pkt []byte, ip ipPacket) *run {
	for _, r := range m.used[:m.n] {
		if r.peer != peer || r.net != net || r.ip.proto != ip.proto || r.ip.v6 != ip.v6 {
			continue
		}
		first := r.iov[1]
		addrs := 12
		if ip.v6 {
			addrs = 8
		}
		to := ip.l4 + 4
		if !ip.v6 { // addresses, then options, then ports
			if bytes.Equal(first[addrs:20], pkt[addrs:20]) && bytes.Equal(first[r.ip.l4:r.ip.l4+4], pkt[ip.l4:to]) {
				return r
			}
		} else if bytes.Equal(first[addrs:to], pkt[addrs:to]) {
			return r
		}
	}
	return nil
}

// follows says whether a packet of the run's flow is what comes next, and its headers say nothing new.
func (r *run) follows(pkt []byte, ip ipPacket, head int) bool {
	pay := len(pkt) - head
	if r.closed || head != r.head || pay > r.seg || r.total+pay > maxIP || len(r.iov) > maxJoined {
		return false
	}
	a, l4 := r.iov[1], ip.l4
	if ip.v6 {
		if !bytes.Equal(a[:4], pkt[:4]) || a[7] != pkt[7] {
			return false
		}
	} else {
		// Without DF the identification matters: it must be what cutting the large segment would give.
		if a[1] != pkt[1] || a[6] != pkt[6] || a[8] != pkt[8] || a[6]&0x40 == 0 && binary.BigEndian.Uint16(pkt[4:]) != r.id {
			return false
		}
	}
	if ip.proto == protoUDP {
		return true
	}
	return binary.BigEndian.Uint32(pkt[l4+4:]) == r.seq &&
		bytes.Equal(a[l4+8:l4+13], pkt[l4+8:l4+13]) && // acknowledgement, header length
		bytes.Equal(a[l4+14:l4+16], pkt[l4+14:l4+16]) && // window
		bytes.Equal(a[l4+20:head], pkt[l4+20:head]) // options
}

func (r *run) take(pkt []byte, ip ipPacket, head int) {
	pay := len(pkt) - head
	r.iov = append(r.iov, pkt[head:])
	r.total += pay
	r.id++
	if ip.proto == protoTCP {
		f := pkt[ip.l4+13]
		r.iov[1][ip.l4+13] |= f & (tcpPSH | tcpFIN)
		r.seq += uint32(pay)
		r.closed = f&(tcpPSH|tcpFIN) != 0
	}
	r.closed = r.closed || pay < r.seg
}

// begin gives a run that is free.
func (m *merger) begin() *run {
	if m.n == maxRuns {
		m.end(m.used[0])
	}
	if m.used[m.n] == nil { // the first time round: all are in used, in any order, once they have been
		m.used[m.n] = &m.runs[m.n]
	}
	r := m.used[m.n]
	m.n++
	return r
}

// end writes a run and frees it.
func (m *merger) end(r *run) {
	r.finish()
	m.write(r.iov)
	for i, u := range m.used[:m.n] {
		if u == r {
			copy(m.used[i:m.n-1], m.used[i+1:m.n])
			m.n--
			m.used[m.n] = r
			return
		}
	}
}

// flush writes everything. What was given to add may be reused afterwards.
func (m *merger) flush() {
	for _, r := range m.used[:m.n] {
		r.finish()
		m.write(r.iov)
	}
	m.n = 0
}

// finish makes the headers those of a large segment.
func (r *run) finish() {
	if len(r.iov) <= 2 {
		return
	}
	ip, l4 := r.iov[1], r.ip.l4
	setLength(ip, r.ip.v6, r.total)
	f := &r.frame
	f[1] = gsoTCP4
	switch {
	case r.ip.proto == protoUDP:
		f[1] = gsoUDP
		binary.BigEndian.PutUint16(ip[l4+4:], uint16(r.total-l4))
	case r.ip.v6:
		f[1] = gsoTCP6
	}
	binary.NativeEndian.PutUint16(f[2:], uint16(etherLen+r.head))
	binary.NativeEndian.PutUint16(f[4:], uint16(r.seg))
	c := fold(sumAddrs(ip, r.ip.v6, r.ip.proto) + uint64(r.total-l4))
	binary.BigEndian.PutUint16(ip[l4+csumAt(r.ip.proto):], c)
}
