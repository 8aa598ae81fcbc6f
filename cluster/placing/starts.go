package placing

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
)

// A worker that accepts an instance and never runs it is found out by comparison. What has not started after a while gets a
// second copy elsewhere, as in a migration; the first goes on meanwhile and stays if it is ready before. If the second one
// runs in a fraction of the time, the image, the network and the registry are not to blame. Nor is a worker whose link is
// bad, as this site measures it, ever blamed for being slow.
const (
	// Patience is how long an instance may take to start before it is tried elsewhere, too.
	Patience = 5 * time.Minute
	// slower is how many times as long as elsewhere a start must have taken to speak against a worker.
	slower = 5
	// badLink is the round trip on a worker's connection from which its link may be what is slow.
	badLink = 200 * time.Millisecond
)

// Started is how the start of an instance where it is fares.
type Started struct {
	Ran  bool  `json:"ran,omitempty"`  // it has run
	Late *Late `json:"late,omitempty"` // it took too long somewhere
}

// Late is what is known of a start that took too long.
type Late struct {
	Worker string        `json:"worker"`
	Waited time.Duration `json:"waited"`
	Tried  time.Time     `json:"tried"`             // elsewhere
	Bad    bool          `json:"badLink,omitempty"` // the worker's link is
}

// NewLate notes that an instance is tried elsewhere that a worker has not started, and the round trip on that worker's connection.
func NewLate(now time.Time, worker string, waited, rtt time.Duration) *Late {
	return &Late{Worker: worker, Waited: waited, Tried: now, Bad: rtt == 0 || rtt >= badLink}
}

// Blames reports whether the late worker is to blame, where another one runs the instance now, and after how long that did.
func (l *Late) Blames(now time.Time, worker string) (took time.Duration, blames bool) {
	if l == nil || l.Worker == worker || l.Bad {
		return 0, false
	}
	took = max(now.Sub(l.Tried), 0)
	return took, slower*took <= l.Waited
}

// Starts are the instances that have yet to run where they are.
type Starts struct {
	all map[skerry.InstanceID]bool
	due time.Time // when one of them should have
}

// NewStarts gives a site where everything runs.
func NewStarts() *Starts { return &Starts{all: map[skerry.InstanceID]bool{}} }

// Expect has an instance looked at when it should have started.
func (s *Starts) Expect(id skerry.InstanceID, at time.Time) {
	s.all[id] = true
	s.Again(at)
}

// Again has them looked at, at a time or earlier.
func (s *Starts) Again(at time.Time) {
	if s.due.IsZero() || at.Before(s.due) {
		s.due = at
	}
}

// Done says that an instance is not waited for.
func (s *Starts) Done(id skerry.InstanceID) { delete(s.all, id) }

// Has reports whether an instance is waited for.
func (s *Starts) Has(id skerry.InstanceID) bool { return s.all[id] }

// Due is when they are looked at next, or the zero time.
func (s *Starts) Due() time.Time { return s.due }

// Look lists them when it is time to look.
func (s *Starts) Look(now time.Time) []skerry.InstanceID {
	if s.due.IsZero() || now.Before(s.due) {
		return nil
	}
	s.due = time.Time{}
	return slices.Sorted(maps.Keys(s.all))
}

// Audit reports what is waited for and gone, and that nothing would look for it.
func (s *Starts) Audit(there func(id skerry.InstanceID) bool) (faults []string) {
	for id := range s.all {
		if !there(id) {
			faults = append(faults, fmt.Sprintf("%s is gone, and its start is waited for", id))
		}
	}
	if len(s.all) > 0 && s.due.IsZero() {
		faults = append(faults, fmt.Sprintf("%d starts are waited for, and nobody looks", len(s.all)))
	}
	return faults
}
