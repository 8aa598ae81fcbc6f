package uplink

import (
	"time"

	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/wire"
)

// reportPause is the least time between two reports: an aggregate looks at every worker, and a burst of placements changes it with each.
const reportPause = 100 * time.Millisecond

// Uplink is a site's end of the link to its root: since when the root is away, and when it gets the next report.
type Uplink struct {
	root    *members.Parent // whether it is connected
	every   time.Duration   // at least this often it gets a report
	started time.Time
	heard   time.Time // when the root was heard last, while it is not connected; zero: not since the start
	sent    time.Time // the last report,
	seq     uint64    // and its number
	changed bool      // something of the next one
}

// New gives a site that has not heard its root.
func New(root *members.Parent, every time.Duration) *Uplink {
	return &Uplink{root: root, every: every}
}

// Start begins a life of the site.
func (u *Uplink) Start(now time.Time) { u.started = now }

// Touch notes that the next report differs from the last.
func (u *Uplink) Touch() { u.changed = true }

// Lost takes that the connection to the root is about to end, and when it was heard last (the zero time: now).
func (u *Uplink) Lost(now, heard time.Time) {
	if !u.root.Connected {
		return
	}
	if u.heard = heard; heard.IsZero() || heard.After(now) {
		u.heard = now
	}
}

// Away is since when the site has been without its root, or the zero time while it is there. A site that has not heard it since it started
// does not know that: heard is false, and since is its start.
func (u *Uplink) Away() (since time.Time, heard bool) {
	switch {
	case u.root.Connected:
		return time.Time{}, true
	case u.heard.IsZero():
		return u.started, false
	}
	return u.heard, true
}

// Due is when the next report is, or the zero time while the root is away.
func (u *Uplink) Due() time.Time {
	switch {
	case !u.root.Connected:
		return time.Time{}
	case u.changed:
		return u.sent.Add(min(reportPause, u.every))
	}
	return u.sent.Add(u.every)
}

// Ready reports whether it is time for a report.
func (u *Uplink) Ready(now time.Time) bool {
	return u.root.Connected && !now.Before(u.Due())
}

// Number makes a report the next one.
func (u *Uplink) Number(now time.Time, r *wire.ClusterReport) {
	u.seq++
	r.Seq = u.seq
	u.sent, u.changed = now, false
}
