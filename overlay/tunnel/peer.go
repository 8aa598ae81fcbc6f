package tunnel

import (
	"bytes"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

// peer is what an engine knows of a peer.
type peer struct {
	id  wire.PeerID
	key wire.OverlayKey

	// Whoever sends or receives reads these; the engine's loop writes them.
	conf atomic.Pointer[Peer]
	send atomic.Pointer[session] // nil: there is none
	via  atomic.Pointer[path]    // nil: there is none

	rx, tx atomic.Int64 // bytes of packets
	lastRx atomic.Int64 // of the engine's clock: anything that was authentic
	dataRx atomic.Int64
	dataTx atomic.Int64
	roamAt atomic.Int64 // when the loop was last told of a new address

	waiting struct {
		sync.Mutex
		frames [][]byte
		bytes  int
	}

	// The rest is the loop's.
	sessions  []*session // the newest first; all receive
	handshake time.Time  // of the last one, for people
	gone      bool       // no longer configured
	later     []control  // to be told when there is a session
	reason    string
	negotiation
	search
}

// negotiation is the handshake with a peer (keys_linux.go).
type negotiation struct {
	attempt  *attempt
	tries    int // of the handshake that goes on
	nextTry  time.Duration
	tryUntil time.Duration
	cookie   []byte
	cookieAt time.Duration
	stamp    uint64        // of the last initiation taken
	answered time.Duration // when an initiation with a stamp from the past was last answered
	nudgedAt time.Duration // when something without a session came from its address
}

// search is the looking for a path to a peer (paths_linux.go).
type search struct {
	cands      map[pathKey]*candidate
	punchUntil time.Duration // quick pings until then
	nextPunch  time.Duration
	toldAt     time.Duration // when the peer was last told our candidates
	loss       float64
}

// pathKey tells paths apart.
type pathKey struct {
	relay string
	id    wire.PeerID
	addr  netip.AddrPort
}

// path is a way to a peer. It does not change.
type path struct {
	pathKey
	raw   rawAddr
	relay *relayClient // nil: direct
}

func (p *path) direct() bool { return p.relay == nil }

func (p *path) kind() overlay.PathKind {
	if p.direct() {
		return overlay.PathDirect
	}
	return overlay.PathRelay
}

// candidate is a path that may work.
type candidate struct {
	*path
	learned bool // not configured: from the peer itself, or seen
	added   time.Duration
	pings   []ping // that have no answer yet, the oldest first
	next    time.Duration
	good    time.Duration // when it last answered; 0: never
	heard   time.Duration
	rtt     time.Duration
	misses  int // pings in a row without an answer
}

// ping is one that was sent.
type ping struct {
	number uint32
	at     time.Duration
	late   bool // it counted as lost; an answer may still come
}

// awaits says whether a ping is on its way that may soon be answered.
func (c *candidate) awaits(now time.Duration) bool {
	if len(c.pings) == 0 {
		return false
	}
	last := c.pings[len(c.pings)-1]
	return !last.late && now-last.at < time.Second
}

// maxPings is how many pings of a path may be without an answer and still be answered.
const maxPings = 8

// rank orders paths: direct ones first, then relays as they are configured.
func (p *peer) rank(c *candidate) int {
	if c.direct() {
		return 0
	}
	for i, r := range p.conf.Load().Relays {
		if r.Relay == c.pathKey.relay {
			return 1 + i
		}
	}
	return 100
}

// allowed says whether the peer may send packets from an address. last remembers the last one that it might.
func (p *Peer) allowed(pkt []byte, last *[]byte) bool {
	var src []byte
	if pkt[0]>>4 == 4 {
		src = pkt[12:16]
	} else {
		src = pkt[8:24]
	}
	if bytes.Equal(src, *last) {
		return true
	}
	a, _ := netip.AddrFromSlice(src)
	for _, prefix := range p.Prefixes {
		if prefix.Contains(a) {
			*last = append((*last)[:0], src...)
			return true
		}
	}
	return false
}

const (
	maxWaiting      = 32       // frames of a peer that wait for its session
	maxWaitingBytes = 96 << 10 // of a peer
)

// hold keeps a frame until there is a session; false: there is no room.
func (p *peer) hold(frame []byte) bool {
	w := &p.waiting
	w.Lock()
	defer w.Unlock()
	if len(w.frames) >= maxWaiting || w.bytes+len(frame) > maxWaitingBytes && len(w.frames) > 0 {
		return false
	}
	w.frames = append(w.frames, bytes.Clone(frame))
	w.bytes += len(frame)
	return true
}

func (p *peer) held() [][]byte {
	w := &p.waiting
	w.Lock()
	defer w.Unlock()
	f := w.frames
	w.frames, w.bytes = nil, 0
	return f
}
