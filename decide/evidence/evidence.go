// Package evidence keeps how far a member of a tier is to be believed: a worker by its cluster, a cluster by the root. It
// owns the sums of what spoke for and against a member, the rank that follows from them and the quarantine; what speaks
// for or against is found out by who imports it. It is pure: no clock, no disk, no socket. The cores of root and cluster
// import it.
package evidence

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Kind is what a member is judged by. Each kind is counted apart: who is right about its load may lie about its place.
type Kind string

// Kinds.
const (
	Capacity Kind = "capacity" // it claims to have grown beyond what can be
	Use      Kind = "use"      // it reports what no machine can use
	Starts   Kind = "starts"   // it accepts and does not run, what others run at once
	Place    Kind = "place"    // its coordinate does not agree with the round trips that others measured
	Replays  Kind = "replays"  // it says again what it said before
	Tokens   Kind = "tokens"   // it speaks for instances that it was never given
	Counts   Kind = "counts"   // its numbers contradict each other, or what it said of single instances
	Refusals Kind = "refusals" // it offers room and then refuses; lowers the rank, and is no reason for quarantine
)

const (
	// Apart is the least time between two marks of a kind, and how long a contradiction must last to make one: what is over
	// after a moment was a race, and many of them at once are one.
	Apart = time.Minute
	// burst is how many odd messages within Apart make a mark.
	burst = 3
	// enough marks of one kind, less what is forgotten, are a reason for quarantine when they are most of what is known.
	enough = 3
	// most bounds what speaks for a member: else one that was honest for a day could lie for hours.
	most = 4
	// mostAgainst bounds what speaks against it, and with that how long a quarantine lasts.
	mostAgainst = 8
	// halfLife is after how long half of all is forgotten. It doubles with each quarantine, up to longest times.
	halfLife = 30 * time.Minute
	longest  = 5
	// released is how little must be left against a member in quarantine. It is well below enough, so that nobody flaps.
	released = 1
	// prior is the weight of what is not known of a member: it is believed.
	prior = 2
	// suspicious: a member whose chance to be right is below this one may be put in quarantine.
	suspicious = 0.5
	// leastMark is what of a mark is forgotten altogether.
	leastMark = 0.05
)

