package mqtt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Kinds of packets.
const (
	kindConnect     = 1
	kindConnack     = 2
	kindPublish     = 3
	kindPuback      = 4
	kindSubscribe   = 8
	kindSuback      = 9
	kindUnsubscribe = 10
	kindUnsuback    = 11
	kindPingreq     = 12
	kindPingresp    = 13
	kindDisconnect  = 14
)

// Reason codes of MQTT 5.
const (
	codeSuccess       = 0x00
	codeMalformed     = 0x81
	codeProtocolError = 0x82
	codeVersion       = 0x84
	codeNotAuthorised = 0x87
	codeServerBusy    = 0x89
	codeShuttingDown  = 0x8B
	codeKeepAlive     = 0x8D
	codePacketTooBig  = 0x95
)

// Return codes of MQTT 3.1.1.
const (
	v4Version       = 1
	v4NotAuthorised = 5
	v4Failure       = 0x80 // of a subscription
)

var (
	errMalformed = errors.New("packet is malformed")
	errTooLarge  = errors.New("packet is too large")
	errVersion   = errors.New("neither MQTT 3.1.1 nor 5")
)

func malformed(what string) error { return fmt.Errorf("%w: %s", errMalformed, what) }

// packet is one as it came.
type packet struct {
	kind, flags byte
	body        []byte
}

// readPacket takes one packet with a body of at most limit bytes, which is asked when its length is known. Memory grows with what
// arrives, not with what was promised.
func readPacket(in io.Reader, limit func() int) (packet, error) {
	var b [1]byte
	if _, err := io.ReadFull(in, b[:]); err != nil {
		return packet{}, err
	}
	pkt := packet{kind: b[0] >> 4, flags: b[0] & 0x0f}
	n := 0
	for shift := 0; ; shift += 7 {
		if shift > 21 {
			return pkt, malformed("its length has more than four bytes")
		}
		if _, err := io.ReadFull(in, b[:]); err != nil {
			return pkt, cutOff(err)
		}
		n |= int(b[0]&0x7f) << shift
		if b[0]&0x80 == 0 {
			break
		}
	}
	if most := limit(); n > most {
		return pkt, fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, n, most)
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, in, int64(n)); err != nil {
		return pkt, cutOff(err)
	}
	pkt.body = body.Bytes()
	return pkt, nil
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// cursor takes values off a body. After the first failure it gives zero values; bad tells.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) u8() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() int {
	if b := c.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) varint() int {
	n := 0
	for shift := 0; shift <= 21; shift += 7 {
		b := c.u8()
		n |= int(b&0x7f) << shift
		if b&0x80 == 0 {
			return n
		}
	}
	c.bad = true
	return 0
}

func (c *cursor) bytes() []byte { return c.take(c.u16()) }

func (c *cursor) text() string {
	b := c.bytes()
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		c.bad = true
		return ""
	}
	return string(b)
}

// properties takes the properties of MQTT 5 off and gives the largest packet that the client takes, 0 if it does not say.
func (c *cursor) properties() (maxPacket uint32) {
	p := cursor{b: c.take(c.varint())}
	for !c.bad && !p.bad && len(p.b) > 0 {
		switch id := p.u8(); id {
		case 0x27:
			maxPacket = p.u32()
		case 0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A:
			p.u8()
		case 0x13, 0x21, 0x22, 0x23:
			p.u16()
		case 0x02, 0x11, 0x18:
			p.u32()
		case 0x0B:
			p.varint()
		case 0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F:
			p.text()
		case 0x09, 0x16:
			p.bytes()
		case 0x26:
			p.text()
			p.text()
		default:
			p.bad = true
		}
	}
	c.bad = c.bad || p.bad
	return maxPacket
}

// connect is what a client says of itself. User name and password are skipped: its certificate says who it is.
type connect struct {
	v5        bool
	client    string
	keepAlive int // seconds; 0: none
	will      bool
	maxPacket uint32 // that the client takes; 0: any
}

func parseConnect(pkt packet) (connect, error) {
	c := cursor{b: pkt.body}
	name, level, flags := c.text(), c.u8(), c.u8()
	if c.bad || pkt.flags != 0 {
		return connect{}, malformed("CONNECT")
	}
	if name != "MQTT" || level != 4 && level != 5 {
		return connect{v5: level >= 5}, errVersion
	}
	out := connect{v5: level == 5, keepAlive: c.u16(), will: flags&0x04 != 0}
	if out.v5 {
		out.maxPacket = c.properties()
	}
	out.client = c.text()
	if out.will {
		if out.v5 {
			c.properties()
		}
		c.text()
		c.bytes()
	}
	if flags&0x80 != 0 {
		c.text()
	}
	if flags&0x40 != 0 {
		c.bytes()
	}
	if c.bad || flags&0x01 != 0 || !out.will && flags&0x38 != 0 || flags&0x18 == 0x18 || len(c.b) > 0 {
		return out, malformed("CONNECT")
	}
	return out, nil
}

