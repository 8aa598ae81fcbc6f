package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A worker that is held on its device, such as a vehicle that drives, carries out nothing that the cluster asks for: no start, no
// stop, no restart. What runs runs on, and is started again by its restart policy, also after a reboot.
//
//	held: word of the cluster ──► waits, told upward ──release, or approve of that instance──► carried out
//
// What waits is no list of its own: it is the difference between the desired set and what runs here. What a service itself
// asked its worker for (onDisconnect: stopAfter) is done all the same, for a replacement may run elsewhere.
type freeze struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// freezer owns whether the worker is held on its device, why, and which changes wait for its release. It knows neither the instances nor
// the desired set: whoever takes a change asks it first.
//
// Nothing waits while the worker is not held, and nothing is approved between two steps.
type freezer struct {
	record   *freeze                      // on the device; nil: none
	waits    map[skerry.InstanceID]string // what waits, by its instance
	approved skerry.InstanceID            // within a step: what is carried out all the same
}

// Messages of people at the device.
type (
	// FreezeLocal has the worker defer what the cluster asks for; again, it changes the reason, of at most 200 bytes.
	FreezeLocal struct{ Reason string }
	// ReleaseLocal ends that, and carries out what waits.
	ReleaseLocal struct{}
	// ApproveLocal carries out what waits for one instance, or if it names none for all.
	ApproveLocal struct{ ID skerry.InstanceID }
)

// What may wait.
const (
	waitsStart   = "its start"
	waitsUpdate  = "its replacement"
	waitsStop    = "its end"
	waitsRestart = "its restart"
	waitsLimits  = "the change of its limits"
)

const (
	keyFreeze       = "hold"
	maxFreezeReason = 200
)

func (f *freezer) load(value []byte) error {
	h := new(freeze)
	if err := json.Unmarshal(value, h); err != nil {
		return err
	}
	f.record = h
	return nil
}

// frozen reports whether the worker is held on its device.
func (f *freezer) frozen() bool { return f.record != nil }

// holds reports whether an instance is to stay as it is.
func (f *freezer) holds(id skerry.InstanceID) bool { return f.record != nil && f.approved != id }

// reason says why the worker is held, or "".
func (f *freezer) reason() string {
	if f.record == nil {
		return ""
	}
	return f.record.Reason
}

// text says what waits for an instance, or "".
func (f *freezer) text(id skerry.InstanceID) string {
	what := f.waits[id]
	if f.record == nil || what == "" {
		return ""
	}
	return what + " waits until its worker is released: " + f.record.Reason
}

// pending lists the instances for which something waits, by name.
func (f *freezer) pending() []skerry.InstanceID { return slices.Sorted(maps.Keys(f.waits)) }

// drop notes that nothing waits for an instance any more, and gives what did.
func (f *freezer) drop(id skerry.InstanceID) (what string) {
	what = f.waits[id]
	delete(f.waits, id)
	return what
}

// approve has the change of an instance be carried out, until the next call, and gives what it is; "" ends that.
func (f *freezer) approve(id skerry.InstanceID) (what string) {
	f.approved = id
	return f.drop(id)
}

// start begins to hold the worker, or gives another reason.
func (f *freezer) start(now time.Time, reason string, fx *wire.Effects) {
	h := &freeze{Since: now, Reason: reason}
	if h.Reason == "" {
		h.Reason = "held on the device"
	}
	if f.record != nil {
		h.Since = f.record.Since
	}
	f.record = h
	data, err := json.Marshal(h)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	fx.Put(keyFreeze, data)
}

// release ends that, and gives the instances for which something waited.
func (f *freezer) release(fx *wire.Effects) []skerry.InstanceID {
	f.record = nil
	fx.Delete(keyFreeze)
	was := f.pending()
	clear(f.waits)
	return was
}

// defers reports whether an assignment has to wait, and notes what of it does. The instance is the one here under that name, or nil.
func (f *freezer) defers(assigned *spec.Assignment, instance *inst) (what string, waits bool) {
	if !f.holds(assigned.ID) || instance != nil && assigned.Fence.Compare(instance.A.Fence) < 0 {
		return "", false
	}
	switch {
	case instance == nil, instance.Ending:
		what = waitsStart
	case assigned.Fence != instance.A.Fence && (assigned.PriorFence == nil || *assigned.PriorFence != instance.A.Fence ||
		assigned.Revision != instance.A.Revision):
		what = waitsUpdate
	case assigned.Fence == instance.A.Fence && assigned.Revision != instance.wanted():
		what = waitsLimits
	case assigned.Restart > instance.A.Restart:
		what = waitsRestart
	default:
		f.drop(assigned.ID) // whatever waited is no longer wanted
		return "", false
	}
	f.waits[assigned.ID] = what
	return what, true
}

// defersEnd reports whether the end of an instance has to wait: of one that has run, and may still.
func (f *freezer) defersEnd(i *inst) bool {
	if !f.holds(i.A.ID) || i.Ending || i.halted() || i.StartedAt.IsZero() {
		f.drop(i.A.ID)
		return false
	}
	f.waits[i.A.ID] = waitsStop
	return true
}

// audit lists what contradicts itself between two steps.
func (f *freezer) audit() (faults []string) {
	if f.record == nil && len(f.waits) > 0 {
		faults = append(faults, fmt.Sprintf("%d changes wait for the release of a worker that is not held", len(f.waits)))
	}
	if f.approved != "" {
		faults = append(faults, fmt.Sprintf("the change of %s is approved beyond its step", f.approved))
	}
	return faults
}
