// Package frame is what workers and relays send each other: registration, and datagrams with the relay's header. It only
// writes and parses; overlay/tunnel is the worker's end, overlay/relay the relay's; overlay/wireguard asks how its
// port is seen. They import it, nobody else.
//
// A datagram by way of a relay has 16 bytes before it:
//
//	type 1 | hops 1 | tag 6 | destination 4 | source 4
//
// The tag is one block of AES over both IDs and the counter in what follows, under a key of the worker and its relay: the
// relay forwards only what a registered worker has sent, and costs one block for each. What follows is sealed end to end.
// Between a worker and its relay the IDs are those of the relay's site. Between two relays they are each the site's own
// (the destination as the next relay knows it, the source as this one does), and each relay translates sources to its own.
//
// A worker registers with two exchanges: the first proves that it has its key, the answer's cookie, sent back, that it is
// where it says. Answers are not longer than what asks for them. A relay registers so at another one, which may see it under
// another address than that of its configuration: behind a NAT it is reached where it calls from, and nowhere else.
package frame

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"

	"skerry.dev/skerry/wire"
)

// Types of frames. Those below 16 are the tunnel's own.
const (
	TypeData       = 16
	TypeRegister   = 17
	TypeRegistered = 18
	// TypeProbe is the first byte of what measures a round trip between sites (internal/roundtrip). A relay lends it its port.
	TypeProbe = 'S'
)

// DataLen is the length of the header of a relayed datagram, RegisterLen that of a registration and of its answer.
const (
	DataLen     = 16
	RegisterLen = 80
	macLen      = 16
	// MinPayload is the shortest payload: the tag covers its first bytes.
	MinPayload = 11
	// CookieLen is the length of a cookie.
	CookieLen = 16
	// MaxPayload is the longest payload of a frame on a stream.
	MaxPayload = 9216
)

// Tagger makes and checks the tags of one worker's datagrams in one direction.
type Tagger struct{ block cipher.Block }

// Scratch is memory that a goroutine lends to taggers.
type Scratch struct{ in, out [16]byte }

// NewTagger makes one for a key; toRelay says in which direction the datagrams go.
func NewTagger(key [32]byte, toRelay bool) *Tagger {
	if toRelay {
		return newTagger(key, "to relay")
	}
	return newTagger(key, "to worker")
}

// NewRelayTagger makes one for a key of two relays, for the datagrams that the named one sends.
func NewRelayTagger(key [32]byte, sender string) *Tagger { return newTagger(key, "from relay "+sender) }

func newTagger(key [32]byte, label string) *Tagger {
	k := derive(key, label)
	b, err := aes.NewCipher(k[:16])
	if err != nil {
		panic(err) // the key has the right length
	}
	return &Tagger{b}
}

func derive(key [32]byte, label string) [32]byte {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte("skerry relay "))
	h.Write([]byte(label))
	return [32]byte(h.Sum(nil))
}

func (t *Tagger) tag(b []byte, s *Scratch) uint64 {
	copy(s.in[:8], b[8:16])                  // destination, source
	copy(s.in[8:], b[DataLen+3:DataLen+3+8]) // most of the index, and the counter
	t.block.Encrypt(s.out[:], s.in[:])
	return binary.BigEndian.Uint64(s.out[:]) >> 16
}

// Put writes the header before a payload: b holds room for the header, then the payload.
func (t *Tagger) Put(b []byte, hops byte, dst, src wire.PeerID, s *Scratch) {
	binary.BigEndian.PutUint32(b[8:], uint32(dst))
	binary.BigEndian.PutUint32(b[12:], uint32(src))
	binary.BigEndian.PutUint64(b, TypeData<<56|uint64(hops)<<48|t.tag(b, s))
}

// Check says whether a datagram's tag is right. The datagram must be one for which Parse holds.
func (t *Tagger) Check(b []byte, s *Scratch) bool {
	return binary.BigEndian.Uint64(b)&(1<<48-1) == t.tag(b, s)
}

// Parse reads the header of a relayed datagram.
func Parse(b []byte) (hops byte, dst, src wire.PeerID, ok bool) {
	if len(b) < DataLen+MinPayload || b[0] != TypeData {
		return 0, 0, 0, false
	}
	return b[1], wire.PeerID(binary.BigEndian.Uint32(b[8:])), wire.PeerID(binary.BigEndian.Uint32(b[12:])), true
}