// Book is what speaks for and against one member. The zero value is a member of whom nothing is known.
type Book struct {
	Entries map[Kind]*Entry `json:"entries,omitempty"`
	At      time.Time       `json:"at,omitzero"` // up to when all is forgotten as far as it is
	// Quarantine is why the member gets nothing new, or empty. Since is when that began, Times how often it has.
	Quarantine string    `json:"quarantine,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Times      int       `json:"times,omitempty"`
}

// Entry is what speaks for and against a member in one respect.
type Entry struct {
	For     float64   `json:"for,omitempty"`
	Against float64   `json:"against,omitempty"`
	Last    time.Time `json:"last,omitzero"` // of marks
	Text    string    `json:"text,omitempty"`
	Marks   int       `json:"marks,omitempty"` // ever

	good  time.Time // last one that counted
	wrong time.Time // a contradiction began; zero: there is none
	first time.Time // of the burst under way
	odd   int       // messages in it
}

// chance is the expectation of the beta distribution over how often a member is right (Jøsang and Ismail, The Beta
// Reputation System, 2002, section 2), with a base rate of 1.
func (e *Entry) chance() float64 { return (e.For + prior) / (e.For + e.Against + prior) }

// half is after how long half of all is forgotten (the forgetting factor of the same paper, section 5, in continuous time).
func (b *Book) half() time.Duration { return halfLife << min(max(b.Times-1, 0), longest) }

// forget brings a book up to now. A clock that was set back forgets nothing.
func (b *Book) forget(now time.Time) {
	if d := now.Sub(b.At); !b.At.IsZero() && d > 0 {
		left := math.Exp2(-d.Seconds() / b.half().Seconds())
		for k, e := range b.Entries {
			if !near(now, e.first) {
				e.odd = 0
			}
			e.For, e.Against = e.For*left, e.Against*left
			if e.Against < leastMark && e.wrong.IsZero() && e.odd == 0 && e.For < leastMark {
				delete(b.Entries, k)
			}
		}
	}
	b.At = now
}

func (b *Book) entry(k Kind) *Entry {
	if b.Entries == nil {
		b.Entries = map[Kind]*Entry{}
	}
	e := b.Entries[k]
	if e == nil {
		e = &Entry{}
		b.Entries[k] = e
	}
	return e
}

// near reports whether less than Apart lies between; times after now are of a clock that was set back, and count as none.
func near(now, then time.Time) bool {
	return !then.IsZero() && !then.After(now) && now.Sub(then) < Apart
}

// Mark counts something that speaks against the member, unless another of its kind was counted just now. It reports
// whether it was.
func (b *Book) Mark(now time.Time, k Kind, text string) bool {
	b.forget(now)
	e := b.entry(k)
	if near(now, e.Last) {
		return false
	}
	e.Against, e.Last, e.Text = min(e.Against+1, mostAgainst), now, text
	e.Marks++
	return true
}

// Good counts something that speaks for the member.
func (b *Book) Good(now time.Time, k Kind) {
	b.forget(now)
	e := b.entry(k)
	if !near(now, e.good) {
		e.For, e.good = min(e.For+1, most), now
	}
}

// Check takes the outcome of a check that is made again and again. A contradiction counts once it has lasted for Apart
// without a check that found none, and again for each further one. It reports whether it was counted now.
func (b *Book) Check(now time.Time, k Kind, wrong bool, text string) bool {
	e := b.Entries[k]
	if !wrong {
		if e != nil {
			e.wrong = time.Time{}
		}
		return false
	}
	e = b.entry(k)
	if e.wrong.IsZero() || e.wrong.After(now) {
		e.wrong = now
		return false
	}
	if now.Sub(e.wrong) < Apart {
		return false
	}
	e.wrong = now
	return b.Mark(now, k, text)
}

// Odd takes a message that an honest member hardly ever sends. Several within Apart count once. It reports whether that
// was counted now.
func (b *Book) Odd(now time.Time, k Kind, text string) bool {
	e := b.entry(k)
	if !near(now, e.first) {
		e.first, e.odd = now, 0
	}
	if e.odd++; e.odd < burst {
		return false
	}
	e.odd, e.first = 0, time.Time{}
	return b.Mark(now, k, text)
}

// Judge puts the member in quarantine, or lets it out, where it is time. It reports whether that changed something.
func (b *Book) Judge(now time.Time) (changed bool) {
	b.forget(now)
	if b.Quarantine != "" {
		for k, e := range b.Entries {
			if k != Refusals && e.Against >= released {
				return false
			}
		}
		b.Quarantine, b.Since = "", time.Time{}
		return true
	}
	for _, k := range b.kinds() {
		if e := b.Entries[k]; k != Refusals && e.Against > enough-1.0/2 && e.chance() < suspicious {
			b.Quarantine, b.Since = fmt.Sprintf("%s (%d times)", e.Text, e.Marks), now
			b.Times++
			return true
		}
	}
	return false
}

// Due is when Judge may have something to do by itself, or the zero time.
func (b *Book) Due() time.Time {
	if b.Quarantine == "" {
		return time.Time{}
	}
	worst := 0.0
	for k, e := range b.Entries {
		if k != Refusals {
			worst = max(worst, e.Against)
		}
	}
	if worst < released {
		return b.At
	}
	// A second more, so that rounding does not have it looked at in vain.
	return b.At.Add(time.Duration(math.Log2(worst/released)*float64(b.half())) + time.Second)
}

// Rank is by how much the member's score counts, above 0 and at most 1. In quarantine it gets nothing new at all.
func (b *Book) Rank() float64 {
	r := 1.0
	if b != nil {
		for _, e := range b.Entries {
			r = min(r, e.chance())
		}
	}
	return r
}

// Suspected reports whether there is a mark of a kind that is not yet half forgotten.
func (b *Book) Suspected(k Kind) bool {
	return b != nil && b.Entries[k] != nil && b.Entries[k].Against > 1.0/2
}

// Clean reports whether nothing speaks against the member.
func (b *Book) Clean() bool {
	if b == nil {
		return true
	}
	for _, e := range b.Entries {
		if e.Against >= leastMark {
			return false
		}
	}
	return b.Quarantine == ""
}

// Text says in a line what speaks against the member, or nothing.
func (b *Book) Text() string {
	if b == nil {
		return ""
	}
	worst := Kind("")
	for _, k := range b.kinds() {
		if e := b.Entries[k]; e.Against >= leastMark && (worst == "" || e.chance() < b.Entries[worst].chance()) {
			worst = k
		}
	}
	if worst == "" {
		return ""
	}
	return fmt.Sprintf("doubted: %s", b.Entries[worst].Text)
}

// Marked lists the kinds in which something speaks against the member, the worst first.
func (b *Book) Marked() []Kind {
	if b.Clean() {
		return nil
	}
	return slices.DeleteFunc(b.kinds(), func(k Kind) bool { return b.Entries[k].Against < leastMark })
}

// kinds lists the kinds with an entry, the worst first.
func (b *Book) kinds() []Kind {
	return slices.SortedFunc(maps.Keys(b.Entries), func(x, y Kind) int {
		return cmp.Or(cmp.Compare(b.Entries[x].chance(), b.Entries[y].chance()), cmp.Compare(x, y))
	})
}

// Vouch counts something in a member's favour that was not noted when it happened.
func (b *Book) Vouch(k Kind) {
	e := b.entry(k)
	e.For = min(e.For+1, most)
}
