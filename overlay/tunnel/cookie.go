package tunnel

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"skerry.dev/skerry/wire"
)

// Handshake messages end in two codes, as WireGuard's do. The first proves that the sender knows whom it talks to, so that
// scanning finds nothing. The second, asked for under load, proves that it receives at its address; then what one address
// may cost is limited.
const (
	cookieLen = hsHeader + chacha20poly1305.NonceSizeX + macLen + 16
	// cookieLife is how long a cookie is good, at least; at most twice that.
	cookieLife = 2 * time.Minute
	// calmRate is how many initiations a second are taken without a cookie, sourceRate those of one address with one.
	calmRate, sourceRate = 50, 5
	maxSources           = 4096
)

func mac(key, label string, parts ...[]byte) (m [macLen]byte) {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(label))
	for _, p := range parts {
		h.Write(p)
	}
	return [macLen]byte(h.Sum(nil)[:macLen])
}

// addMACs completes a handshake message for a receiver; cookie is nil unless it asked for one.
func addMACs(b []byte, to wire.OverlayKey, cookie []byte) (out []byte, mac1 [macLen]byte) {
	mac1 = mac(string(to[:]), "mac1", b)
	b = append(b, mac1[:]...)
	var mac2 [macLen]byte
	if cookie != nil {
		mac2 = mac(string(cookie), "mac2", b)
	}
	return append(b, mac2[:]...), mac1
}

// checkMAC1 says whether a handshake message is for the owner of a key.
func checkMAC1(b []byte, to wire.OverlayKey) bool {
	n := len(b) - 2*macLen
	if n < hsHeader {
		return false
	}
	m := mac(string(to[:]), "mac1", b[:n])
	return hmac.Equal(m[:], b[n:n+macLen])
}

// gate decides which handshake messages are worth the work. One goroutine uses it.
type gate struct {
	secret, old [32]byte
	turned      time.Duration
	calm        bucket
	sources     map[netip.Addr]*bucket
}

// bucket lets through rate a second, and a second's worth at once. The zero value is full.
type bucket struct {
	full  bool
	level float64
	at    time.Duration
}

func (b *bucket) take(now time.Duration, rate float64) bool {
	if !b.full {
		b.full, b.level, b.at = true, rate, now
	}
	b.level = min(rate, b.level+(now-b.at).Seconds()*rate)
	b.at = now
	if b.level < 1 {
		return false
	}
	b.level--
	return true
}

// verdict of the gate.
type verdict int

const (
	verdictDrop verdict = iota
	verdictTake
	verdictCookie // answer with one
)

// judge looks at a handshake message for which checkMAC1 holds.
func (g *gate) judge(now time.Duration, data []byte, from netip.AddrPort) verdict {
	if g.turned == 0 || now-g.turned > cookieLife {
		if g.turned == 0 || now-g.turned > 2*cookieLife {
			_, _ = rand.Read(g.secret[:]) // the last one is too old as well
		}
		g.old = g.secret
		_, _ = rand.Read(g.secret[:])
		g.turned = max(now, 1)
		clear(g.sources)
	}
	if g.calm.take(now, calmRate) {
		return verdictTake
	}
	n := len(data) - macLen
	good := false
	for _, s := range [][32]byte{g.secret, g.old} {
		c := cookieFor(s, from)
		m := mac(string(c[:]), "mac2", data[:n])
		good = good || hmac.Equal(m[:], data[n:])
	}
	if !good {
		return verdictCookie
	}
	if g.sources == nil {
		g.sources = map[netip.Addr]*bucket{}
	}
	a := from.Addr()
	if a.Is6() && !a.Is4In6() { // whoever has one address of a network has them all
		p, _ := a.Prefix(64)
		a = p.Addr()
	}
	s := g.sources[a]
	if s == nil {
		if len(g.sources) >= maxSources {
			return verdictDrop
		}
		s = &bucket{}
		g.sources[a] = s
	}
	if s.take(now, sourceRate) {
		return verdictTake
	}
	return verdictDrop
}

func cookieFor(secret [32]byte, from netip.AddrPort) [macLen]byte {
	return mac(string(secret[:]), "cookie", appendAddrPort(nil, from))
}

// cookie answers a handshake message with the cookie of its address, sealed for who knows the key that it was meant for.
func (g *gate) cookie(b []byte, here wire.OverlayKey, from netip.AddrPort) []byte {
	out := make([]byte, hsHeader+chacha20poly1305.NonceSizeX, cookieLen)
	out[0] = typeCookie
	copy(out[4:], b[4:8]) // the sender's index
	nonce := out[hsHeader:]
	_, _ = rand.Read(nonce)
	aead, err := chacha20poly1305.NewX(cookieKey(here))
	if err != nil {
		return nil
	}
	c := cookieFor(g.secret, from)
	return aead.Seal(out, nonce, c[:], b[len(b)-2*macLen:len(b)-macLen])
}

func cookieKey(of wire.OverlayKey) []byte {
	k := sha256.Sum256(append([]byte("skerry cookie"), of[:]...))
	return k[:]
}

// openCookie takes the answer to a message of ours with a mac1.
func openCookie(b []byte, from wire.OverlayKey, mac1 [macLen]byte) ([]byte, bool) {
	if len(b) != cookieLen {
		return nil, false
	}
	aead, err := chacha20poly1305.NewX(cookieKey(from))
	if err != nil {
		return nil, false
	}
	c, err := aead.Open(nil, b[hsHeader:hsHeader+chacha20poly1305.NonceSizeX], b[hsHeader+chacha20poly1305.NonceSizeX:], mac1[:])
	return c, err == nil
}

// cookieIndex is the index of whom a cookie is for.
func cookieIndex(b []byte) uint32 { return binary.BigEndian.Uint32(b[4:]) }
