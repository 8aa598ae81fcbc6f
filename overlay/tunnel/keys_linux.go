package tunnel

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"time"
)

// How long a handshake is tried when something waits for it, and how the pauses between tries grow.
const (
	tryFor   = 90 * time.Second
	tryFirst = 250 * time.Millisecond
	tryMost  = 5 * time.Second
	// answerPause is the least time between answers to initiations with a stamp from the past, and quiet how long a peer
	// must have been silent for one: its clock may have been set back when it started again. A replayed initiation
	// gains nothing: the session that it begins is never confirmed.
	answerPause = 3 * time.Second
	quiet       = 3 * time.Second
)

// want begins a handshake because something waits for it.
func (e *Engine) want(p *peer) {
	if p.gone {
		return
	}
	now := e.now()
	// The session may have come meanwhile.
	if s := p.send.Load(); s != nil && p.via.Load() != nil && now-s.made <= e.timing.RejectAfter {
		e.release(p)
		return
	}
	p.tryUntil = now + tryFor
	if p.attempt == nil && now >= p.nextTry {
		p.tries = 0
		e.try(p, now)
	}
}

// try sends an initiation by every way that there is; the first to arrive wins, the others look like replays.
func (e *Engine) try(p *peer, now time.Duration) {
	e.endAttempt(p)
	e.stamp = max(e.stamp+1, uint64(time.Now().UnixNano()))
	b, a, err := e.id.initiate(p.key, e.newIndex(), e.stamp, e.aes)
	if err != nil {
		e.log.Error("handshake", "peer", p.id, "err", err)
		return
	}
	cookie := p.cookie
	if now-p.cookieAt > cookieLife {
		cookie = nil
	}
	b, a.mac1 = addMACs(b, p.key, cookie)
	p.attempt = a
	e.attempts[a.local] = p
	for _, c := range p.cands {
		if c.relay == nil || c.relay.registered() {
			e.tx.plain(c.path, b)
		}
	}
	p.tries++
	p.nextTry = now + min(tryMost, tryFirst<<min(p.tries-1, 8))
}

func (e *Engine) endAttempt(p *peer) {
	if p.attempt != nil {
		delete(e.attempts, p.attempt.local)
		p.attempt = nil
	}
}

// message takes a handshake message whose first code is right.
func (e *Engine) message(from origin, b []byte) {
	now := e.now()
	switch b[0] {
	case typeInit:
		e.initiation(from, b, now)
	case typeResponse:
		e.response(from, b, now)
	case typeCookie:
		p := e.attempts[cookieIndex(b)]
		if p == nil || p.attempt == nil {
			return
		}
		if c, ok := openCookie(b, p.key, p.attempt.mac1); ok {
			p.cookie, p.cookieAt = c, now
			if p.tries <= 2 { // the peer is busy, but it is there
				p.nextTry = now
			}
		}
	}
}

func (e *Engine) initiation(from origin, data []byte, now time.Duration) {
	if len(data) != initLen {
		e.count.malformed.Add(1)
		return
	}
	src := from.addr
	if from.relay != nil {
		// Peers of a relay have no addresses of their own; their IDs stand for them.
		var a [16]byte
		a[0], a[1] = 0xfd, 1
		binary.BigEndian.PutUint32(a[4:], uint32(from.id))
		src = netip.AddrPortFrom(netip.AddrFrom16(a), 1)
	}
	switch e.gate.judge(now, data, src) {
	case verdictDrop:
		e.count.floods.Add(1)
		return
	case verdictCookie:
		e.count.floods.Add(1)
		if c := e.gate.cookie(data, e.id.public, src); c != nil {
			e.tx.plain(e.pathTo(from), c)
		}
		return
	}
	o, err := e.id.receive(data)
	if err != nil {
		e.count.refused.Add(1)
		return
	}
	peer := e.keys[o.peer]
	if peer == nil {
		e.count.refused.Add(1)
		return
	}
	if o.stamp <= peer.stamp {
		silent := now-time.Duration(peer.lastRx.Load()) > quiet
		if o.stamp == peer.stamp || !silent || peer.answered != 0 && now-peer.answered < answerPause {
			e.count.stale.Add(1)
			return
		}
		peer.answered = now
	} else {
		peer.stamp = o.stamp
	}
	// The peer has become another process; nothing that it sent before says where it is.
	r, s, err := o.respond(e.newIndex(), e.aes)
	if err != nil {
		e.log.Error("handshake", "peer", peer.id, "err", err)
		return
	}
	s.peer, s.stamp = peer, o.stamp
	e.addSession(s)
	r, _ = addMACs(r, peer.key, nil)
	e.tx.plain(e.pathTo(from), r)
	if from.relay == nil {
		// What came in directly need not get out directly.
		for _, c := range peer.cands {
			if c.relay != nil && c.relay.registered() {
				e.tx.plain(c.path, r)
			}
		}
	}
}

func (e *Engine) response(from origin, data []byte, now time.Duration) {
	if len(data) != respLen {
		e.count.malformed.Add(1)
		return
	}
	p := e.attempts[binary.BigEndian.Uint32(data[8:])]
	if p == nil || p.attempt == nil {
		return // the same answer by a second way, mostly
	}
	s, err := p.attempt.finish(data, e.aes)
	if err != nil {
		// A state that has read a wrong answer is good for nothing more; the next try makes another.
		e.count.refused.Add(1)
		return
	}
	e.endAttempt(p)
	s.peer = p
	e.addSession(s)
	p.lastRx.Store(int64(now))
	e.established(p, s, from, now)
	e.ping(p, e.candidate(p, from, now), now) // it confirms the session to the peer
}

