//go:build linux

package bpf

import (
	"encoding/binary"
	"net/netip"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/forge"
)

// answer puts a packet into a frame for an instance.
func answer(p []byte) []byte {
	f := append([]byte{2, byte(overlay.FrameToInst), 0, 0, 0, 0, 2, 0, 0, 0, 0, 0}, forge.EtherType(p)...)
	return append(f, p...)
}

// forgeReset makes the reset by which a client learns that its connection is over. ack is the last that it has sent:
// what it expects next.
func forgeReset(client, service netip.Addr, cport, port uint16, ack uint32) []byte {
	t := make([]byte, 20)
	binary.BigEndian.PutUint16(t, port)
	binary.BigEndian.PutUint16(t[2:], cport)
	binary.BigEndian.PutUint32(t[4:], ack)
	t[12], t[13] = 5<<4, 4
	return answer(forge.IP(service, client, 6, t, 16))
}

// answerReset makes the reset that answers a packet of a client.
func answerReset(data []byte) []byte {
	frame, ok := parseFrame(data)
	if !ok {
		return nil
	}
	buf := data[etherLen:]
	var t []byte
	if frame.src.Is4() {
		if buf[9] != 6 || binary.BigEndian.Uint16(buf[6:])&0x1fff != 0 {
			return nil
		}
		t = buf[headerLen(buf):]
	} else {
		if buf[6] != 6 {
			return nil
		}
		t = buf[40:]
	}
	if len(t) < 20 || t[13]&4 != 0 {
		return nil
	}
	ack := uint32(0)
	if t[13]&16 != 0 {
		ack = binary.BigEndian.Uint32(t[8:])
	}
	return forgeReset(frame.src, frame.dst, binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:]), ack)
}

// forgeTooBig makes the answer to a packet that is longer than the MTU. ICMP errors are not answered.
func forgeTooBig(b []byte, mtu int) []byte {
	f, ok := parseFrame(b)
	if !ok {
		return nil
	}
	p := b[etherLen:]
	if f.src.Is4() {
		if h := headerLen(p); p[9] == 1 && (len(p) <= h || p[h] != 0 && p[h] != 8) {
			return nil
		}
		icmp := []byte{3, 4, 0, 0, 0, 0, byte(mtu >> 8), byte(mtu)}
		return answer(forge.IP(f.dst, f.src, 1, append(icmp, p[:min(len(p), headerLen(p)+128)]...), 2))
	}
	if p[6] == 58 && (len(p) < 41 || p[40] < 128) {
		return nil
	}
	icmp := []byte{2, 0, 0, 0, 0, 0, byte(mtu >> 8), byte(mtu)}
	return answer(forge.IP(f.dst, f.src, 58, append(icmp, p[:min(len(p), 1280-48)]...), 2))
}

// cut makes fragments of a packet that allows it, as the way's first router would; nil if it does not. They go on as if
// the instance had sent them.
func cut(buf []byte, mtu int) [][]byte {
	frame, ok := parseFrame(buf)
	if !ok || !frame.src.Is4() {
		return nil
	}
	p := buf[etherLen:]
	frag := binary.BigEndian.Uint16(p[6:])
	total := int(binary.BigEndian.Uint16(p[2:]))
	// Options would have to be sorted into those that each fragment has; with them it is an error, as without leave.
	if frag&0x4000 != 0 || headerLen(p) != 20 || total > len(p) || total <= mtu || mtu < 28 {
		return nil
	}
	data, step := p[20:total], (mtu-20)&^7
	var out [][]byte
	for off := 0; off < len(data); off += step {
		n := min(step, len(data)-off)
		g := append(append([]byte(nil), buf[:etherLen+20]...), data[off:off+n]...)
		setKind(g, overlay.FrameAgain)
		h := g[etherLen : etherLen+20]
		binary.BigEndian.PutUint16(h[2:], uint16(20+n))
		where := frag&0x1fff + uint16(off/8)
		if off+n < len(data) || frag&0x2000 != 0 {
			where |= 0x2000
		}
		binary.BigEndian.PutUint16(h[6:], where)
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], forge.Checksum(h))
		out = append(out, g)
	}
	return out
}
