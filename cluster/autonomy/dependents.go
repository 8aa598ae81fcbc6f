package autonomy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// A site lives on without the root. But where the root gives an instance to another site when this one is out of touch, and
// the service must not run twice (onDisconnect stopAfter), the site ends it after that time, counted from when it heard the
// root last. The root waits for longer than that before it starts it elsewhere. A new token starts it again.

// Fates says what becomes of instances of a site.
type Fates interface {
	// Ends gives after how long without the root an instance ends; ok is false for one that runs on, or does not run.
	Ends(id skerry.InstanceID) (after time.Duration, ok bool)
}

// Dependents are the instances that end when the root is away for long.
type Dependents struct {
	fates Fates
	all   map[skerry.InstanceID]bool
}

// NewDependents gives a site without such instances.
func NewDependents(fates Fates) *Dependents {
	return &Dependents{fates: fates, all: map[skerry.InstanceID]bool{}}
}

// Bind notes whether an instance depends on the root.
func (d *Dependents) Bind(id skerry.InstanceID, depends bool) {
	if delete(d.all, id); depends {
		d.all[id] = true
	}
}

// ends is when an instance must end because the root is out of touch, or the zero time. A site that has not heard the root since it started
// does not know since when: it gives it AutonomyGrace, and no more.
func (d *Dependents) ends(id skerry.InstanceID, away time.Time, heard bool) time.Time {
	after, ok := d.fates.Ends(id)
	if !ok {
		return time.Time{}
	}
	if !heard {
		after = min(after, wire.AutonomyGrace)
	}
	return away.Add(after)
}

// Overdue lists the instances that must end by now, where the root is away since then and was heard before, or not since the start.
func (d *Dependents) Overdue(now, away time.Time, heard bool) (ids []skerry.InstanceID) {
	if away.IsZero() {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(d.all)) {
		if at := d.ends(id, away, heard); !at.IsZero() && !now.Before(at) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Due is when the next of them must end, or the zero time.
func (d *Dependents) Due(away time.Time, heard bool) (next time.Time) {
	if away.IsZero() { // asked after each step
		return next
	}
	for id := range d.all {
		if at := d.ends(id, away, heard); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// Audit reports what is listed and gone; there says whether the site has an instance, and whether it depends on the root.
func (d *Dependents) Audit(there func(id skerry.InstanceID) (has, depends bool)) (faults []string) {
	for id := range d.all {
		if has, depends := there(id); !has || !depends {
			faults = append(faults, fmt.Sprintf("%s is to end without the root; there: %v, depends on it: %v", id, has, depends))
		}
	}
	return faults
}