// Register asks to be registered, or answers.
//
//	type 1 | flags 1 (1 done, 2 a relay) | zero 2 | peer 4 | nonce 8 | cookie 16 | address 18 | zero 14 | mac 16
type Register struct {
	Answer bool
	// Done, in an answer: the worker is registered. Otherwise it is to ask again with the cookie.
	Done bool
	// Relay: a relay asks. Peer is RelayTag of its name, and the key RelayKey of the two and the one who asks.
	Relay  bool
	Peer   wire.PeerID
	Nonce  uint64 // of the question; the answer repeats it
	Cookie [CookieLen]byte
	Addr   netip.AddrPort // in an answer: the worker's as the relay sees it
}

// Append writes the message with its code.
func (r Register) Append(data []byte, key [32]byte) []byte {
	n := len(data)
	data = append(data, make([]byte, RegisterLen)...)
	m := data[n:]
	m[0] = TypeRegister
	if r.Answer {
		m[0] = TypeRegistered
	}
	if r.Done {
		m[1] |= 1
	}
	if r.Relay {
		m[1] |= 2
	}
	binary.BigEndian.PutUint32(m[4:], uint32(r.Peer))
	binary.BigEndian.PutUint64(m[8:], r.Nonce)
	copy(m[16:], r.Cookie[:])
	if r.Addr.IsValid() {
		a := r.Addr.Addr().As16()
		copy(m[32:], a[:])
		binary.BigEndian.PutUint16(m[48:], r.Addr.Port())
	}
	code := registerMAC(m[:RegisterLen-macLen], key)
	copy(m[RegisterLen-macLen:], code[:])
	return data
}

func registerMAC(b []byte, key [32]byte) [macLen]byte {
	k := derive(key, "register")
	h := hmac.New(sha256.New, k[:])
	h.Write(b)
	return [macLen]byte(h.Sum(nil)[:macLen])
}

// RelayTag stands for a relay's name in its registration.
func RelayTag(name string) wire.PeerID {
	h := sha256.Sum256([]byte("skerry relay tag " + name))
	return wire.PeerID(binary.BigEndian.Uint32(h[:]))
}

// RelayKey makes the key of registrations of two relays, and of the answers, where the named one asks. What one of them asked is
// no question of the other one, if it is sent back.
func RelayKey(key [32]byte, asks string) [32]byte { return derive(key, "registration of relay "+asks) }

// ParseRegister reads a registration or its answer. Its code is for CheckRegister.
func ParseRegister(b []byte) (r Register, ok bool) {
	if len(b) != RegisterLen || b[0] != TypeRegister && b[0] != TypeRegistered {
		return r, false
	}
	r.Answer, r.Done, r.Relay = b[0] == TypeRegistered, b[1]&1 != 0, b[1]&2 != 0
	r.Peer = wire.PeerID(binary.BigEndian.Uint32(b[4:]))
	r.Nonce = binary.BigEndian.Uint64(b[8:])
	copy(r.Cookie[:], b[16:])
	ip := netip.AddrFrom16([16]byte(b[32:48])).Unmap()
	if port := binary.BigEndian.Uint16(b[48:]); port != 0 && !ip.IsUnspecified() {
		r.Addr = netip.AddrPortFrom(ip, port)
	}
	return r, true
}

// CheckRegister says whether who wrote a registration has the key.
func CheckRegister(b []byte, key [32]byte) bool {
	if len(b) != RegisterLen {
		return false
	}
	code := registerMAC(b[:RegisterLen-macLen], key)
	return hmac.Equal(code[:], b[RegisterLen-macLen:])
}

// On a stream each frame has its length before it, as 2 bytes.

// AppendLength writes the length of a frame that follows.
func AppendLength(b []byte, n int) []byte { return binary.BigEndian.AppendUint16(b, uint16(n)) }

// StreamLen is the length of what stands before a frame on a stream.
const StreamLen = 2

// Length reads the length of a frame; false: it is none that either end sends.
func Length(b []byte) (int, bool) {
	n := int(binary.BigEndian.Uint16(b))
	return n, n >= DataLen+MinPayload && n <= DataLen+MaxPayload
}
