// Package beat tells within moments that a child of a link is out of touch, at the price of a few small datagrams. A child
// sends a beat at each interval, and again and again while no answer comes, so that neither a lost datagram nor a stalled TCP
// connection is taken for death. A beat is authenticated by a key that both ends derive from the TLS session of their control
// connection (RFC 8446, section 7.5: exporters): nothing is handed out, and a new connection has a new key.
//
// Watch and Pulse decide, on a clock that they are given; Listener and Sender put sockets and time around them.
package beat

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
)

// A beat and its answer have one size, so that nobody gets more than was sent:
//
//	0  'B'            1  version<<4 | kind
//	2  id of the session (4)
//	6  sequence number of the beat (4), repeated in the answer
//	10 HMAC-SHA256 of all before it, by the session's key, first 8 bytes
//
// Numbers are big-endian.
const (
	Size    = 18 // bytes of a datagram
	tagSize = 8
	version = 1
	magic   = 'B'
)

// Kinds of datagrams. They are part of what is authenticated, so a beat sent back is no answer.
const (
	kindBeat   = 1
	kindAnswer = 2
	kindDeaf   = 3 // a beat of a child that had answers and no longer has: it lives, and cannot be told anything
)

// Session is what both ends of a control connection know: a name for it and a key.
type Session struct {
	ID  [4]byte // of two sessions with the same, one in four thousand million, only the later one beats
	Key [32]byte
}

// SessionOf derives a session from an established TLS 1.3 connection. Both ends get the same.
func SessionOf(cs tls.ConnectionState) (s Session, err error) {
	b, err := cs.ExportKeyingMaterial("EXPERIMENTAL skerry beat 1", nil, len(s.ID)+len(s.Key))
	if err != nil {
		return s, fmt.Errorf("key for beats: %w", err)
	}
	copy(s.ID[:], b)
	copy(s.Key[:], b[len(s.ID):])
	return s, nil
}

func (s *Session) tag(b []byte) []byte {
	h := hmac.New(sha256.New, s.Key[:])
	h.Write(b)
	return h.Sum(nil)[:tagSize]
}

func (s *Session) append(b []byte, kind byte, seq uint32) []byte {
	start := len(b)
	b = append(b, magic, version<<4|kind)
	b = append(b, s.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, seq)
	return append(b, s.tag(b[start:])...)
}

// Errors of reading a datagram.
var (
	ErrMalformed = errors.New("not a beat")
	ErrUnknown   = errors.New("a beat of an unknown session")
	ErrForged    = errors.New("a beat with a wrong tag")
	ErrReplayed  = errors.New("a beat of earlier, played again")
)

// parse reads the parts that need no key.
func parse(b []byte) (kind byte, id [4]byte, seq uint32, err error) {
	if len(b) != Size || b[0] != magic || b[1]>>4 != version {
		return 0, id, 0, ErrMalformed
	}
	if kind = b[1] & 15; kind < kindBeat || kind > kindDeaf {
		return 0, id, 0, ErrMalformed
	}
	copy(id[:], b[2:])
	return kind, id, binary.BigEndian.Uint32(b[6:]), nil
}

// valid reports whether the datagram, which parse has read, was made with the session's key.
func (s *Session) valid(b []byte) bool {
	return hmac.Equal(s.tag(b[:Size-tagSize]), b[Size-tagSize:])
}
