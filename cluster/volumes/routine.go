package volumes

import (
	"slices"
	"time"

	"skerry.dev/skerry/decide/crontab"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Routine is how the volumes of a replica are copied on a schedule; the zero value: they are not.
type Routine struct {
	Schedule string `json:"schedule"`
	Keep     int    `json:"keep"`
	// To is the place that the copies are sent to besides, encrypted to Recipients or, without any, to those of the place; Far stay there.
	To         string `json:"to,omitempty"`
	Recipients string `json:"recipients,omitempty"` // with spaces between them
	Far        int    `json:"far,omitempty"`
}

// routine is what a schedule has come to:
//
//	followed ─a time has come─► due ─ Taken ─► followed
//	               ▲             └── Missed ─► due, and tried again later; the next time of the schedule takes its place
//	the service wants no schedule, or is gone: forgotten, and the snapshots stay
type routine struct {
	Routine
	From   time.Time `json:"from,omitzero"`   // up to when the schedule was followed
	Due    time.Time `json:"due,omitzero"`    // the time whose snapshot is not there yet
	Tries  int       `json:"tries,omitempty"` // for it, without success
	Again  time.Time `json:"again,omitzero"`
	Failed time.Time `json:"failed,omitzero"` // the last try, if there was no success since
	Reason string    `json:"reason,omitempty"`
	Export exports   `json:"export,omitzero"`
	times  crontab.Schedule
	next   time.Time
	gone   bool // there is no instance whose service wants it
	since  time.Time
}

// goneFor is how long a schedule stays without an instance: an update may end the old one before there is a new one.
const goneFor = 10 * time.Minute

// Pauses before a snapshot that failed is tried again; each is twice as long as the one before.
const (
	firstPause   = time.Minute
	longestPause = time.Hour
)

// soon is before every time: there is something to look at.
var soon = time.Unix(0, 0)

// follow takes over what the service of volumes wants of a schedule.
func (c *Claims) follow(kept *claim) {
	want := c.site.Routine(kept.VolumeClaim)
	r, none := kept.Routine, want == Routine{}
	switch {
	case r == nil && none, r != nil && r.gone == none && (none || r.Routine == want):
		return
	case none:
		r.gone, c.changed = true, true
	case r == nil:
		kept.Routine = &routine{Routine: want}
		c.note(kept)
	default:
		c.changed = true
		if r.gone, r.since = false, (time.Time{}); r.Routine != want {
			if r.To != want.To || r.Recipients != want.Recipients { // what kept them from going may be mended
				r.Export.Tries, r.Export.Again = 0, time.Time{}
			}
			r.Routine, r.times = want, nil
			c.note(kept)
		}
	}
	c.look = soon
}

// Look has schedules looked at, because something ended that one may have waited for.
func (c *Claims) Look() {
	if !c.look.IsZero() {
		c.look = soon
	}
}

// NextLook is when to ask for what is Due; the zero time: there is no schedule.
func (c *Claims) NextLook() time.Time { return c.look }

// Due gives the volumes of which a snapshot is to be taken now, those first that wait longest. Of several times that were missed only the
// last is made up for. Schedules follow the wall clock, which may jump, and are looked at again in time.
func (c *Claims) Due(now time.Time) (due []spec.VolumeClaim) {
	c.look = time.Time{}
	wall := now.Round(0)
	taking := map[spec.VolumeClaim]bool{}
	for _, s := range c.snaps {
		if s.Scheduled && s.State == spec.SnapshotTaking {
			taking[s.Claim()] = true
		}
	}
	for _, volume := range c.sorted() {
		kept := c.all[volume]
		routine := kept.Routine
		if routine == nil || !routine.read() {
			continue
		}
		if routine.ended(wall) {
			kept.Routine = nil
			c.note(kept)
			continue
		}
		next := routine.next
		if !routine.gone && routine.follow(wall) {
			c.note(kept)
		}
		c.changed = c.changed || !routine.next.Equal(next)
		at := wall.Add(crontab.Check)
		sooner := func(t time.Time) {
			if t.After(wall) && t.Before(at) {
				at = t
			}
		}
		sooner(routine.next)
		sooner(routine.Again)
		sooner(routine.Export.Again)
		if !routine.gone && !routine.Due.IsZero() && !taking[volume] && kept.Ran && !routine.Again.After(wall) {
			due = append(due, volume)
		}
		if at = now.Add(at.Sub(wall)); c.look.IsZero() || at.Before(c.look) {
			c.look = at
		}
	}
	slices.SortStableFunc(due, func(a, b spec.VolumeClaim) int { return c.all[a].Routine.Due.Compare(c.all[b].Routine.Due) })
	return due
}

// read parses the schedule; it was checked when the application was applied, by another version perhaps.
func (r *routine) read() bool {
	if r.times == nil {
		r.times, _ = crontab.Parse(r.Schedule)
	}
	return r.times != nil
}

// ended reports whether nobody has wanted a schedule for long.
func (r *routine) ended(wall time.Time) bool {
	if !r.gone {
		return false
	}
	if r.since.IsZero() || r.since.After(wall) {
		r.since = wall
	}
	return wall.Sub(r.since) >= goneFor
}

// follow follows a schedule up to now, and reports whether there is something to note.
func (r *routine) follow(wall time.Time) (noted bool) {
	if r.From.IsZero() || crontab.SetBack(r.times, r.From, wall) {
		r.From, noted = wall, true
		if r.Due.After(wall) {
			r.Due, r.Tries = time.Time{}, 0
		}
	}
	for _, again := range []*time.Time{&r.Again, &r.Export.Again} {
		if again.After(wall.Add(longestPause)) {
			*again, noted = wall, true
		}
	}
	due, next := crontab.Due(r.times, r.From, wall)
	if r.next = next; !due.IsZero() {
		r.From, r.Due, r.Tries, r.Again, noted = due, due, 0, time.Time{}, true
	}
	return noted
}

// Missed notes that there is no snapshot for a schedule, and why. It reports whether this was the first try for that time.
func (c *Claims) Missed(v spec.VolumeClaim, now time.Time, reason string) (first bool) {
	k := c.all[v]
	c.Look()
	if k == nil || k.Routine == nil {
		return true
	}
	r := k.Routine
	pause := backoff(r.Tries)
	r.Tries++
	wall := now.Round(0)
	r.Failed, r.Reason, r.Again = wall, reason, wall.Add(pause)
	c.note(k)
	return r.Tries == 1
}

// Taken notes that there is a snapshot for a schedule, and gives those of earlier times that are too many now, the oldest first.
// Nothing else makes any too many: however often it fails, the last good ones stay. One of a time to come is of a clock that was set
// since, and counts as the oldest. Those of another organisation, which had the name before, are not of this schedule, and one from which
// volumes are being restored stays until the next time.
func (c *Claims) Taken(v spec.VolumeClaim, id spec.SnapshotID, now time.Time) (gone []spec.Snapshot) {
	c.Look()
	k := c.all[v]
	if k == nil || k.Routine == nil {
		return nil
	}
	r := k.Routine
	r.Due, r.Tries, r.Again, r.Failed, r.Reason = time.Time{}, 0, time.Time{}, time.Time{}, ""
	c.note(k)
	list := slices.DeleteFunc(c.kept(v, k.Org, now), func(s spec.Snapshot) bool { return s.ID == id })
	list = list[:max(0, len(list)+1-max(1, r.Keep))]
	return slices.DeleteFunc(list, func(s spec.Snapshot) bool { return c.Source(s.ID) || c.sending[s.ID] })
}

// Underway counts the snapshots that are being made, by organisation, and those of schedules by worker.
func (c *Claims) Underway() (orgs, workers map[string]int) {
	orgs, workers = map[string]int{}, map[string]int{}
	for _, s := range c.snaps {
		if s.State == spec.SnapshotTaking {
			orgs[s.Org]++
			if s.Scheduled {
				workers[string(s.Worker)]++
			}
		}
	}
	return orgs, workers
}

// Changed reports whether Routines may show something else than when it was asked last.
func (c *Claims) Changed() bool {
	changed := c.changed
	c.changed = false
	return changed
}

// Routines shows the schedules of volumes, and what they have come to.
func (c *Claims) Routines() map[spec.VolumeClaim]*wire.VolumeSchedule {
	out := map[spec.VolumeClaim]*wire.VolumeSchedule{}
	for v, k := range c.all {
		if r := k.Routine; r != nil && !r.gone {
			out[v] = &wire.VolumeSchedule{Schedule: r.Schedule, Keep: r.Keep, Next: r.next, Failed: r.Failed, Reason: r.Reason}
			if r.Reason != "" && !r.Due.IsZero() {
				out[v].Again = r.Again
			}
			if e := &r.Export; r.To != "" {
				out[v].Export = &wire.VolumeExport{To: r.To, Keep: r.Far, Last: e.Last, Failed: e.Failed, Reason: e.Reason,
					Again: e.Again}
				for _, o := range e.Objects {
					if o.To == r.To {
						out[v].Export.Kept++
					}
				}
			}
		}
	}
	for _, s := range c.snaps {
		if o := out[s.Claim()]; o != nil && s.Scheduled && s.State == spec.SnapshotReady && s.Org == c.all[s.Claim()].Org {
			o.Kept++
			if s.At.After(o.Last) {
				o.Last = s.At
			}
		}
	}
	return out
}
