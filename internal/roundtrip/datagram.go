package roundtrip

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"

	"skerry.dev/skerry/spec"
)

// A datagram that measures a round trip has one size for question and answer, so that nobody gets more than was sent:
//
//	0  'S'            1  version<<4 | kind     2  id of the key (2)
//	4  nonce (8), chosen by who asks and repeated in the answer
//	12 coordinate of who answers: vector (3 x float32), height, error; zero in a question
//	32 HMAC-SHA256 of all before it, by the key of the site's workers, first 12 bytes
//
// Numbers are big-endian. Times stay with who asks.
const (
	datagramSize    = 44
	datagramTag     = 12
	datagramVersion = 1
	datagramMagic   = 'S'
)

// Kinds of datagrams. They are part of what is authenticated, so a question sent back is no answer.
const (
	question = 1
	answer   = 2
)

// datagram is one that was checked.
type datagram struct {
	kind  byte
	keyID uint16
	nonce uint64
	at    spec.Coordinate // of who answers
}

// Errors of parseDatagram.
var (
	errNotOurs = errors.New("not a datagram of ours")
	errForged  = errors.New("not by a worker of this site, or by an old key")
)

func tagOf(b, key []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(b)
	return h.Sum(nil)[:datagramTag]
}

// append adds the datagram, with its tag, to b.
func (d *datagram) append(b, key []byte) []byte {
	start := len(b)
	b = append(b, datagramMagic, datagramVersion<<4|d.kind)
	b = binary.BigEndian.AppendUint16(b, d.keyID)
	b = binary.BigEndian.AppendUint64(b, d.nonce)
	for _, x := range d.at.Vec {
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(float32(x)))
	}
	b = binary.BigEndian.AppendUint32(b, math.Float32bits(float32(d.at.Height)))
	b = binary.BigEndian.AppendUint32(b, math.Float32bits(float32(d.at.Error)))
	return append(b, tagOf(b[start:], key)...)
}

// parseDatagram reads a datagram and checks who made it. The coordinate may be any, also one that cannot be: it is what a
// worker of the site says.
func parseDatagram(data []byte, keyID uint16, key []byte) (d datagram, err error) {
	if len(data) != datagramSize || data[0] != datagramMagic || data[1]>>4 != datagramVersion {
		return d, errNotOurs
	}
	d.kind, d.keyID, d.nonce = data[1]&15, binary.BigEndian.Uint16(data[2:]), binary.BigEndian.Uint64(data[4:])
	if d.kind != question && d.kind != answer {
		return d, errNotOurs
	}
	body := data[:datagramSize-datagramTag]
	if len(key) == 0 || d.keyID != keyID || !hmac.Equal(tagOf(body, key), data[len(body):]) {
		return d, errForged
	}
	at := data[12:]
	number := func() float64 {
		v := math.Float32frombits(binary.BigEndian.Uint32(at))
		at = at[4:]
		return float64(v)
	}
	for i := range d.at.Vec {
		d.at.Vec[i] = number()
	}
	d.at.Height, d.at.Error = number(), number()
	return d, nil
}
