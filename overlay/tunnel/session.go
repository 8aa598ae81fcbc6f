package tunnel

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/sys/cpu"
)

// suite is what seals data.
type suite byte

// The suites, the slowest first. A peer that does not know a later one never gets it.
const (
	suiteChaCha suite = 1
	suiteAES    suite = 2
)

func (s suite) String() string {
	switch s {
	case suiteChaCha:
		return "ChaCha20-Poly1305"
	case suiteAES:
		return "AES-128-GCM"
	}
	return fmt.Sprintf("suite %d", byte(s))
}

// hasAES says whether AES-GCM runs on instructions made for it. Without them it is slow, and its time tells of the key.
func hasAES() bool {
	return cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSE41 || cpu.ARM64.HasAES && cpu.ARM64.HasPMULL || cpu.S390X.HasAESGCM
}

// choose gives the best suite of two ends.
func choose(aesHere, aesThere bool) suite {
	if aesHere && aesThere {
		return suiteAES
	}
	return suiteChaCha
}

func newAEAD(s suite, key [32]byte) (cipher.AEAD, error) {
	switch s {
	case suiteAES:
		b, err := aes.NewCipher(key[:16])
		if err != nil {
			return nil, err
		}
		return cipher.NewGCM(b)
	case suiteChaCha:
		return chacha20poly1305.New(key[:])
	}
	return nil, fmt.Errorf("unknown cipher %d", byte(s))
}

// session is what one handshake gave. It receives until it is taken out of the table, and sends while its peer says so.
type session struct {
	peer          *peer
	local, remote uint32
	suite         suite
	initiator     bool
	made          time.Duration // of the engine's clock
	stamp         uint64        // of the initiation, at the responder

	out     cipher.AEAD
	counter atomic.Uint64 // of the next datagram

	mu     sync.Mutex // of what follows: datagrams may come by UDP and by a relay's stream at the same time
	in     cipher.AEAD
	window window

	confirmed atomic.Bool // the other end has the keys: something came that they opened
}

func newSession(s suite, out, in [32]byte) (*session, error) {
	o, err := newAEAD(s, out)
	if err != nil {
		return nil, err
	}
	i, err := newAEAD(s, in)
	if err != nil {
		return nil, err
	}
	return &session{suite: s, out: o, in: i}, nil
}

// seal appends a datagram to dst. pkt must not overlap the room that it takes there. The counter must be fresh.
func (s *session) seal(dst []byte, nonce *[12]byte, typ byte, counter uint64, pkt []byte) []byte {
	n := len(dst)
	dst = dst[:n+headerLen]
	putHeader(dst[n:], typ, s.remote, counter)
	binary.BigEndian.PutUint64(nonce[4:], counter)
	return s.out.Seal(dst, nonce[:], pkt, dst[n:n+headerLen])
}

// open checks a datagram and decrypts it where it lies. newest says that none with a higher counter came before.
func (s *session) open(nonce *[12]byte, b []byte) (pkt []byte, newest bool, ok bool) {
	_, counter, ok := parseHeader(b)
	if !ok {
		return nil, false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.window.fresh(counter) {
		return nil, false, false
	}
	binary.BigEndian.PutUint64(nonce[4:], counter)
	body := b[headerLen:]
	pkt, err := s.in.Open(body[:0], nonce[:], body, b[:headerLen])
	if err != nil {
		return nil, false, false
	}
	newest = counter >= s.window.next
	s.window.mark(counter)
	return pkt, newest, true
}
