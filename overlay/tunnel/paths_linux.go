package tunnel

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"skerry.dev/skerry/overlay"
)

// tick does what is due. It reports whether the next one is due soon.
func (e *Engine) tick(now time.Duration) bool {
	busy := false
	for _, p := range e.keys {
		if e.renew(p, now) {
			busy = true
		}
		if p.send.Load() != nil {
			if e.probe(p, now) {
				busy = true
			}
		}
	}
	for _, r := range e.relays {
		if r.tick(now) {
			busy = true
		}
	}
	return busy
}

// pathTo makes a path to where something came from.
func (e *Engine) pathTo(from origin) *path {
	p := &path{pathKey: from.key(), relay: from.relay}
	if s := e.sock.Load(); from.relay == nil && s != nil {
		p.raw = s.rawAddr(from.addr)
	}
	return p
}

// candidate gives the candidate of a peer where something authentic came from.
func (e *Engine) candidate(p *peer, from origin, now time.Duration) *candidate {
	k := from.key()
	if c := p.cands[k]; c != nil {
		return c
	}
	c := &candidate{path: e.pathTo(from), learned: true, added: now}
	e.forget(p, now)
	p.cands[k] = c
	return c
}

// maxPaths is the most paths of a peer that are remembered.
const maxPaths = 40

// forget makes room among the paths of a peer: of those learned, that which was good the longest time ago goes.
func (e *Engine) forget(p *peer, now time.Duration) {
	if len(p.cands) < maxPaths {
		return
	}
	var oldest *candidate
	via := p.via.Load()
	for _, c := range p.cands {
		if c.learned && c.path != via && (oldest == nil || max(c.good, c.heard, c.added) < max(oldest.good, oldest.heard, oldest.added)) {
			oldest = c
		}
	}
	if oldest != nil {
		delete(p.cands, oldest.pathKey)
	}
}

// setCandidates makes the configured paths of a peer those of its configuration.
func (e *Engine) setCandidates(p *peer) {
	now := e.now()
	conf := p.conf.Load()
	want := map[pathKey]origin{}
	for _, a := range conf.Endpoints {
		if conf.Indirect {
			break
		}
		a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
		want[pathKey{addr: a}] = origin{addr: a}
	}
	for _, r := range conf.Relays {
		id := r.ID
		if id == 0 {
			id = p.id
		}
		if rc := e.relays[r.Relay]; rc != nil {
			o := origin{relay: rc, id: id}
			want[o.key()] = o
		}
	}
	fresh := false
	for k, o := range want {
		c := p.cands[k]
		if c == nil || c.relay != o.relay {
			p.cands[k] = &candidate{path: e.pathTo(o), added: now}
			fresh = true
			if c != nil && p.via.Load() == c.path {
				p.via.Store(p.cands[k].path)
			}
			continue
		}
		c.learned = false
	}
	via := p.via.Load()
	for k, c := range p.cands {
		if _, ok := want[k]; ok {
			continue
		}
		if c.relay != nil && e.relays[c.relay.name] != c.relay { // a relay that is no more
			delete(p.cands, k)
			if via == c.path {
				e.lose(p, "the relay is gone")
			}
			continue
		}
		if !c.learned {
			c.learned = true // it may still be where the peer is
			c.added = now
		}
	}
	if s := p.send.Load(); s != nil && fresh {
		if p.via.Load() == nil {
			e.pick(p, now)
		}
		e.punch(p, now)
	}
}

// use moves a peer's traffic to a path.
func (e *Engine) use(p *peer, c *candidate, now time.Duration) {
	old := p.via.Load()
	p.via.Store(c.path)
	c.misses, c.next = 0, now
	p.reason = e.explain(p)
	if old == nil || old.pathKey != c.pathKey {
		e.log.Info("path", "peer", p.id, "kind", c.kind(), "addr", c.addr, "relay", c.pathKey.relay)
		e.emit(Event{Kind: EventPath, Peer: p.id, Path: c.kind()})
	}
}