// confirm notes that a peer has used a session that it began.
func (e *Engine) confirm(s *session, from origin) {
	if s.peer.gone || s.confirmed.Swap(true) {
		return
	}
	s.peer.stamp = s.stamp // which is in the past, if the peer's clock was set back
	e.established(s.peer, s, from, e.now())
}

// established has a session send.
func (e *Engine) established(p *peer, s *session, from origin, now time.Duration) {
	if cur := p.send.Load(); cur == nil || s.made >= cur.made {
		p.send.Store(s)
	}
	p.tries, p.nextTry, p.handshake = 0, 0, time.Now()
	c := e.candidate(p, from, now)
	c.heard = now
	if s.initiator {
		c.good = now // it went there and back
	}
	if cur := p.via.Load(); cur == nil || e.dead(p, p.cands[cur.pathKey], now) || c.direct() && !cur.direct() && s.initiator {
		e.use(p, c, now)
	}
	p.reason = e.explain(p)
	if v := p.via.Load(); v != nil && !v.direct() {
		e.punch(p, now)
	}
	e.log.Debug("session", "peer", p.id, "cipher", s.suite, "initiator", s.initiator)
	e.release(p)
}

// release sends what has waited for a session.
func (e *Engine) release(p *peer) {
	later := p.later
	p.later = nil
	for _, c := range later {
		e.tell(p, p.via.Load(), c)
	}
	for _, f := range p.held() {
		e.tx.frame(f)
	}
	e.tx.flush()
}

// tell sends a control message to a peer, if there is a session.
func (e *Engine) tell(p *peer, via *path, c control) bool {
	s := p.send.Load()
	if s == nil || via == nil {
		return false
	}
	e.tx.add(s, via, typeControl, s.counter.Add(1)-1, c.append(nil))
	e.tx.flush()
	return true
}

// renew begins new sessions in time and ends old ones. It reports whether something is going on.
func (e *Engine) renew(p *peer, now time.Duration) bool {
	t := e.timing
	cur := p.send.Load()
	for i := 0; i < len(p.sessions); i++ {
		// One that is not confirmed yet stays as long: the peer may have been held up, and sends with it once it goes on.
		if s := p.sessions[i]; now-s.made > t.RejectAfter {
			e.endSession(p, s)
			i--
		}
	}
	if cur != nil && p.send.Load() == nil {
		e.lose(p, "idle")
	}
	cur = p.send.Load()
	used := max(p.dataRx.Load(), p.dataTx.Load())
	inUse := used != 0 && now-time.Duration(used) < t.RekeyAfter
	if cur != nil && p.attempt == nil && now >= p.nextTry && (inUse || p.conf.Load().Keep) {
		age := now - cur.made
		due := age > t.RekeyAfter || cur.counter.Load() > t.RekeyMessages
		if bytes.Compare(e.id.public[:], p.key[:]) > 0 {
			// Only one end begins, unless it is late. Were it the initiator, both ends would be once two handshakes have crossed,
			// and theirs would cross from then on.
			due = age > t.RekeyAfter+(t.RejectAfter-t.RekeyAfter)/2 || cur.counter.Load() > t.RekeyMessages+t.RekeyMessages/4
		}
		if due {
			p.tries, p.tryUntil = 0, now+tryFor
			e.try(p, now)
		}
	}
	if cur == nil && p.conf.Load().Keep && p.attempt == nil && now >= p.nextTry {
		p.tryUntil = now + tryFor
		e.try(p, now)
	}
	if p.attempt == nil {
		return false
	}
	if now >= p.nextTry {
		switch {
		case now < p.tryUntil || p.conf.Load().Keep:
			e.try(p, now)
		default:
			e.endAttempt(p)
			if cur == nil {
				p.held()
				p.later = nil
				p.reason = "the peer did not answer"
			}
		}
	}
	return true
}

func (e *Engine) endSession(p *peer, s *session) {
	for i, v := range p.sessions {
		if v == s {
			p.sessions = append(p.sessions[:i:i], p.sessions[i+1:]...)
			break
		}
	}
	old := *e.sessions.Load()
	next := make(map[uint32]*session, len(old))
	for i, v := range old {
		if v != s {
			next[i] = v
		}
	}
	e.sessions.Store(&next)
	if p.send.Load() == s {
		p.send.Store(nil)
		for _, v := range p.sessions {
			if v.confirmed.Load() {
				p.send.Store(v)
				break
			}
		}
	}
}

// nudge begins a handshake with a peer that sends with a session that is not here: this end has started again.
func (e *Engine) nudge(from origin) {
	now := e.now()
	for _, p := range e.keys {
		if p.cands[from.key()] == nil || p.send.Load() != nil || p.attempt != nil || now < p.nextTry ||
			p.nudgedAt != 0 && now-p.nudgedAt < time.Second {
			continue
		}
		p.nudgedAt = now
		p.tryUntil = now + 5*time.Second
		p.tries = 0
		e.try(p, now)
		return
	}
}
