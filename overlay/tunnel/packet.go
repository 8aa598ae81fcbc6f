package tunnel

import (
	"encoding/binary"
	"errors"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

// A frame of the tap is a virtio header, an Ethernet header that carries what belongs to the packet, and an IP packet.
const (
	vnetLen  = 10
	etherLen = 14
	frameLen = vnetLen + etherLen
)

// The virtio header: flags, kind of large segment, length of headers, size of segments, where the checksum begins (from the
// Ethernet header on) and where in there it stands. Numbers are in the machine's byte order.
const (
	vnetNeedsCsum = 1

	gsoNone  = 0
	gsoTCP4  = 1
	gsoTCP6  = 4
	gsoUDP   = 5
	gsoECN   = 0x80
	protoTCP = 6
	protoUDP = 17
)

const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpACK = 0x10
	tcpCWR = 0x80
)

var errFrame = errors.New("malformed frame")

// label is what travels in the Ethernet header of a frame.
type label struct {
	peer wire.PeerID
	kind overlay.FrameKind
	net  wire.NetworkID
}

func parseLabel(eth []byte) (l label, ok bool) {
	if len(eth) < etherLen || eth[0] != 2 || eth[6] != 2 {
		return l, false
	}
	return label{wire.PeerID(binary.BigEndian.Uint32(eth[2:])), overlay.FrameKind(eth[1]), wire.NetworkID(binary.BigEndian.Uint32(eth[8:]))},
		true
}

// putLabel writes an Ethernet header for a packet of IP version 4 or 6.
func putLabel(eth []byte, l label, v6 bool) {
	_ = eth[etherLen-1]
	eth[0], eth[1] = 2, byte(l.kind)
	binary.BigEndian.PutUint32(eth[2:], uint32(l.peer))
	eth[6], eth[7] = 2, 0
	binary.BigEndian.PutUint32(eth[8:], uint32(l.net))
	if v6 {
		eth[12], eth[13] = 0x86, 0xdd
	} else {
		eth[12], eth[13] = 0x08, 0x00
	}
}

// ipPacket is what is known of an IP packet without looking into options and extension headers.
type ipPacket struct {
	v6    bool
	total int // bytes of the packet
	l4    int // where the transport header begins; 0: unknown (extension headers, a fragment)
	proto byte
}

// parseIP reads the fixed header. The packet must be as long as it says; more bytes may follow.
func parseIP(data []byte) (p ipPacket, ok bool) {
	if len(data) < 20 {
		return p, false
	}
	switch data[0] >> 4 {
	case 4:
		ihl := int(data[0]&15) * 4
		p.total, p.proto = int(binary.BigEndian.Uint16(data[2:])), data[9]
		if ihl < 20 || p.total < ihl || p.total > len(data) {
			return p, false
		}
		if binary.BigEndian.Uint16(data[6:])&0x3fff == 0 {
			p.l4 = ihl
		}
	case 6:
		if len(data) < 40 {
			return p, false
		}
		p.v6, p.total, p.proto = true, 40+int(binary.BigEndian.Uint16(data[4:])), data[6]
		if p.total > len(data) {
			return p, false
		}
		if p.proto == protoTCP || p.proto == protoUDP {
			p.l4 = 40
		}
	default:
		return p, false
	}
	return p, true
}

// csumAt says where a transport's checksum stands in its header; 0: it has none that can be left to the last hop.
func csumAt(proto byte) int {
	switch proto {
	case protoTCP:
		return 16
	case protoUDP:
		return 6
	}
	return 0
}

// sum adds bytes as the Internet checksum does, not yet folded.
func sum(b []byte, s uint64) uint64 {
	for len(b) >= 4 {
		s += uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

func fold(s uint64) uint16 {
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// sumAddrs is the part of a pseudo header that all packets of a flow share.
func sumAddrs(ip []byte, v6 bool, proto byte) uint64 {
	if v6 {
		return sum(ip[8:40], uint64(proto))
	}
	return sum(ip[12:20], uint64(proto))
}

// setLength writes a packet's length, and IPv4's header checksum.
func setLength(ip []byte, v6 bool, total int) {
	if v6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(total-40))
		return
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(total))
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^fold(sum(ip[:int(ip[0]&15)*4], 0)))
}
