package lease

import (
	"cmp"
	"slices"
	"time"

	"skerry.dev/skerry/wire"
)

// list is who was named as in-sync replica, under a number.
type list struct {
	seq    uint64
	inSync []wire.LeaseCandidate
}

// promised is the last that was heard of a voter.
type promised struct {
	until time.Time
	seq   uint64
}

// follower is a successor to which the store goes.
type follower struct {
	candidate wire.LeaseCandidate
	acked     int64     // everything up to this revision is on its disk
	heard     time.Time // of an acknowledgement
	since     time.Time // it has not acknowledged something that waits for it since then; zero: it has
}

// holder is the part of a candidate that leads. lists[0] is the oldest by which a successor could still be elected.
type holder struct {
	term    uint64
	born    time.Time
	founded bool
	// known: enough voters have heard of this term. Before that nobody is named as in-sync replica, for nobody could vote for this candidate
	// again if it ended now.
	known   bool
	closing bool // the site has no voters left: no in-sync replicas either
	lists   []list
	// councils are the sets of voters that a successor may go by: the last is the present one, and those before are until
	// every in-sync replica has it.
	councils  [][]string
	settlesAt int64 // the revision that holds the last council
	seen      map[string]promised
	followers map[string]*follower
	local     int64 // the newest revision on our own disk
	released  int64 // acknowledged to whoever wrote it
	due       time.Time
	changed   bool // leases must go out now
}

func newHolder(now time.Time, term uint64, voters []string, revision int64) *holder {
	return &holder{term: term, born: now, lists: []list{{seq: 1}}, councils: [][]string{voters}, seen: map[string]promised{}, followers: map[string]*follower{},
		local: revision, released: revision, changed: true}
}

func (h *holder) now() list { return h.lists[len(h.lists)-1] }

// lends reports whether voters are to hear leases.
func (h *holder) lends() bool { return !h.free() || !h.known && len(h.followers) > 0 }

// enough reports whether so many voters of every council pass that no majority is without one of them.
func (h *holder) enough(pass func(p promised) bool) bool {
	for _, c := range h.councils {
		n := 0
		for _, w := range c {
			if p, ok := h.seen[w]; ok && pass(p) {
				n++
			}
		}
		if n < Blocking(len(c)) {
			return false
		}
	}
	return true
}

// free reports whether nobody can be elected, so that no lease is needed.
func (h *holder) free() bool {
	for _, l := range h.lists {
		if len(l.inSync) > 0 {
			return false
		}
	}
	return h.founded
}

func (h *holder) holds(now time.Time) bool {
	return h.free() || h.enough(func(p promised) bool { return now.Before(p.until) })
}

// advance takes that voters have written something down.
func (h *holder) advance() {
	for i := len(h.lists) - 1; i >= 0; i-- {
		seq := h.lists[i].seq
		if h.enough(func(p promised) bool { return p.seq >= seq }) {
			h.lists = h.lists[i:]
			h.founded, h.known = true, true
			break
		}
	}
	h.release()
}

// obliged lists the successors that must have a write before it is acknowledged.
func (h *holder) obliged() []string {
	var out []string
	for _, l := range h.lists {
		for _, s := range l.inSync {
			if !slices.Contains(out, s.Name) {
				out = append(out, s.Name)
			}
		}
	}
	return out
}

func (h *holder) release() {
	if !h.founded {
		return
	}
	upTo := h.local
	for _, name := range h.obliged() {
		f := h.followers[name]
		if f == nil {
			return // until voters know that it is no in-sync replica any more, or it is back
		}
		upTo = min(upTo, f.acked)
	}
	h.released = max(h.released, upTo)
	if h.released >= h.settlesAt && len(h.councils) > 1 {
		h.councils = h.councils[len(h.councils)-1:]
	}
}

// name makes a new list of in-sync replicas.
func (h *holder) name(inSync []wire.LeaseCandidate) {
	h.lists = append(h.lists, list{h.now().seq + 1, inSync})
	h.changed = true
	h.advance() // a site without voters has nobody to ask
}

// review drops in-sync replicas that are gone or lag, and adds followers that have everything. rank orders them.
func (h *holder) review(now time.Time, patience time.Duration, rank map[string]int) {
	have := h.now().inSync
	var inSync []wire.LeaseCandidate
	for _, f := range h.followers {
		behind := f.acked < h.local
		switch {
		case !behind:
			f.since = time.Time{}
		case f.since.IsZero():
			f.since = now
		}
		lags := behind && now.Sub(f.since) >= patience || now.Sub(f.heard) >= patience
		was := named(have, f.candidate.Name)
		if was && !lags || !was && !lags && f.acked >= h.released && f.acked >= h.settlesAt {
			inSync = append(inSync, f.candidate)
		}
	}
	if !h.known || h.closing || len(h.councils[len(h.councils)-1]) == 0 {
		inSync = nil
	}
	slices.SortFunc(inSync, func(a, b wire.LeaseCandidate) int {
		return cmp.Or(cmp.Compare(rank[a.Name], rank[b.Name]), cmp.Compare(a.Name, b.Name))
	})
	inSync = inSync[:min(len(inSync), MaxInSync)]
	if !slices.Equal(inSync, have) {
		h.name(inSync)
	}
}

// council takes that the site's voters are others, as written at a revision. While somebody may be elected, only one at a time
// may come or go, and only when the last change is settled: majorities of the two sets then share a voter.
func (h *holder) council(voters []string, revision int64) {
	if h.free() {
		h.councils, h.settlesAt = [][]string{voters}, revision
		return
	}
	h.councils = append(h.councils, voters)
	h.settlesAt = revision
}

func (h *holder) lease(now time.Time, me wire.LeaseCandidate, ttl time.Duration) *wire.Lease {
	l := h.now()
	return &wire.Lease{Term: h.term, Holder: me.Name, At: me.Addr, Seq: l.seq, InSync: slices.Clone(l.inSync), TTL: uint32(ttl / time.Millisecond),
		Stamp: uint64(now.Sub(h.born))}
}

// promise takes a voter's answer. Time counts from when the lease was sent, and a tenth less than the voter's own, for clocks
// that run at different speeds.
func (h *holder) promise(worker string, p *wire.Promise, now time.Time, ttl time.Duration) {
	sent := h.born.Add(time.Duration(p.Stamp))
	if sent.After(now) || p.Seq > h.now().seq {
		return // no answer to anything of ours
	}
	was := h.seen[worker]
	if until := sent.Add(ttl - ttl/10); until.After(was.until) {
		was.until = until
	}
	was.seq = max(was.seq, p.Seq)
	h.seen[worker] = was
	h.advance()
}