func (e *Engine) lose(p *peer, why string) {
	if p.via.Swap(nil) != nil {
		e.emit(Event{Kind: EventPath, Peer: p.id, Path: overlay.PathNone})
	}
	p.reason = why
}

// explain says why the path in use is not a better one.
func (e *Engine) explain(p *peer) string {
	v := p.via.Load()
	if v == nil || v.direct() {
		return ""
	}
	if p.conf.Load().Indirect {
		return "of another site: by the gateways"
	}
	n := 0
	for _, c := range p.cands {
		if c.direct() {
			n++
		}
	}
	if n == 0 {
		return "no direct address of the peer is known"
	}
	return fmt.Sprintf("none of %d direct addresses answers", n)
}

// deadAfter is the number of pings in a row without an answer at which a path counts as broken.
const deadAfter = 3

func (e *Engine) dead(p *peer, c *candidate, now time.Duration) bool {
	return c == nil || c.misses >= deadAfter || c.relay != nil && !c.relay.registered()
}

// punch begins to ping every address of a peer, quickly at first, and tells it where to ping this end: both must send
// before a NAT lets either through.
func (e *Engine) punch(p *peer, now time.Duration) {
	p.punchUntil = now + 10*e.timing.Punch
	p.nextPunch = now
	e.offer(p, now)
}

// offer tells a peer this end's addresses.
func (e *Engine) offer(p *peer, now time.Duration) {
	p.toldAt = now
	via := p.via.Load()
	if p.conf.Load().Indirect {
		return
	}
	if list := e.reachable(); len(list) > 0 {
		e.tell(p, via, control{kind: ctlCandidates, addrs: list})
	}
}

// ping sends one by a path.
func (e *Engine) ping(p *peer, c *candidate, now time.Duration) {
	e.number++
	m := control{kind: ctlPing, number: e.number}
	if c.path == p.via.Load() {
		m.flags = pingInUse
	}
	if !e.tell(p, c.path, m) {
		return
	}
	if len(c.pings) == maxPings {
		c.pings = slices.Delete(c.pings, 0, 1)
	}
	c.pings = append(c.pings, ping{number: e.number, at: now})
}

// probe pings what is due, and looks whether the path in use still works. It reports whether the next look is due soon.
func (e *Engine) probe(p *peer, now time.Duration) bool {
	t := e.timing
	via := p.via.Load()
	if via == nil {
		e.pick(p, now)
		return true
	}
	cand := p.cands[via.pathKey]
	if cand == nil {
		e.pick(p, now)
		return true
	}
	busy := e.check(p, cand, now)
	if via = p.via.Load(); via == nil {
		return true
	}
	if !via.direct() || e.dead(p, p.cands[via.pathKey], now) {
		if now >= p.nextPunch {
			quick := now < p.punchUntil
			p.nextPunch = now + t.Better
			if quick {
				p.nextPunch = now + t.Punch
			} else if now-p.toldAt > 3*t.Better {
				e.offer(p, now)
			}
			for _, o := range p.cands {
				if o.direct() && o.path != via {
					e.ping(p, o, now)
				}
			}
		}
		busy = busy || now < p.punchUntil
	}
	return busy
}

// check looks at the path in use.
func (e *Engine) check(p *peer, cand *candidate, now time.Duration) (busy bool) {
	t := e.timing
	limit := max(t.Lost, 4*cand.rtt)
	for i := range cand.pings {
		q := &cand.pings[i]
		if q.late || now-q.at <= limit {
			continue
		}
		// One of which nothing came back, while other things did, was lost alone.
		if time.Duration(p.lastRx.Load()) < q.at {
			cand.misses++
		}
		q.late = true
		p.loss = p.loss*0.9 + 0.1
		cand.next = now
	}
	if cand.misses > 0 && cand.relay != nil {
		cand.relay.suspect(now)
	}
	if e.dead(p, cand, now) {
		e.pick(p, now)
		return true
	}
	rx, tx := time.Duration(p.lastRx.Load()), time.Duration(p.dataTx.Load())
	every := t.KeepAlive
	if now-max(tx, time.Duration(p.dataRx.Load())) < t.Probe {
		every = t.Probe
	}
	silent := tx > rx && now-rx > t.Silence
	if !cand.awaits(now) && (now >= cand.next || silent) {
		e.ping(p, cand, now)
		cand.next = now + every
	}
	if cand.next > now+every {
		cand.next = now + every
	}
	return cand.awaits(now) || now-tx < t.Probe
}

