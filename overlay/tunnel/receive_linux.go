package tunnel

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/overlay/relay/frame"
	"skerry.dev/skerry/wire"
)

// receiver opens datagrams and writes what is in them to the tap. One goroutine uses it.
type receiver struct {
	e       *Engine
	m       merger
	nonce   [12]byte
	scratch frame.Scratch
	vec     []unix.Iovec
	now     time.Duration
	sess    *session // that of the last datagram
	conf    *Peer    // for which src is allowed
	src     []byte
	stream  *stream // nil: what it gets comes by UDP
}

func newReceiver(e *Engine) *receiver {
	r := &receiver{e: e}
	r.m.write = r.write
	return r
}

func (r *receiver) write(iov [][]byte) {
	fd := r.e.tapFD.Load()
	if fd < 0 {
		return
	}
	r.e.count.writes.Add(1)
	var err error
	if r.vec, err = writev(int(fd), iov, r.vec); err != nil {
		r.e.count.tapErr.Add(1)
	}
}

// origin is where a datagram came from: an address, or a peer of a relay.
type origin struct {
	addr  netip.AddrPort
	relay *relayClient
	id    wire.PeerID
}

func (o origin) key() pathKey {
	if o.relay != nil {
		return pathKey{relay: o.relay.name, id: o.id}
	}
	return pathKey{addr: o.addr}
}

// datagrams takes what came in one message.
func (r *receiver) datagrams(from netip.AddrPort, b []byte, seg int) {
	rc := (*r.e.relayAt.Load())[from]
	for len(b) > 0 {
		n := min(seg, len(b))
		d := b[:n:n]
		b = b[n:]
		if d[0] < frame.TypeData {
			r.datagram(origin{addr: from}, d)
		} else if rc != nil {
			r.relayed(rc, d)
		} else {
			r.e.count.malformed.Add(1)
		}
	}
}

// relayed takes a frame of a relay.
func (r *receiver) relayed(rc *relayClient, d []byte) {
	if _, dst, src, ok := frame.Parse(d); ok {
		if dst == rc.self && rc.in.Check(d, &r.scratch) {
			r.datagram(origin{relay: rc, id: src}, d[frame.DataLen:])
		} else {
			r.e.count.forged.Add(1)
		}
		return
	}
	over := r.stream
	if reg, ok := frame.ParseRegister(d); ok && reg.Answer && frame.CheckRegister(d, rc.key) {
		r.e.post(func() { rc.answered(reg, over) })
		return
	}
	r.e.count.malformed.Add(1)
}

// datagram takes one datagram. Data goes to the tap at the next flush; it must stay where it is until then.
func (r *receiver) datagram(from origin, d []byte) {
	engine := r.e
	switch d[0] {
	case typeData, typeControl:
	case typeInit, typeResponse, typeCookie:
		if len(d) != initLen && len(d) != respLen && len(d) != cookieLen {
			engine.count.malformed.Add(1)
			return
		}
		if pub := engine.public.Load(); d[0] != typeCookie && (pub == nil || !checkMAC1(d, *pub)) {
			engine.count.refused.Add(1)
			return
		}
		select { // a channel of its own, so that a flood holds up nothing else
		case engine.hellos <- hello{from, append([]byte(nil), d...)}:
		default:
			engine.count.floods.Add(1)
		}
		return
	default:
		engine.count.malformed.Add(1)
		return
	}
	if len(d) < headerLen+tagLen {
		engine.count.malformed.Add(1)
		return
	}
	index := binary.BigEndian.Uint32(d[1:])
	session := r.sess
	if session == nil || session.local != index {
		if session = (*engine.sessions.Load())[index]; session == nil {
			engine.count.unknown.Add(1)
			r.stranger(from)
			return
		}
		r.sess = session
	}
	pkt, newest, ok := session.open(&r.nonce, d)
	if !ok {
		engine.count.forged.Add(1)
		return
	}
	peer := session.peer
	peer.lastRx.Store(int64(r.now))
	if !session.confirmed.Load() {
		engine.post(func() { engine.confirm(session, from) })
	} else if newest && d[0] == typeData {
		r.moved(peer, from)
	}
	if d[0] == typeControl {
		if c, err := parseControl(pkt); err == nil {
			if newest && c.kind == ctlPing && c.flags&pingInUse != 0 {
				r.moved(peer, from)
			}
			at := r.now
			engine.post(func() { engine.control(peer, from, c, at) })
		} else {
			engine.count.malformed.Add(1)
		}
		return
	}
	if len(pkt) < metaLen+20 {
		engine.count.malformed.Add(1)
		return
	}
	if c := peer.conf.Load(); c != r.conf {
		r.conf, r.src = c, r.src[:0]
	}
	if pkt[metaLen]>>4 == 6 && len(pkt) < metaLen+40 || !r.conf.allowed(pkt[metaLen:], &r.src) {
		engine.count.source.Add(1)
		return
	}
	peer.dataRx.Store(int64(r.now))
	peer.rx.Add(int64(len(pkt) - metaLen))
	engine.count.rx.Add(1)
	if !r.m.add(peer.id, pkt) {
		engine.count.malformed.Add(1)
	}
}

