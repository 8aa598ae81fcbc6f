package moves

import (
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry"
)

// Balance is when the site looks for places that have become clearly better than those that instances have, as when a worker has come back.
// It moves one instance at a time, make before break:
//
//	each minute, if nothing else goes on ─► the best gain of all ─► enough? ─► migrate ─► not again for an hour, or two, or four ...
//
// By itself it does so only where its operator wants it; Ask has it done once.
type Balance struct {
	always bool                       // its operator wants it
	at     time.Time                  // of the next look; zero: none
	next   skerry.InstanceID          // where that begins, at a site with many
	busy   map[string]int             // workers of which most processor time is used: in how many looks in a row
	pass   map[skerry.InstanceID]bool // that somebody asked for: what it has moved; nil: none
	ends   time.Time                  // of the pass
	told   int                        // how many moves who asked was told of
}

const (
	balanceEvery = time.Minute
	passEvery    = time.Second
	longestPass  = 30 * time.Minute
	// maxLooked bounds the instances of one look.
	maxLooked = 500
	// settled is how long an instance must have been where it is to be moved.
	settled = 10 * time.Minute
	// balanceCalm is how long an instance that was moved stays; each further move doubles it.
	balanceCalm        = time.Hour
	longestBalanceCalm = 24 * time.Hour
	// busyLooks is in how many looks in a row a worker must have been busy.
	busyLooks = 3
)

// NewBalance gives a site that looks for better places always, or when it is asked.
func NewBalance(always bool) *Balance { return &Balance{always: always} }

// Due is when the next look is, or the zero time.
func (b *Balance) Due() time.Time { return b.at }

// Ask begins a pass, unless one goes on, for somebody who is told of so many moves. It reports whether it did.
func (b *Balance) Ask(now time.Time, told int) bool {
	if b.pass != nil {
		b.told = max(b.told, told+len(b.pass)) // who asks now is told of what it has left
		return false
	}
	b.pass, b.ends, b.at, b.told = map[skerry.InstanceID]bool{}, now.Add(longestPass), now, told
	return true
}

// Begin reports whether it is time for a look, and whether it is one of a pass.
func (b *Balance) Begin(now time.Time) (look, asked bool) {
	if b.at.IsZero() && b.always {
		b.at = now.Add(balanceEvery)
	}
	if b.at.IsZero() || now.Before(b.at) {
		return false, false
	}
	if asked = b.pass != nil; asked {
		b.at = now.Add(passEvery)
	} else {
		b.at = now.Add(balanceEvery)
	}
	return true, asked
}

// Late reports whether a pass has gone on for too long.
func (b *Balance) Late(now time.Time) bool { return b.pass != nil && !now.Before(b.ends) }

// EndPass ends a pass. It gives how many moves somebody was told of, and how many of them were not begun.
func (b *Balance) EndPass(now time.Time) (told, left int) {
	told, left = b.told, max(0, b.told-len(b.pass))
	b.pass, b.at, b.told = nil, time.Time{}, 0
	if b.always {
		b.at = now.Add(balanceEvery)
	}
	return told, left
}

// Count takes which workers are busy, in one more look.
func (b *Balance) Count(busy []string) {
	was := b.busy
	b.busy = map[string]int{}
	for _, name := range busy {
		b.busy[name] = was[name] + 1
	}
}

// Busy reports whether a worker has been busy for long.
func (b *Balance) Busy(worker string) bool { return b.busy[worker] >= busyLooks }

// Moved notes that an instance is moved in a pass, if there is one; Passed reports whether it was.
func (b *Balance) Moved(id skerry.InstanceID) {
	if b.pass != nil {
		b.pass[id] = true
	}
}

// Passed reports whether an instance was moved in this pass.
func (b *Balance) Passed(id skerry.InstanceID) bool { return b.pass[id] }

// Rehearse begins a pass that only looks; what it returns ends it.
func (b *Balance) Rehearse() (end func()) {
	was := b.pass
	b.pass = map[skerry.InstanceID]bool{}
	return func() { b.pass = was }
}

// Best looks at instances, which are sorted by id, until it has looked at so many that one look is enough; the next begins there. try looks
// at one and reports whether it counts.
func (b *Balance) Best(ids []skerry.InstanceID, try func(id skerry.InstanceID, look func() bool)) {
	if i, _ := slices.BinarySearch(ids, b.next); i < len(ids) {
		ids = append(slices.Clone(ids[i:]), ids[:i]...)
	}
	looked, over := 0, false
	for _, id := range ids {
		try(id, func() bool {
			looked++
			over = looked > maxLooked
			return !over
		})
		if over {
			b.next = id
			return
		}
	}
}

// Rebalanced is when an instance was moved to a better place.
type Rebalanced struct {
	Balanced time.Time `json:"balanced,omitzero"`  // last
	Balances int       `json:"balances,omitempty"` // how often, of late
}

// Ripe reports whether an instance that was placed then has been where it is for long enough to be moved by the site itself.
func (r *Rebalanced) Ripe(now, placed time.Time) bool {
	long := func(since time.Time, d time.Duration) bool {
		return now.Sub(since) >= d || since.Sub(now) > d // the clock was set back
	}
	return long(placed, settled) && long(r.Balanced, min(longestBalanceCalm, balanceCalm<<min(max(r.Balances-1, 0), 10)))
}

// Improved notes that it is moved.
func (r *Rebalanced) Improved(now time.Time) {
	if now.Sub(r.Balanced) > 2*longestBalanceCalm {
		r.Balances = 0
	}
	r.Balances++
	r.Balanced = now
}

// Audit reports contradictions.
func (b *Balance) Audit() (faults []string) {
	if b.pass != nil && (b.at.IsZero() || b.ends.IsZero()) {
		faults = append(faults, fmt.Sprintf("instances are moved to better places until %s, and the next look is at %s", b.ends, b.at))
	}
	return faults
}
