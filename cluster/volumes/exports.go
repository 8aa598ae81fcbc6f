package volumes

import (
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry/spec"
)

// Object is a snapshot that was sent away, and is there.
type Object struct {
	ID  spec.SnapshotID `json:"id"`
	To  string          `json:"to"`  // the name of the place
	Key string          `json:"key"` // there
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

// DueExports gives what is to be sent away now, of each volume the oldest snapshot that is missing of those that are to stay there. Due has
// been asked before.
func (c *Claims) DueExports(now time.Time) (due []Export) {
	wall := now.Round(0)
	for _, v := range c.sorted() {
		k := c.all[v]
		r := k.Routine
		if r == nil || r.gone || r.To == "" || r.Export.Again.After(wall) {
			continue
		}
		list := c.kept(v, k.Org)
		if slices.ContainsFunc(list, func(s spec.Snapshot) bool { return c.sending[s.ID] }) {
			continue
		}
		list = list[max(0, len(list)-max(1, r.Far)):]
		i := slices.IndexFunc(list, func(s spec.Snapshot) bool { return s.Exported == "" })
		if i < 0 {
			continue
		}
		old := r.Export.Objects
		e := Export{Snapshot: list[i], To: r.To, Old: old[:max(0, len(old)+1-max(1, r.Far))]}
		if r.Recipients != "" {
			e.Recipients = strings.Split(r.Recipients, " ")
		}
		e.Old = slices.DeleteFunc(slices.Clone(e.Old), func(o Object) bool { return o.ID == list[i].ID }) // it was there before
		due = append(due, e)
	}
	return due
}

// kept lists the snapshots that a schedule of an organisation has taken of volumes, the oldest first.
func (c *Claims) kept(v spec.VolumeClaim, org string) (list []spec.Snapshot) {
	for _, s := range c.snaps {
		if s.Scheduled && s.State == spec.SnapshotReady && s.Claim() == v && s.Org == org {
			list = append(list, *s)
		}
	}
	spec.SortSnapshots(list)
	return list
}

// Send notes that a snapshot is being sent away: until Sent or Unsent it stays. Between two lives nobody sends anything, and the next one
// begins anew, with the same object.
func (c *Claims) Send(id spec.SnapshotID) { c.sending[id] = true }

// Sending counts the snapshots that are being sent away, and reports whether this one is.
func (c *Claims) Sending(id spec.SnapshotID) (n int, this bool) { return len(c.sending), c.sending[id] }

// Sent notes that a snapshot is there as an object, in a place that a text names, and which older objects are no longer.
// left says why others of these still are; empty: none is.
func (c *Claims) Sent(v spec.VolumeClaim, at time.Time, o Object, where string, gone []Object, now time.Time, left string) {
	delete(c.sending, o.ID)
	c.Look()
	if s := c.snaps[o.ID]; s != nil {
		next := *s
		next.Exported = where
		c.PutSnapshot(next)
	}
	k := c.all[v]
	if k == nil || k.Routine == nil {
		return
	}
	e := &k.Routine.Export
	e.Objects = append(slices.DeleteFunc(e.Objects, func(x Object) bool { return x == o || slices.Contains(gone, x) }), o)
	e.Last, e.Tries, e.Again, e.Failed, e.Reason = at, 0, time.Time{}, time.Time{}, left
	if left != "" {
		e.Failed = now.Round(0)
	}
	c.note(k)
}

// Unsent notes that a snapshot was not sent away, and why. It reports whether that is to be said: it was sent or is
// tried for the first time.
func (c *Claims) Unsent(v spec.VolumeClaim, id spec.SnapshotID, now time.Time, reason string) (first bool) {
	delete(c.sending, id)
	c.Look()
	k := c.all[v]
	if k == nil || k.Routine == nil {
		return true
	}
	e, wall := &k.Routine.Export, now.Round(0)
	pause := backoff(e.Tries)
	e.Tries++
	e.Failed, e.Reason, e.Again = wall, reason, wall.Add(pause)
	c.note(k)
	return e.Tries == 1
}

// backoff is the pause before something that has failed so often before is tried again.
func backoff(tries int) time.Duration {
	if tries < 6 {
		return min(firstPause<<tries, longestPause)
	}
	return longestPause
}