// roamPause is the least time between two reports of a peer's new address.
const roamPause = 10 * time.Millisecond

// moved tells the loop when a peer's datagram comes from elsewhere than where its own go.
func (r *receiver) moved(p *peer, from origin) {
	if from.relay != nil {
		return
	}
	via := p.via.Load()
	if via != nil && via.direct() && via.addr == from.addr {
		return
	}
	if last := p.roamAt.Load(); int64(r.now)-last < int64(roamPause) || !p.roamAt.CompareAndSwap(last, int64(r.now)) {
		return
	}
	r.e.post(func() { r.e.roam(p, from) })
}

// stranger notes data for a session that is not here: if it comes from a peer's address, this end has forgotten its
// sessions, and begins a new one.
func (r *receiver) stranger(from origin) {
	last := r.e.nudgeAt.Load()
	if int64(r.now)-last >= int64(nudgePause) && r.e.nudgeAt.CompareAndSwap(last, int64(r.now)) {
		r.e.post(func() { r.e.nudge(from) })
	}
}

// nudgePause is the least time between two looks at who a stranger is.
const nudgePause = 20 * time.Millisecond

// hello is a handshake message.
type hello struct {
	from origin
	b    []byte
}

// flush writes what is joined so far.
func (r *receiver) flush() { r.m.flush() }

// udpReader is the goroutine that reads the socket.
type udpReader struct {
	e    *Engine
	s    *socket
	wake wake
	wg   sync.WaitGroup
}

func newUDPReader(e *Engine, s *socket) (*udpReader, error) {
	w, err := newWake()
	if err != nil {
		return nil, err
	}
	return &udpReader{e: e, s: s, wake: w}, nil
}

func (u *udpReader) run() {
	u.wg.Go(func() { panics.Again(u.e.log, "datagrams of the tunnel", u.read) })
}

func (u *udpReader) read() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := newReceiver(u.e)
	l := newListener()
	for u.wake.wait(u.s.fd) {
		spins, bulk := 0, false
		for range 64 {
			n, err := l.receive(u.s)
			if err != nil {
				break
			}
			if n == 0 {
				if spins == yields || !bulk {
					break
				}
				spins++
				yield()
				continue
			}
			spins = 0
			_, b, seg := l.message(0)
			bulk = n > 1 || len(b) > 16*seg
			r.now = u.e.now()
			u.e.count.messages.Add(int64(n))
			for i := range n {
				from, b, seg := l.message(i)
				r.datagrams(from, b, seg)
			}
			r.flush()
		}
		r.sess, r.conf = nil, nil // what is forgotten is not kept alive from here
	}
}

// close ends the goroutine and waits for it.
func (u *udpReader) close() {
	if u == nil {
		return
	}
	u.wake.wake()
	u.wg.Wait()
	unix.Close(u.wake.fd)
}
