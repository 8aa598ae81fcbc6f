package tunnel

import (
	"encoding/binary"
)

// splitter cuts a frame of the tap into packets that each stand for themselves. They lie where the frame lies, one after
// the other: each ends before next is called again, because its end makes room for the next one's header.
type splitter struct {
	label label
	// size is the length of every packet but the last, with its meta bytes, last that of the last.
	size, last, count int

	buf     []byte // from the meta bytes of the first packet on
	i       int
	ip      ipPacket
	head    int // length of IP and transport headers; what is cut follows
	seg     int // bytes of payload in each packet
	pay     int // bytes of payload in all
	partial bool
	addrs   uint64 // sum of the pseudo header but for the length
	seq     uint32
	id      uint16
	flags   byte // of TCP
	proto   byte
	tmpl    [metaLen + 60 + 60]byte
}

// begin takes a frame, with its virtio header. What it says is checked: instances may be virtual machines.
func (s *splitter) begin(frame []byte) error {
	if len(frame) < frameLen+20 {
		return errFrame
	}
	var ok bool
	if s.label, ok = parseLabel(frame[vnetLen:]); !ok {
		return errFrame
	}
	ip := frame[frameLen:]
	if s.ip, ok = parseIP(ip); !ok {
		return errFrame
	}
	ip = ip[:s.ip.total]
	flags, gso := frame[0], frame[1]&^gsoECN
	seg := int(binary.NativeEndian.Uint16(frame[4:]))
	start, offset := int(binary.NativeEndian.Uint16(frame[6:]))-etherLen, int(binary.NativeEndian.Uint16(frame[8:]))
	s.partial, s.i, s.seg, s.head, s.pay = false, 0, 0, s.ip.total, 0
	if flags&vnetNeedsCsum != 0 {
		if start < 20 || start+offset+2 > len(ip) {
			return errFrame
		}
		s.partial = start == s.ip.l4 && offset == csumAt(s.ip.proto) && offset != 0
	}
	if gso != gsoNone {
		if err := s.large(ip, gso, seg, start); err != nil {
			return err
		}
	}
	if s.seg == 0 {
		s.count, s.size, s.last = 1, metaLen+len(ip), metaLen+len(ip)
		if flags&vnetNeedsCsum != 0 && !s.partial {
			c := ^fold(sum(ip[start:], 0)) // what stands there already is the pseudo header's part
			binary.BigEndian.PutUint16(ip[start+offset:], c)
		}
	}
	s.buf = frame[frameLen-metaLen : frameLen+s.ip.total]
	s.meta(s.buf)
	copy(s.tmpl[:], s.buf[:min(len(s.buf), metaLen+s.head, len(s.tmpl))])
	return nil
}

// large prepares for cutting.
func (s *splitter) large(ip []byte, gso byte, seg, start int) error {
	s.proto = protoTCP
	if gso == gsoUDP {
		s.proto = protoUDP
	}
	if gso == gsoTCP4 && s.ip.v6 || gso == gsoTCP6 && !s.ip.v6 || gso != gsoTCP4 && gso != gsoTCP6 && gso != gsoUDP || seg == 0 ||
		start < 20 || start > 60 && !s.ip.v6 {
		return errFrame
	}
	// A segment with extension headers has its checksums written here.
	head := start + 8
	if s.proto == protoTCP {
		if start+20 > len(ip) {
			return errFrame
		}
		doff := int(ip[start+12]>>4) * 4
		if doff < 20 {
			return errFrame
		}
		head = start + doff
		s.seq, s.flags = binary.BigEndian.Uint32(ip[start+4:]), ip[start+13]
	}
	if head > len(ip) || head > len(s.tmpl)-metaLen {
		return errFrame
	}
	s.head, s.pay = head, len(ip)-head
	s.ip.l4 = start
	if s.pay <= seg { // a large segment of one: it needs no cutting
		s.head, s.pay = len(ip), 0
		return nil
	}
	s.seg = seg
	s.count = (s.pay + seg - 1) / seg
	s.size, s.last = metaLen+head+seg, metaLen+head+s.pay-(s.count-1)*seg
	s.addrs = sumAddrs(ip, s.ip.v6, s.proto)
	if !s.ip.v6 {
		s.id = binary.BigEndian.Uint16(ip[4:])
	}
	return nil
}

func (s *splitter) meta(b []byte) {
	b[0] = 0
	if s.partial {
		b[0] = flagPartial
	}
	binary.BigEndian.PutUint32(b[1:], uint32(s.label.net))
}

// left is the number of packets that next has yet to give.
func (s *splitter) left() int { return s.count - s.i }

// next gives the next packet with its meta bytes before it, or nil.
func (s *splitter) next() []byte {
	if s.i >= s.count {
		return nil
	}
	if s.seg == 0 {
		s.i++
		return s.buf
	}
	from := s.i * s.seg
	pay := min(s.seg, s.pay-from)
	data := s.buf[from : from+metaLen+s.head+pay]
	copy(data, s.tmpl[:metaLen+s.head])
	ip := data[metaLen:]
	if !s.ip.v6 {
		binary.BigEndian.PutUint16(ip[4:], s.id+uint16(s.i))
	}
	setLength(ip, s.ip.v6, len(ip))
	l4 := ip[s.ip.l4:]
	if s.proto == protoTCP {
		binary.BigEndian.PutUint32(l4[4:], s.seq+uint32(from))
		f := s.flags
		if s.i > 0 {
			f &^= tcpCWR
		}
		if s.i < s.count-1 {
			f &^= tcpFIN | tcpPSH
		}
		l4[13] = f
	} else {
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	}
	at := csumAt(s.proto)
	c := fold(s.addrs + uint64(len(l4)))
	binary.BigEndian.PutUint16(l4[at:], c)
	if !s.partial {
		c = ^fold(sum(l4, 0))
		if c == 0 && s.proto == protoUDP {
			c = 0xffff
		}
		binary.BigEndian.PutUint16(l4[at:], c)
	}
	s.i++
	return data
}
