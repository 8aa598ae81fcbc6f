package moves

import (
	"maps"
	"slices"
	"time"
)

// Partings are items about other sites that the root has withdrawn, and that hold for FarewellTime: the root withdraws them as soon as it
// sends nobody there any more, which need not be because anything has ended, and requests may be under way.
//
//	withdrawn ─► Begin ─► FarewellTime ─► Over: it holds no more
//	                  └► told again ─► End
//
// Nothing of it is written down: after a start, what the root tells is all there is.
type Partings struct {
	until map[string]time.Time // by key
	due   time.Time            // no later than the first; the zero time where there is none
}

// NewPartings gives a site from which nothing was withdrawn.
func NewPartings() *Partings { return &Partings{until: map[string]time.Time{}} }

// Begin takes that an item was withdrawn.
func (p *Partings) Begin(key string, now time.Time) {
	until := now.Add(FarewellTime)
	if p.until[key] = until; p.due.IsZero() || until.Before(p.due) {
		p.due = until
	}
}

// End takes that an item is told again.
func (p *Partings) End(key string) { delete(p.until, key) }

// Has reports whether an item was withdrawn and still holds.
func (p *Partings) Has(key string) bool { return !p.until[key].IsZero() }

// Over lists the items, by key, that hold no more, and forgets them.
func (p *Partings) Over(now time.Time) (out []string) {
	passed := func(until time.Time) bool { left := until.Sub(now); return left <= 0 || left > FarewellTime } // the clock was set back
	if p.due.IsZero() || !passed(p.due) {
		return nil
	}
	p.due = time.Time{}
	for _, key := range slices.Sorted(maps.Keys(p.until)) {
		if until := p.until[key]; passed(until) {
			delete(p.until, key)
			out = append(out, key)
		} else if p.due.IsZero() || until.Before(p.due) {
			p.due = until
		}
	}
	return out
}

// Due is when Over may list something, or the zero time.
func (p *Partings) Due() time.Time { return p.due }