// pick moves a peer to the best path that seems to work. When none does, it begins a handshake, which tries them all.
func (e *Engine) pick(p *peer, now time.Duration) {
	var best *candidate
	better := func(a, b *candidate) bool {
		if b == nil {
			return true
		}
		if x, y := p.rank(a), p.rank(b); x != y {
			return x < y
		}
		return a.good > b.good
	}
	cur := p.via.Load()
	for _, c := range p.cands {
		works := c.relay != nil && c.relay.registered() && c.misses < deadAfter ||
			c.relay == nil && c.misses < deadAfter && c.good > 0 && now-c.good < 3*e.timing.Lost
		if c.path != cur && works && better(c, best) {
			best = c
		}
	}
	if best != nil {
		e.use(p, best, now)
		e.punch(p, now)
		e.ping(p, best, now)
		return
	}
	// Nothing answers: forget what was held against relays, so that all are tried again.
	for _, c := range p.cands {
		if c.relay != nil {
			c.misses = 0
		}
	}
	if p.punchUntil < now {
		e.punch(p, now)
	}
	if p.attempt == nil && now >= p.nextTry {
		p.reason = "no path answers"
		p.tryUntil = now + tryFor
		p.tries = 0
		e.try(p, now)
	}
}

// control takes a control message that came in a session.
func (e *Engine) control(p *peer, from origin, m control, at time.Duration) {
	if p.gone {
		return
	}
	now := e.now()
	switch m.kind {
	case ctlPing:
		c := e.candidate(p, from, now)
		c.heard = now
		e.tell(p, c.path, control{kind: ctlPong, number: m.number, addrs: []netip.AddrPort{from.addr}})
		if via := p.via.Load(); c.direct() && (via == nil || !via.direct()) && !c.awaits(now) {
			e.ping(p, c, now) // the way back is open; see whether it is both ways
		}
	case ctlPong:
		e.pong(p, from, m, at)
	case ctlCandidates:
		if p.conf.Load().Indirect {
			return
		}
		fresh := false
		for _, a := range m.addrs {
			o := origin{addr: netip.AddrPortFrom(a.Addr().Unmap(), a.Port())}
			if p.cands[o.key()] == nil {
				e.candidate(p, o, now)
				fresh = true
			}
		}
		via := p.via.Load()
		if via != nil && !via.direct() {
			p.punchUntil, p.nextPunch = now+10*e.timing.Punch, now
			if fresh || now-p.toldAt > time.Second {
				e.offer(p, now)
			}
			e.probe(p, now)
		}
		if fresh && via != nil {
			p.reason = e.explain(p)
		}
	case ctlUnknown:
		e.emit(Event{Kind: EventUnknown, Peer: p.id, Net: m.net, Addr: m.addr})
	}
}

// pong takes the answer to a ping. It counts for the path by which the ping went, and only if it came back by the same one,
// but for an address that a NAT on the way has changed.
func (e *Engine) pong(p *peer, from origin, m control, at time.Duration) {
	var cand *candidate
	for _, o := range p.cands {
		if i := slices.IndexFunc(o.pings, func(q ping) bool { return q.number == m.number }); i >= 0 {
			cand = o
			rtt := max(at-o.pings[i].at, 1)
			if o.pings[i].late {
				p.loss = max(0, p.loss-0.1) // it was not lost after all
			}
			if o.rtt == 0 {
				o.rtt = rtt
			} else {
				o.rtt += time.Duration(math.Round(float64(rtt-o.rtt) / 8))
			}
			o.pings = slices.Delete(o.pings, 0, i+1) // those before it will hardly come
			break
		}
	}
	if cand == nil || cand.pathKey != from.key() {
		return
	}
	now := e.now()
	cand.good, cand.heard, cand.misses = now, now, 0
	via := p.via.Load()
	if via != nil && via.pathKey == cand.pathKey {
		p.loss *= 0.9
		p.reason = e.explain(p)
		return
	}
	cur := (*candidate)(nil)
	if via != nil {
		cur = p.cands[via.pathKey]
	}
	if cur == nil || e.dead(p, cur, now) || p.rank(cand) < p.rank(cur) {
		e.use(p, cand, now)
	}
}

