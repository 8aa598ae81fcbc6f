package members

import "maps"

// Reasons for which something that came from a peer had no effect, for counters. Those of sets are the words of
// reconcile.Outcome: stale, gap, digest, retired, incarnation, too-large, malformed.
const (
	IgnoredUnexpected = "unexpected"       // a message that this side is never sent
	IgnoredSet        = "unknown-set"      // a set that is not known here, perhaps to a later version
	IgnoredReport     = "unknown-report"   // the same of a report
	IgnoredOld        = "stale-report"     // a report from before the last one
	IgnoredAnswer     = "stale-answer"     // an answer about what is no more
	IgnoredEvents     = "malformed-events" // numbers that make no sense
	IgnoredRepeat     = "repeated-events"  // events that are kept already
	IgnoredUnreadable = "unreadable"       // an item, report or event that does not parse
	IgnoredUnknown    = "unknown-instance"
	IgnoredToken      = "lower-token" // about a placement that was overtaken
)

// Ignored counts what was ignored, by reason. The zero value is ready.
type Ignored struct{ n map[string]int }

// Count adds one; an empty reason counts nothing.
func (i *Ignored) Count(reason string) {
	if reason == "" {
		return
	}
	if i.n == nil {
		i.n = map[string]int{}
	}
	i.n[reason]++
}

// All gives a copy of the counters.
func (i *Ignored) All() map[string]int { return maps.Clone(i.n) }
