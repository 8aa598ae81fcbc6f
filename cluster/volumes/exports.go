package volumes

import (
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Object is a snapshot that was sent away, and is there.
type Object struct {
	ID  spec.SnapshotID `json:"id"`
	To  string          `json:"to"`  // the name of the place
	Key string          `json:"key"` // there
	// Where is its URL, by which it shows that the place of the name is another one now. At is the moment of the snapshot.
	Where string    `json:"where,omitempty"`
	At    time.Time `json:"at,omitzero"`
}

// exports is what has come of sending the snapshots of a schedule away.
type exports struct {
	Objects []Object  `json:"objects,omitempty"` // the oldest first
	Last    time.Time `json:"last,omitzero"`     // the moment of the snapshot that was sent last
	Tries   int       `json:"tries,omitempty"`   // without success
	Again   time.Time `json:"again,omitzero"`
	Failed  time.Time `json:"failed,omitzero"`
	Reason  string    `json:"reason,omitempty"`
}

// Export is a snapshot that is to be sent away.
type Export struct {
	Snapshot   spec.Snapshot
	To         string
	Recipients []string
	Old        []Object // that are too many once it is there
}

// mostLeft is how many objects are remembered besides those that are to stay, in a place that lets nothing be deleted.
const mostLeft = 100

// DueExports gives what is to be sent away now, of each volume the oldest snapshot that is missing of those that are to stay there, or the
// next one if that failed: one whose worker is away holds up no other. A worker sends one at a time: one that never ends leaves room to
// others. Due has been asked before.
func (c *Claims) DueExports(now time.Time) (due []Export) {
	wall := now.Round(0)
	for _, volume := range c.sorted() {
		kept := c.all[volume]
		r := kept.Routine
		if r == nil || r.gone || r.To == "" || r.Export.Again.After(wall) {
			continue
		}
		list := c.kept(volume, kept.Org, aheadOf(wall))
		if slices.ContainsFunc(list, func(s spec.Snapshot) bool { return c.sending[s.ID] }) {
			continue
		}
		list = list[max(0, len(list)-max(1, r.Far)):]
		list = slices.DeleteFunc(list, func(s spec.Snapshot) bool { return s.Exported != "" })
		if len(list) == 0 {
			continue
		}
		e := Export{Snapshot: list[r.Export.Tries%len(list)], To: r.To}
		old := slices.DeleteFunc(slices.Clone(r.Export.Objects), func(o Object) bool { return o.ID == e.Snapshot.ID }) // it was there before
		e.Old = old[:max(0, len(old)+1-max(1, r.Far))]
		if r.Recipients != "" {
			e.Recipients = strings.Split(r.Recipients, " ")
		}
		due = append(due, e)
	}
	slices.SortStableFunc(due, func(a, b Export) int { return a.Snapshot.At.Compare(b.Snapshot.At) }) // who waits longest
	sends := map[skerry.WorkerName]bool{}
	for id := range c.sending {
		if snap := c.snaps[id]; snap != nil {
			sends[snap.Worker] = true
		}
	}
	return slices.DeleteFunc(due, func(e Export) bool {
		waits := sends[e.Snapshot.Worker]
		sends[e.Snapshot.Worker] = true
		return waits
	})
}

// aheadOf is from when on a moment is one of a clock that was set since, and not merely of one that goes a little fast.
func aheadOf(now time.Time) time.Time { return now.Add(longestPause) }

// byAge orders moments, the oldest first. Those after a limit are of a clock that was set since, and count as the oldest.
func byAge(a, b, limit time.Time) int {
	if x, y := a.After(limit), b.After(limit); x != y {
		if x {
			return -1
		}
		return 1
	}
	return a.Compare(b)
}

// kept lists the snapshots that a schedule of an organisation has taken of volumes, the oldest first, by byAge.
func (c *Claims) kept(v spec.VolumeClaim, org string, limit time.Time) (list []spec.Snapshot) {
	for _, s := range c.snaps {
		if s.Scheduled && s.State == spec.SnapshotReady && s.Claim() == v && s.Org == org {
			list = append(list, *s)
		}
	}
	spec.SortSnapshots(list)
	slices.SortStableFunc(list, func(a, b spec.Snapshot) int { return byAge(a.At, b.At, limit) })
	return list
}

// Send notes that a snapshot is being sent away: until Sent or Unsent it stays. Between two lives nobody sends anything, and the next one
// begins anew, with the same object.
func (c *Claims) Send(id spec.SnapshotID) { c.sending[id] = true }

// Sending counts the snapshots that are being sent away, and reports whether this one is.
func (c *Claims) Sending(id spec.SnapshotID) (n int, this bool) { return len(c.sending), c.sending[id] }

// Sent notes that a snapshot is there as an object, in a place that a text names, and which older objects are no longer.
// left says why others of these still are; empty: none is. Those of them that are too many to be remembered are forgotten.
func (c *Claims) Sent(snap *spec.Snapshot, object Object, where string, gone []Object, now time.Time, left string) (forgotten []Object) {
	delete(c.sending, object.ID)
	c.Look()
	if snap := c.snaps[object.ID]; snap != nil {
		next := *snap
		next.Exported = where
		c.PutSnapshot(next)
	}
	k := c.followed(snap)
	if k == nil {
		return nil
	}
	object.Where, object.At = where, snap.At
	e, wall := &k.Routine.Export, now.Round(0)
	list := slices.DeleteFunc(e.Objects, func(x Object) bool { return x.To == object.To && x.Key == object.Key || slices.Contains(gone, x) })
	list = append(list, object)
	slices.SortStableFunc(list, func(a, b Object) int { return byAge(a.At, b.At, aheadOf(wall)) })
	n := max(0, len(list)-mostLeft-max(1, k.Routine.Far))
	forgotten, e.Objects = list[:n:n], slices.Clone(list[n:])
	e.Last, e.Tries, e.Again, e.Failed, e.Reason = snap.At, 0, time.Time{}, time.Time{}, left
	if left != "" {
		e.Failed = wall
	}
	c.note(k)
	return forgotten
}

// Unsent notes that a snapshot was not sent away, and why. It reports whether that is to be said: it was sent or is
// tried for the first time.
func (c *Claims) Unsent(s *spec.Snapshot, now time.Time, reason string) (first bool) {
	delete(c.sending, s.ID)
	c.Look()
	k := c.followed(s)
	if k == nil {
		return true
	}
	e, wall := &k.Routine.Export, now.Round(0)
	pause := backoff(e.Tries)
	e.Tries++
	e.Failed, e.Reason, e.Again = wall, reason, wall.Add(pause)
	c.note(k)
	return e.Tries == 1
}

// followed gives the claim whose schedule has taken a snapshot, or nil: another organisation may have the name by now.
func (c *Claims) followed(s *spec.Snapshot) *claim {
	if k := c.all[s.Claim()]; k != nil && k.Routine != nil && k.Org == s.Org {
		return k
	}
	return nil
}

// backoff is the pause before something that has failed so often before is tried again.
func backoff(tries int) time.Duration {
	if tries < 6 {
		return min(firstPause<<tries, longestPause)
	}
	return longestPause
}
