package moves

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
)

// Drain is what an operator asked for: everything that can be is to leave a worker, make before break.
//
//	each instance: no place ──retry──► successor elsewhere ──ready──► it is the instance, the old copy ends
//	               bound here: stays, with the reason
//
// It goes on until the worker may be used again, so that what comes back late leaves as well. Only Drains changes it.
type Drain struct {
	Since    time.Time `json:"since"`
	Parallel int       `json:"parallel"`
	To       string    `json:"to,omitempty"` // the worker that is preferred
	Force    bool      `json:"force,omitempty"`
	Told     bool      `json:"told,omitempty"` // that nothing that can leave is left
	stays    map[skerry.InstanceID]stay
	retry    map[skerry.InstanceID]time.Time // no try before
}

// stay is why an instance is still there.
type stay struct {
	why   string
	tries bool // a place is looked for again and again
}

// Drains are the workers that are drained.
type Drains struct {
	all map[string]*Drain
	due time.Time // when to look at them again; zero: when something happens
}

// NewDrains gives a site where no worker is drained.
func NewDrains() *Drains { return &Drains{all: map[string]*Drain{}} }

// Begin drains a worker, by what was asked for or read.
func (d *Drains) Begin(worker string, a *Drain) *Drain {
	d.all[worker] = a
	return a
}

// End lets what is on a worker stay there. It lists what stayed.
func (d *Drains) End(worker string) (stayed []skerry.InstanceID) {
	if a := d.all[worker]; a != nil {
		stayed = slices.Sorted(maps.Keys(a.stays))
	}
	delete(d.all, worker)
	return stayed
}

// Has reports whether a worker is drained.
func (d *Drains) Has(worker string) bool { return d.all[worker] != nil }

// None reports whether no worker is drained.
func (d *Drains) None() bool { return len(d.all) == 0 }

// Due is when to look at them again, or the zero time.
func (d *Drains) Due() time.Time { return d.due }

// Start begins a look at all, and lists them.
func (d *Drains) Start() []string {
	d.due = time.Time{}
	return slices.Sorted(maps.Keys(d.all))
}

// Again has them looked at again, at a time or earlier.
func (d *Drains) Again(at time.Time) {
	if d.due.IsZero() || at.Before(d.due) {
		d.due = at
	}
}

// Look is one at a worker that is drained.
type Look struct {
	*Drain
	of    *Drains
	stays map[skerry.InstanceID]stay
}

// Look begins a look at a worker.
func (d *Drains) Look(worker string) *Look {
	a := d.all[worker]
	if a.stays == nil {
		a.stays, a.retry = map[skerry.InstanceID]stay{}, map[skerry.InstanceID]time.Time{}
	}
	return &Look{a, d, map[skerry.InstanceID]stay{}}
}

// Stays notes that an instance cannot leave.
func (l *Look) Stays(id skerry.InstanceID, why string) { l.stays[id] = stay{why: why} }

// Waits reports whether it is too early to look for another place for an instance.
func (l *Look) Waits(now time.Time, id skerry.InstanceID) bool {
	if was, ok := l.Drain.stays[id]; ok {
		l.stays[id] = was
	}
	at := l.retry[id]
	if !now.Before(at) {
		return false
	}
	l.of.Again(at)
	return true
}

// Tries notes why an instance is still there, and when a place is looked for again.
func (l *Look) Tries(id skerry.InstanceID, why string, again time.Time) {
	l.stays[id] = stay{why, true}
	l.retry[id] = again
	l.of.Again(again)
}

// Leaves notes that an instance has a successor elsewhere; if that comes to nothing, a place is looked for again.
func (l *Look) Leaves(id skerry.InstanceID, again time.Time) {
	delete(l.stays, id)
	l.retry[id] = again
}

// End ends a look: here says whether an instance is still on the worker, and done whether nothing is left that can
// leave. It reports whether that is news, and how many stay.
func (l *Look) End(here func(id skerry.InstanceID) bool, done bool) (news bool, stay int) {
	l.Drain.stays = l.stays
	maps.DeleteFunc(l.retry, func(id skerry.InstanceID, _ time.Time) bool { return !here(id) })
	news = done && !l.Told
	l.Told = l.Told || done
	return news, len(l.stays)
}

// Stay says why an instance is still there, and whether a place is looked for; ok is false where it was not asked yet.
func (d *Drain) Stay(id skerry.InstanceID) (why string, tries, ok bool) {
	s, ok := d.stays[id]
	return s.why, s.tries, ok
}

// Audit reports contradictions, against what the site knows of its workers.
func (d *Drains) Audit(of func(worker string) *Drain) (faults []string) {
	for name, a := range d.all {
		if of(name) != a {
			faults = append(faults, fmt.Sprintf("%s is drained, and does not know it", name))
		}
		if a.Parallel < 1 {
			faults = append(faults, fmt.Sprintf("%s is drained %d at once", name, a.Parallel))
		}
	}
	return faults
}