// publish is a message.
type publish struct {
	topic   string
	qos     byte
	id      int
	payload []byte
}

func parsePublish(p packet, v5 bool) (publish, error) {
	c := cursor{b: p.body}
	out := publish{topic: c.text(), qos: p.flags >> 1 & 3}
	if out.qos > 0 {
		out.id = c.u16()
	}
	if v5 {
		c.properties()
	}
	switch {
	case c.bad || out.qos > 0 && out.id == 0:
		return out, malformed("PUBLISH")
	case out.qos > 1:
		return out, malformed("PUBLISH with quality of service 2, which is not served")
	case p.flags&1 != 0:
		return out, malformed("PUBLISH to be retained, which is not served")
	}
	out.payload = c.b
	return out, nil
}

// maxFilters bounds one SUBSCRIBE; there is one topic to subscribe to.
const maxFilters = 16

// parseSubscribe reads SUBSCRIBE and UNSUBSCRIBE.
func parseSubscribe(pkt packet, v5 bool) (id int, filters []string, err error) {
	c := cursor{b: pkt.body}
	id = c.u16()
	if v5 {
		c.properties()
	}
	for !c.bad && len(c.b) > 0 {
		f := c.text()
		if pkt.kind == kindSubscribe {
			if o := c.u8(); o&3 == 3 || !v5 && o > 2 {
				c.bad = true
			}
		}
		if filters = append(filters, f); len(filters) > maxFilters {
			return id, nil, malformed("too many topics")
		}
	}
	if c.bad || id == 0 || pkt.flags != 2 || len(filters) == 0 {
		return id, nil, malformed("SUBSCRIBE or UNSUBSCRIBE")
	}
	return id, filters, nil
}

// encode puts a packet together.
func encode(kind, flags byte, body ...[]byte) []byte {
	n := 0
	for _, b := range body {
		n += len(b)
	}
	out := append(make([]byte, 0, n+5), kind<<4|flags)
	out = appendVarint(out, n)
	for _, b := range body {
		out = append(out, b...)
	}
	return out
}

func appendVarint(out []byte, n int) []byte {
	for n >= 0x80 {
		out = append(out, byte(n)|0x80)
		n >>= 7
	}
	return append(out, byte(n))
}

func u16(n int) []byte { return []byte{byte(n >> 8), byte(n)} }

func text(s string) []byte { return append(u16(len(s)), s...) }

// connack tells a client of MQTT 5 what it cannot have. keepAlive in seconds overrides its own; 0 does not.
func connack(v5 bool, code byte, keepAlive int) []byte {
	if !v5 {
		return encode(kindConnack, 0, []byte{0, code})
	}
	if code != codeSuccess {
		return encode(kindConnack, 0, []byte{0, code, 0})
	}
	props := []byte{
		0x11, 0, 0, 0, 0, // no session outlives the connection
		0x24, 1, // quality of service
		0x25, 0, // nothing is retained
		0x28, 0, 0x29, 0, 0x2A, 0, // no wildcards, subscription identifiers or shared subscriptions
		0x21, 0, maxInFlight,
	}
	props = append(props, 0x27)
	props = binary.BigEndian.AppendUint32(props, maxPacket)
	if keepAlive > 0 {
		props = append(append(props, 0x13), u16(keepAlive)...)
	}
	return encode(kindConnack, 0, []byte{0, code}, appendVarint(nil, len(props)), props)
}

// message is a PUBLISH to a client, with quality of service 0: what matters is told again until it is answered.
func message(v5 bool, topic string, payload []byte) []byte {
	if v5 {
		return encode(kindPublish, 0, text(topic), []byte{0}, payload)
	}
	return encode(kindPublish, 0, text(topic), payload)
}

func puback(id int) []byte { return encode(kindPuback, 0, u16(id)) }

// suback answers SUBSCRIBE or UNSUBSCRIBE with a code for each topic.
func suback(kind byte, v5 bool, id int, codes []byte) []byte {
	switch {
	case v5:
		return encode(kind, 0, u16(id), []byte{0}, codes)
	case kind == kindUnsuback:
		return encode(kind, 0, u16(id))
	}
	return encode(kind, 0, u16(id), codes)
}

// disconnect tells a client of MQTT 5 why it has to go; older ones see the connection end.
func disconnect(v5 bool, code byte, why string) []byte {
	if !v5 {
		return nil
	}
	if len(why) > 200 {
		why = why[:200]
	}
	props := append([]byte{0x1F}, text(why)...)
	return encode(kindDisconnect, 0, []byte{code}, appendVarint(nil, len(props)), props)
}
