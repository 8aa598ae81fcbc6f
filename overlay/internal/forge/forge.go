// Package forge builds the packets with which data planes answer instances.
package forge

import (
	"encoding/binary"
	"net/netip"
)

// Checksum is that of the Internet (RFC 1071), over parts that each but the last have an even length.
func Checksum(parts ...[]byte) uint16 {
	var sum uint64
	for _, b := range parts {
		for ; len(b) >= 2; b = b[2:] {
			sum += uint64(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint64(b[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// IP builds a packet of the family that both addresses have. The payload's checksum is put at its offset there.
func IP(src, dst netip.Addr, proto byte, payload []byte, sum int) []byte {
	pseudo := binary.BigEndian.AppendUint32(append(src.AsSlice(), dst.AsSlice()...), uint32(len(payload)))
	pseudo = append(pseudo, 0, 0, 0, proto)
	if proto == 1 {
		pseudo = nil // ICMP for IPv4 has none
	}
	binary.BigEndian.PutUint16(payload[sum:], Checksum(pseudo, payload))
	h := []byte{0x60, 0, 0, 0, 0, 0, proto, 64}
	if dst.Is4() {
		h = []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, proto, 0, 0}
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
	} else {
		binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	}
	h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
	if dst.Is4() {
		binary.BigEndian.PutUint16(h[10:], Checksum(h))
	}
	return append(h, payload...)
}

// EtherType is the type that a packet has in an Ethernet header.
func EtherType(p []byte) []byte {
	if p[0]>>4 == 6 {
		return []byte{0x86, 0xdd}
	}
	return []byte{8, 0}
}
