package tunnel

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"skerry.dev/skerry/wire"
)

// Types of datagrams, their first byte. Those from 16 on are the relay's.
const (
	typeInit     = 1
	typeResponse = 2
	typeCookie   = 3
	typeData     = 4
	typeControl  = 5
)

const (
	headerLen = 11 // type, index, counter
	metaLen   = 5  // flags, network id
	tagLen    = 16
	// Overhead is what sealing adds to a packet; UDP, IP and a relay add their own.
	Overhead = headerLen + metaLen + tagLen
	// counterMax is where the counter of 48 bits ends.
	counterMax = 1<<48 - 1
)

// flagPartial says that the transport checksum is left to the last hop, as the seal protects the packet.
const flagPartial = 1

// errMalformed is all that is said of a datagram that is none of ours; it is counted, not answered.
var errMalformed = errors.New("malformed datagram")

func putHeader(b []byte, typ byte, index uint32, counter uint64) {
	_ = b[headerLen-1]
	b[0] = typ
	binary.BigEndian.PutUint32(b[1:], index)
	binary.BigEndian.PutUint16(b[5:], uint16(counter>>32))
	binary.BigEndian.PutUint32(b[7:], uint32(counter))
}

// parseHeader reads the header of a datagram of data or control.
func parseHeader(b []byte) (index uint32, counter uint64, ok bool) {
	if len(b) < headerLen+tagLen {
		return 0, 0, false
	}
	return binary.BigEndian.Uint32(b[1:]), uint64(binary.BigEndian.Uint16(b[5:]))<<32 | uint64(binary.BigEndian.Uint32(b[7:])), true
}

// Kinds of control messages, which travel sealed.
const (
	ctlPing       = 1 // number 4, flags 1
	ctlPong       = 2 // number 4, the address that the ping came from (18; zero: by a relay)
	ctlCandidates = 3 // count 1, addresses 18 each: ping me there
	ctlUnknown    = 4 // network id 4, address 16: I have no instance with it
)

// pingInUse says that the sender's packets go by the way of this ping.
const pingInUse = 1

// maxCandidates is the most addresses that a peer may name.
const maxCandidates = 16

const addrPortLen = 18

// control is a control message, taken apart.
type control struct {
	kind   byte
	number uint32
	flags  byte
	addrs  []netip.AddrPort
	net    wire.NetworkID
	addr   netip.Addr
}

func (c control) append(data []byte) []byte {
	data = append(data, c.kind)
	switch c.kind {
	case ctlPing:
		data = append(binary.BigEndian.AppendUint32(data, c.number), c.flags)
	case ctlPong:
		var from netip.AddrPort
		if len(c.addrs) > 0 {
			from = c.addrs[0]
		}
		data = appendAddrPort(binary.BigEndian.AppendUint32(data, c.number), from)
	case ctlCandidates:
		list := c.addrs[:min(len(c.addrs), maxCandidates)]
		data = append(data, byte(len(list)))
		for _, a := range list {
			data = appendAddrPort(data, a)
		}
	case ctlUnknown:
		a := c.addr.As16()
		data = append(binary.BigEndian.AppendUint32(data, uint32(c.net)), a[:]...)
	}
	return data
}

// parseControl takes a control message apart. Kinds that are not known come back as they are: a newer peer may send them.
func parseControl(data []byte) (c control, err error) {
	if len(data) == 0 {
		return c, errMalformed
	}
	c.kind, data = data[0], data[1:]
	switch c.kind {
	case ctlPing:
		if len(data) < 5 {
			return c, errMalformed
		}
		c.number, c.flags = binary.BigEndian.Uint32(data), data[4]
	case ctlPong:
		if len(data) < 4+addrPortLen {
			return c, errMalformed
		}
		c.number = binary.BigEndian.Uint32(data)
		if a := parseAddrPort(data[4:]); a.IsValid() {
			c.addrs = []netip.AddrPort{a}
		}
	case ctlCandidates:
		if len(data) < 1 || data[0] > maxCandidates || len(data) < 1+int(data[0])*addrPortLen {
			return c, errMalformed
		}
		for i := range int(data[0]) {
			if a := parseAddrPort(data[1+i*addrPortLen:]); usable(a) {
				c.addrs = append(c.addrs, a)
			}
		}
	case ctlUnknown:
		if len(data) < 4+16 {
			return c, errMalformed
		}
		c.net = wire.NetworkID(binary.BigEndian.Uint32(data))
		c.addr = netip.AddrFrom16([16]byte(data[4:20])).Unmap()
	}
	return c, nil
}

// usable says whether a peer may have us send to an address.
func usable(a netip.AddrPort) bool {
	ip := a.Addr()
	return a.IsValid() && a.Port() != 0 && !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast() &&
		ip != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func appendAddrPort(b []byte, a netip.AddrPort) []byte {
	var ip [16]byte
	if a.IsValid() {
		ip = a.Addr().As16()
	}
	return binary.BigEndian.AppendUint16(append(b, ip[:]...), a.Port())
}

// parseAddrPort reads 18 bytes; the zero value when they hold none.
func parseAddrPort(b []byte) netip.AddrPort {
	ip := netip.AddrFrom16([16]byte(b[:16])).Unmap()
	port := binary.BigEndian.Uint16(b[16:])
	if ip.IsUnspecified() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, port)
}