// roam follows a peer to an address from which its newest datagram came.
func (e *Engine) roam(p *peer, from origin) {
	if p.gone {
		return
	}
	now := e.now()
	known := p.cands[from.key()] != nil
	cand := e.candidate(p, from, now)
	cand.heard = now
	via := p.via.Load()
	if via != nil && via.pathKey == cand.pathKey {
		return
	}
	if via == nil || via.direct() && !known {
		e.use(p, cand, now)
		e.ping(p, cand, now)
		return
	}
	// The peer is free to use another way than this end does. But if it uses one that is known because the one in use is
	// broken, this end wants to know soon.
	if cur := p.cands[via.pathKey]; via.direct() && cur != nil {
		if cur.misses > 0 {
			e.use(p, cand, now)
		} else if !cur.awaits(now) && now-cur.good > e.timing.Lost {
			e.ping(p, cur, now)
		}
	}
	if !cand.awaits(now) && now-cand.good > e.timing.Lost {
		e.ping(p, cand, now)
	}
}

// locate looks for addresses of this machine.
func (e *Engine) locate() {
	s := e.sock.Load()
	if s == nil {
		return
	}
	list := localAddresses(s.port, e.conf.Hidden)
	if !slices.Equal(list, e.locals) {
		e.locals = list
		e.emit(Event{Kind: EventAddress})
	}
}

// sources are the addresses from which this machine would send to some of those that it sends to.
func (e *Engine) sources() (out []netip.Addr) {
	add := func(to netip.AddrPort) {
		if to.IsValid() && len(out) < 8 {
			out = append(out, sourceOf(to))
		}
	}
	for _, r := range e.conf.Relays {
		add(r.UDP)
	}
	for _, pc := range e.conf.Peers {
		if p := e.keys[pc.Key]; p != nil {
			if v := p.via.Load(); v != nil && v.direct() {
				add(v.addr)
			}
		}
	}
	return out
}

// reachable are the addresses at which this end may be reached, as far as it knows.
func (e *Engine) reachable() []netip.AddrPort {
	var out []netip.AddrPort
	for _, r := range e.relays {
		if r.reflexive.IsValid() && r.registered() {
			out = append(out, r.reflexive)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	for _, a := range e.locals {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out[:min(len(out), maxCandidates)]
}

// look asks relays and the peers in use whether they hear from here. A NAT that was exchanged has given this end another
// address, and nobody can tell it before it has sent something.
func (e *Engine) look() {
	now := e.now()
	for _, r := range e.relays {
		r.look(now)
	}
	for _, p := range e.keys {
		if v := p.via.Load(); v != nil && p.send.Load() != nil {
			if c := p.cands[v.pathKey]; c != nil {
				e.ping(p, c, now)
			}
		}
	}
}

// addressesChanged has peers and relays learn where this end is now, at once: their datagrams go to the old address.
func (e *Engine) addressesChanged() {
	before := e.locals
	e.locate()
	sources := e.sources()
	if slices.Equal(before, e.locals) && slices.Equal(sources, e.from) {
		return // instances come and go, and their routes with them
	}
	e.from = sources
	now := e.now()
	for _, r := range e.relays {
		r.moved(now)
	}
	for _, p := range e.keys {
		if p.send.Load() == nil {
			continue
		}
		for _, c := range p.cands {
			e.ping(p, c, now)
		}
		p.nextPunch, p.punchUntil = now, now+10*e.timing.Punch
		p.toldAt = now
		e.offer(p, now)
	}
}
