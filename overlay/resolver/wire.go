package resolver

import (
	"bytes"
	"encoding/binary"
	"slices"

	dns "golang.org/x/net/dns/dnsmessage"
)

// message is an answer of an upstream server, walked once. Its records stay as they came, those of unknown types too.
type message struct {
	raw   []byte // without OPT and what came behind it
	qEnd  int    // where the question ends
	rcode dns.RCode
	tc    bool
	ttls  []int  // where the records' times to live stand
	ttl   uint32 // the least of them; for an answer without records that of the negative answer
	any   bool   // there is a record to take ttl from
}

// walk reads a whole answer with one question. It gives false if anything is out of place.
func walk(raw []byte) (message, bool) {
	m := message{raw: raw}
	if len(raw) < 12 || raw[2]&0x80 == 0 || binary.BigEndian.Uint16(raw[4:]) != 1 {
		return m, false
	}
	m.rcode, m.tc = dns.RCode(raw[3]&0xf), raw[2]&2 != 0
	off, ok := skipName(raw, 12)
	if !ok || off+4 > len(raw) {
		return m, false
	}
	off += 4
	m.qEnd = off
	var count [3]int
	for i := range count {
		count[i] = int(binary.BigEndian.Uint16(raw[6+2*i:]))
	}
	for section, n := range count {
		for i := range n {
			start := off
			if off, ok = skipName(raw, off); !ok || off+10 > len(raw) {
				return m, false
			}
			typ, ttl, size := dns.Type(binary.BigEndian.Uint16(raw[off:])), binary.BigEndian.Uint32(raw[off+4:]),
				int(binary.BigEndian.Uint16(raw[off+8:]))
			data := off + 10
			if data+size > len(raw) {
				return m, false
			}
			if typ == dns.TypeOPT {
				if section != 2 || raw[start] != 0 {
					return m, false
				}
				m.rcode |= dns.RCode(ttl>>24) << 4
				// What follows could point behind it with its compressed names; additional records can be done without.
				m.raw = bytes.Clone(raw[:start])
				binary.BigEndian.PutUint16(m.raw[10:], uint16(i))
				return m, true
			}
			if ttl > 1<<31-1 {
				ttl = 0 // RFC 2181, section 8
			}
			if section == 1 && typ == dns.TypeSOA && count[0] == 0 {
				if size < 20 {
					return m, false
				}
				ttl = min(ttl, binary.BigEndian.Uint32(raw[data+size-4:])) // RFC 2308, section 5
			}
			m.ttls = append(m.ttls, off+4)
			if !m.any || ttl < m.ttl {
				m.any, m.ttl = true, ttl
			}
			off = data + size
		}
	}
	m.raw = bytes.Clone(raw[:off])
	return m, true
}

// skipName gives the place behind a name, which may be compressed. Pointers are checked by who reads the name.
func skipName(b []byte, off int) (int, bool) {
	for n := 0; off < len(b); {
		c := int(b[off])
		switch {
		case c == 0:
			return off + 1, true
		case c&0xc0 == 0xc0:
			return off + 2, off+2 <= len(b)
		case c&0xc0 != 0:
			return 0, false
		}
		off += 1 + c
		if n += 1 + c; n > 254 {
			return 0, false
		}
	}
	return 0, false
}

// answers writes the message as the answer to a question: with its ID and spelling, with times to live that are age
// seconds less, and with OPT if it had one.
func (m *message) answer(q *query, age uint32, atMost uint32) []byte {
	out := slices.Grow(bytes.Clone(m.raw), 11)
	binary.BigEndian.PutUint16(out, q.id)
	name := q.question.Name.Data[:q.question.Name.Length]
	spell(out[12:m.qEnd], name)
	// Neither authoritative nor validated by us; recursion was there.
	out[2] = out[2]&^0x05 | 0x80
	if q.rd {
		out[2] |= 1
	}
	out[3] = 0x80 | out[3]&0x0f
	if q.cd {
		out[3] |= 0x10
	}
	for _, at := range m.ttls {
		ttl := binary.BigEndian.Uint32(out[at:])
		binary.BigEndian.PutUint32(out[at:], min(ttl-min(ttl, age), atMost))
	}
	opt := 0
	if q.edns {
		opt = 11
	}
	if len(out)+opt > q.limit {
		out = out[:m.qEnd]
		out[2] |= 2
		clear(out[6:12])
	}
	if q.edns {
		binary.BigEndian.PutUint16(out[10:], binary.BigEndian.Uint16(out[10:])+1)
		out = append(out, 0, 0, byte(dns.TypeOPT), maxUDP>>8, maxUDP&0xff, 0, 0, 0, 0, 0, 0)
		if q.do {
			out[len(out)-4] = 0x80
		}
	}
	return out
}

// spell writes a name in the spelling of s, with dots, over the same name in labels.
func spell(labels []byte, s []byte) {
	for off := 0; off < len(labels) && labels[off] != 0 && len(s) > 0; {
		n := int(labels[off])
		if n > len(s) || off+1+n > len(labels) {
			return
		}
		copy(labels[off+1:], s[:n])
		s = s[min(n+1, len(s)):]
		off += 1 + n
	}
}
