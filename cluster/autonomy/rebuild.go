package autonomy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
)

// Rebuild is what a site that lost its store has found at its workers so far.
type Rebuild struct {
	on    bool // its operator said that the store has lost what the site had
	grace time.Duration
	start time.Time
	done  bool // the time for workers to come back is over
	local map[skerry.ServiceKey]found
	left  map[skerry.InstanceID]string // what runs on and was not taken up, and why
}

// found is a service of the site's own.
type found struct {
	have, wanted int // instances that were taken up, and how many there were, by their assignments
}

// NewRebuild gives a site whose workers have so much time to come back; on: it lost its store.
func NewRebuild(on bool, grace time.Duration) *Rebuild {
	return &Rebuild{on: on, grace: grace, local: map[skerry.ServiceKey]found{}, left: map[skerry.InstanceID]string{}}
}

// Start begins a life of the site.
func (r *Rebuild) Start(now time.Time) { r.start = now }

// Waits reports whether workers still have time to tell what runs on them, and the root what it wants, before anything is placed anew.
func (r *Rebuild) Waits() bool { return r.on && !r.done }

// Over reports whether that time has ended: what comes later is taken up at once.
func (r *Rebuild) Over() bool { return r.on && r.done }

// Due is when that time ends, or the zero time. A root that is away is waited for ten times as long, since what it
// wants here cannot be told from the site's own without it.
func (r *Rebuild) Due(rootAway bool) time.Time {
	switch {
	case !r.Waits():
		return time.Time{}
	case rootAway:
		return r.start.Add(10 * r.grace)
	}
	return r.start.Add(r.grace)
}

// End ends that time, when it is over. It reports whether it did.
func (r *Rebuild) End(now time.Time, rootAway bool) bool {
	if !r.Waits() || now.Before(r.Due(rootAway)) {
		return false
	}
	r.done = true
	return true
}

// Took notes that an instance of a service was taken up, of which so many were wanted.
func (r *Rebuild) Took(k skerry.ServiceKey, id skerry.InstanceID, wanted int) {
	f := r.local[k]
	r.local[k] = found{f.have + 1, max(f.wanted, wanted)}
	delete(r.left, id)
}

// Left notes why an instance was not taken up.
func (r *Rebuild) Left(id skerry.InstanceID, why string) { r.left[id] = why }

// Made reports whether an application was made of what workers hold.
func (r *Rebuild) Made(app skerry.AppKey) bool {
	for k := range r.local {
		if k.App == app {
			return true
		}
	}
	return false
}

// Services lists the services that were taken up.
func (r *Rebuild) Services() (out []view.RebuiltService) {
	for _, k := range slices.SortedFunc(maps.Keys(r.local), skerry.ServiceKey.Compare) {
		out = append(out, view.RebuiltService{Service: k, Instances: r.local[k].have, Wanted: r.local[k].wanted})
	}
	return out
}

// Why says why an instance was not taken up, or "".
func (r *Rebuild) Why(id skerry.InstanceID) string { return r.left[id] }

// Audit reports what was found at a site that was to look for nothing.
func (r *Rebuild) Audit() (faults []string) {
	if !r.on && len(r.local)+len(r.left) > 0 {
		const text = "%d services were taken up and %d instances left, and the site is not rebuilt"
		faults = append(faults, fmt.Sprintf(text, len(r.local), len(r.left)))
	}
	return faults
}
