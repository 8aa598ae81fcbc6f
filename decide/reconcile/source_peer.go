package reconcile

import (
	"cmp"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// peerState is what a source knows and does about its peer on the present connection. None of it is persisted.
type peerState struct {
	connected bool
	confirmed bool // the peer holds this incarnation
	need      bool // only a snapshot will do
	held      skerry.Generation
	sent      skerry.Generation // deltas up to here are on their way
	marks     []mark            // deltas on their way
	part      *transfer

	lastSend time.Time // of what waits for an answer
	tries    int       // resends without progress
	gapped   bool      // began again for a gap since the last progress
	fails    int       // snapshots asked for again without success
	hold     time.Time // no snapshot before

	orphans    map[string]wire.HeldItem
	orphanSum  sum
	orphanWant wire.Digest // what the peer says it keeps
	heldPart   *heldPart
	heldAsked  time.Time
}

type mark struct {
	gen    skerry.Generation
	digest wire.Digest
}

// transfer is a snapshot or a large delta on its way. The items are captured, so that it stays what it was at gen.
type transfer struct {
	base, gen   skerry.Generation
	digest      wire.Digest
	delta       bool
	parts       [][]wire.SetItem
	next, acked uint32
}

type heldPart struct {
	digest wire.Digest
	items  []wire.HeldItem
	sum    sum
	next   uint32
	size   int
}

// restart forgets everything but the connection, for a new incarnation.
func (p *peerState) restart() {
	p.confirmed, p.held, p.sent, p.marks, p.part = false, 0, 0, nil, nil
	p.need = p.connected
	p.tries = 0
}

func (p *peerState) waiting() bool {
	return p.part != nil && p.part.next > p.part.acked || len(p.marks) > 0
}

func (p *peerState) due(opt Options) time.Time {
	switch {
	case !p.connected:
		return time.Time{}
	case p.waiting():
		return p.lastSend.Add(backoff(opt, p.tries))
	case p.need && !p.hold.IsZero():
		return p.hold
	case !p.heldAsked.IsZero() && p.orphanSum.digest() != p.orphanWant:
		return p.heldAsked.Add(opt.Resend)
	}
	return time.Time{}
}

func backoff(opt Options, tries int) time.Duration {
	return min(opt.Resend<<min(tries, 20), opt.MaxResend)
}

// Connect begins a connection with what the peer says it holds (Hello, or Welcome towards a parent). A set that the
// peer did not name is passed as a zero SetAck.
func (s *Source) Connect(now time.Time, ack wire.SetAck) {
	p := &s.peer
	part := p.part
	*p = peerState{connected: true, orphans: p.orphans, orphanSum: p.orphanSum}
	if part != nil && !part.delta && s.answers(part, &ack) {
		part.next, part.acked = ack.PartNext, ack.PartNext
		p.part, p.need = part, true
	}
	if ack.Incarnation != s.inc {
		p.need = true
		return
	}
	s.accept(now, &ack)
}

// Disconnect ends the connection. A snapshot under way is kept, in case the peer comes back for the rest.
func (s *Source) Disconnect() {
	s.peer.connected = false
}

// Handle takes SetAck, SetWant and SetHeld of this set from the peer; other messages have no effect. It says in a word why one
// had none, for counters: "unknown-set" or "stale-answer".
func (s *Source) Handle(now time.Time, msg wire.Message) (ignored string) {
	if !s.peer.connected {
		return "stale-answer"
	}
	switch m := msg.(type) {
	case *wire.SetAck:
		if m.Set == s.set {
			return s.handleAck(now, m)
		}
	case *wire.SetWant:
		if m.Set == s.set {
			s.handleWant(now, m)
			return ""
		}
	case *wire.SetHeld:
		if m.Set == s.set {
			s.handleHeld(m)
			return ""
		}
	}
	return "unknown-set"
}

func (s *Source) handleAck(now time.Time, m *wire.SetAck) (ignored string) {
	p := &s.peer
	if t := p.part; t != nil && s.answers(t, m) && m.PartNext > t.acked {
		t.acked, t.next = m.PartNext, max(t.next, m.PartNext)
		p.progress(now)
	}
	if m.Incarnation != s.inc {
		// A late answer of before the snapshot means nothing: an incarnation that was replaced never comes back. But who once
		// confirmed this one and now holds another was told so by somebody else; the snapshot is answered with what that is.
		p.need = p.need || !p.confirmed || p.part == nil
		return "stale-answer"
	}
	if m.Gen < p.held {
		return "stale-answer"
	}
	s.accept(now, m)
	return ""
}

// answers reports whether m tells of progress with transfer t. The last part is answered by the generation reached.
func (s *Source) answers(t *transfer, m *wire.SetAck) bool {
	return m.PartIncarnation == s.inc && m.PartGen == t.gen && m.PartDigest == t.digest && m.PartNext < uint32(len(t.parts))
}

// accept takes an answer of this incarnation that is not older than what is known.
func (s *Source) accept(now time.Time, m *wire.SetAck) {
	peer := &s.peer
	if m.Gen > s.gen || s.contradicts(m) {
		s.rolledBack(now, m.Incarnation, m.Gen)
		return
	}
	peer.orphanWant = m.OrphanDigest
	if m.Orphans == 0 {
		peer.orphans, peer.orphanSum, peer.orphanWant, peer.heldPart = nil, sum{}, wire.Digest{}, nil
	}
	peer.confirmed = true
	if m.Gen < s.floor {
		peer.need = peer.part == nil || peer.part.delta
		return
	}
	if m.Gen > peer.held || peer.need {
		peer.progress(now)
	}
	peer.held, peer.sent = m.Gen, max(peer.sent, m.Gen)
	peer.marks = slices.DeleteFunc(peer.marks, func(k mark) bool { return k.gen <= m.Gen })
	if peer.part != nil && (peer.part.gen <= m.Gen || !peer.part.delta) {
		peer.part = nil
	}
	peer.need, peer.fails, peer.hold = false, 0, time.Time{}
	s.bury(m.Gen)
	for key, o := range peer.orphans {
		if it, ok := s.items[key]; ok && it.gen <= m.Gen {
			s.decided(key, o)
		}
	}
}

// decided forgets an orphan that the peer has adopted or deleted on our word.
func (s *Source) decided(key string, o wire.HeldItem) {
	s.peer.orphanSum = s.peer.orphanSum.sub(sumOf(key, o.Value))
	delete(s.peer.orphans, key)
}

// contradicts reports whether the answer's digest is not the one this set had at that generation.
func (s *Source) contradicts(m *wire.SetAck) bool {
	if m.Gen == s.gen {
		return m.Digest != s.sum.digest()
	}
	for _, k := range s.peer.marks {
		if k.gen == m.Gen {
			return k.digest != m.Digest
		}
	}
	if t := s.peer.part; t != nil && t.gen == m.Gen {
		return t.digest != m.Digest
	}
	return false
}

// bury drops the tombstones that the peer has seen. Their records go with the next change of the set: a start before that drops them
// again, when the peer says what it holds, and a deletion need not wait for the disk once more.
func (s *Source) bury(upTo skerry.Generation) {
	for key, gen := range s.tombs {
		if gen <= upTo {
			delete(s.tombs, key)
			if o, ok := s.peer.orphans[key]; ok {
				s.decided(key, o)
			}
			s.floor = max(s.floor, gen)
			s.dirty.note(key)
		}
	}
}

// rolledBack begins a new incarnation above whatever the peer has seen.
func (s *Source) rolledBack(now time.Time, inc skerry.Incarnation, peer skerry.Generation) {
	if peer > s.gen && peer < 1<<62 { // a peer's absurd number must not exhaust ours
		s.gen = peer
	}
	s.begin(nextIncarnation(now, s.inc, inc))
}

func (p *peerState) progress(now time.Time) {
	p.tries, p.gapped, p.lastSend = 0, false, now
}

func (s *Source) handleWant(now time.Time, m *wire.SetWant) {
	peer := &s.peer
	switch m.Reason {
	case wire.WantRetired:
		if m.Of == s.inc {
			s.rolledBack(now, m.Incarnation, m.Gen)
		}
	case wire.WantGap:
		if m.Of != s.inc || peer.gapped {
			return
		}
		peer.gapped = true
		if peer.part != nil {
			peer.part.next, peer.part.acked = 0, 0
			if peer.part.delta {
				peer.part = nil
			}
		}
		if m.Incarnation == s.inc && m.Gen >= max(peer.held, s.floor) && m.Gen <= s.gen {
			peer.sent, peer.marks = m.Gen, nil
		}
	case wire.WantSnapshot:
		if m.Of != s.inc || peer.need && peer.part == nil {
			return
		}
		peer.part, peer.marks, peer.need = nil, nil, true
		peer.hold = now.Add(backoff(s.opt, peer.fails) - s.opt.Resend)
		peer.fails++
		if m.Incarnation == s.inc {
			s.rolledBack(now, m.Incarnation, m.Gen) // the peer holds this incarnation, and yet the digest differed
		}
	}
}

func (s *Source) handleHeld(m *wire.SetHeld) {
	peer := &s.peer
	h := peer.heldPart
	if h == nil || h.digest != m.Digest {
		if m.Index != 0 {
			return
		}
		h = &heldPart{digest: m.Digest}
		peer.heldPart = h
	}
	if m.Index != h.next {
		return
	}
	h.next++
	for _, it := range m.Items {
		h.items = append(h.items, it)
		h.sum = h.sum.add(sumOf(it.Key, it.Value))
		h.size += kept(it.Key, it.Value) + len(it.Incarnation)
	}
	if h.size > s.opt.MaxSet {
		peer.heldPart = nil
		return
	}
	if !m.Last {
		if h.next%uint32(s.opt.Window) == 0 {
			peer.heldAsked = time.Time{} // ask for the rest at once
		}
		return
	}
	peer.heldPart = nil
	if h.sum.digest() != m.Digest {
		return
	}
	peer.orphans = make(map[string]wire.HeldItem, len(h.items))
	for _, it := range h.items {
		peer.orphans[it.Key] = it
	}
	peer.orphanSum, peer.orphanWant = h.sum, m.Digest
}

// Next gives the frames to send now: what the window allows, and what was sent before and not answered in time.
func (s *Source) Next(now time.Time) []wire.Message {
	peer := &s.peer
	if !peer.connected {
		return nil
	}
	if peer.waiting() && now.Sub(peer.lastSend) >= backoff(s.opt, peer.tries) {
		peer.tries, peer.gapped = peer.tries+1, false
		peer.sent, peer.marks = peer.held, nil
		if peer.part != nil {
			peer.part.next = peer.part.acked
		}
	}
	var out []wire.Message
	if peer.need && (peer.part == nil || peer.part.delta) && !now.Before(peer.hold) {
		peer.part, peer.marks = s.snapshot(), nil
	}
	if peer.part == nil && !peer.need && peer.sent < s.gen && len(peer.marks) < s.opt.Window {
		items := s.since(peer.sent)
		if parts := split(items, s.opt.Chunk); len(parts) > 1 {
			if len(peer.marks) == 0 {
				peer.part = &transfer{base: peer.sent, gen: s.gen, digest: s.Digest(), delta: true, parts: parts}
			}
		} else {
			d := &wire.SetDelta{Set: s.set, Incarnation: s.inc, Base: peer.sent, Gen: s.gen, Digest: s.Digest(), Items: items}
			peer.sent = s.gen
			peer.marks = append(peer.marks, mark{d.Gen, d.Digest})
			out = append(out, d)
		}
	}
	if t := peer.part; t != nil {
		for t.next < uint32(len(t.parts)) && t.next-t.acked < uint32(s.opt.Window) {
			out = append(out, &wire.SetChunk{
				Set: s.set, Incarnation: s.inc, Base: t.base, Gen: t.gen, Digest: t.digest, Items: t.parts[t.next],
				Index: t.next, Last: t.next == uint32(len(t.parts))-1, Delta: t.delta,
			})
			t.next++
		}
	}
	if len(out) > 0 {
		peer.lastSend = now
	}
	if peer.confirmed && peer.orphanSum.digest() != peer.orphanWant && (peer.heldAsked.IsZero() || now.Sub(peer.heldAsked) >= s.opt.Resend) {
		want := &wire.SetHeldWant{Set: s.set, Digest: peer.orphanWant}
		if peer.heldPart != nil && peer.heldPart.digest == peer.orphanWant {
			want.Next = peer.heldPart.next
		}
		peer.heldAsked = now
		out = append(out, want)
	}
	return out
}

// snapshot captures the whole set, tombstones too, in key order.
func (s *Source) snapshot() *transfer {
	items := make([]wire.SetItem, 0, len(s.items)+len(s.tombs))
	for key, it := range s.items {
		items = append(items, wire.SetItem{Key: key, Value: it.value.bytes(), Gen: it.gen})
	}
	for key, gen := range s.tombs {
		items = append(items, wire.SetItem{Key: key, Gen: gen, Deleted: true})
	}
	slices.SortFunc(items, func(a, b wire.SetItem) int { return cmp.Compare(a.Key, b.Key) })
	return &transfer{gen: s.gen, digest: s.Digest(), parts: split(items, s.opt.Chunk)}
}

// split makes parts of at most size bytes, at least one part, each but an empty set's with at least one item.
func split(items []wire.SetItem, size int) [][]wire.SetItem {
	var parts [][]wire.SetItem
	start, n := 0, 0
	for i, it := range items {
		if n > 0 && n+itemSize(it) > size {
			parts = append(parts, items[start:i:i])
			start, n = i, 0
		}
		n += itemSize(it)
	}
	return append(parts, items[start:])
}
