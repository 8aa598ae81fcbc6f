package moves

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// FarewellTime is how long at most a worker is not told to end a copy because somebody has not confirmed that nobody is to be sent there.
const FarewellTime = 10 * time.Second

// Farewells are copies that serve and are to end, of which their workers are not told yet: whoever sends requests there is told first, and
// confirms it. It is not written down: that a copy is to end is, and it begins anew after a start. Whoever did not confirm in time is not
// waited for again until it has; otherwise an update of many copies would take the whole time for each.
//
//	to end ─► Begin ─► whoever was told of the service confirms a route without it, or FarewellTime ─► Over: its worker is told
//	                 └► nothing is left of it, or it is to stay after all ─► End
type Farewells struct {
	of      map[Place]*farewell
	touched map[string]bool // workers and sites of which something is known since the last look
	late    map[string]sent // who has not confirmed in time, and what
}

type farewell struct {
	service skerry.ServiceKey
	until   time.Time       // the zero time: nobody was asked yet
	waits   map[string]sent // who has not confirmed what; one map for all that began to wait for the same
}

// sent is what somebody was told of a service.
type sent struct {
	service skerry.ServiceKey
	mark    uint64
}

// Audience is who sends requests to the instances of services.
type Audience interface {
	// Told runs over those who were told of a service.
	Told(k skerry.ServiceKey) iter.Seq[string]
	// Sent tells apart what one of them was told by now.
	Sent(name string, k skerry.ServiceKey) uint64
	// Waits reports whether one of them has yet to confirm that, or what it was told later, and can.
	Waits(name string, k skerry.ServiceKey, sent uint64) bool
}

// NewFarewells gives a site where nothing ends.
func NewFarewells() *Farewells {
	return &Farewells{of: map[Place]*farewell{}, touched: map[string]bool{}, late: map[string]sent{}}
}

// Begin has a copy of a service end once nobody is sent to it.
func (f *Farewells) Begin(p Place, k skerry.ServiceKey) {
	if f.of[p] == nil {
		f.of[p] = &farewell{service: k}
	}
}

// Has reports whether a copy is to end and its worker was not told.
func (f *Farewells) Has(p Place) bool { return f.of[p] != nil }

// End forgets a copy. It reports whether there was one.
func (f *Farewells) End(p Place) bool {
	has := f.Has(p)
	delete(f.of, p)
	return has
}

// EndAll forgets the copies of an instance, and lists them.
func (f *Farewells) EndAll(id skerry.InstanceID) (out []Place) {
	for p := range f.of {
		if p.ID == id {
			out = append(out, p)
		}
	}
	sortPlaces(out)
	for _, p := range out {
		delete(f.of, p)
	}
	return out
}

// Touch has it looked again whether somebody has confirmed, or is gone.
func (f *Farewells) Touch(name string) {
	if len(f.of)+len(f.late) > 0 {
		f.touched[name] = true
	}
}

// Over lists the copies whose workers are to be told now, and forgets them.
func (f *Farewells) Over(now time.Time, to Audience) (out []Place) {
	for name := range f.touched {
		if x, ok := f.late[name]; ok && !to.Waits(name, x.service, x.mark) {
			delete(f.late, name)
		}
	}
	begun := map[skerry.ServiceKey]map[string]sent{}
	for p, x := range f.of {
		if x.until.IsZero() {
			if begun[x.service] == nil {
				begun[x.service] = f.waiting(x.service, to)
			}
			x.until, x.waits = now.Add(FarewellTime), begun[x.service]
		} else {
			for name := range f.touched {
				if told, ok := x.waits[name]; ok && !to.Waits(name, x.service, told.mark) {
					delete(x.waits, name)
				}
			}
		}
		if left := x.until.Sub(now); len(x.waits) == 0 || left <= 0 || left > FarewellTime { // the clock was set back
			out = append(out, p)
		}
	}
	clear(f.touched)
	sortPlaces(out)
	for _, p := range out {
		maps.Copy(f.late, f.of[p].waits)
		delete(f.of, p)
	}
	return out
}

// waiting lists who has yet to confirm what it was told last of a service, and is waited for.
func (f *Farewells) waiting(k skerry.ServiceKey, to Audience) map[string]sent {
	out := map[string]sent{}
	for name := range to.Told(k) {
		mark := to.Sent(name, k)
		if _, late := f.late[name]; !late && to.Waits(name, k, mark) {
			out[name] = sent{k, mark}
		}
	}
	return out
}

// Due is when the next worker is told in any case, or the zero time.
func (f *Farewells) Due() (due time.Time) {
	for _, x := range f.of {
		if due.IsZero() || x.until.Before(due) {
			due = x.until
		}
	}
	return due
}

// Audit reports copies on workers that are gone, and workers that are gone and were late. The names of sites end with a slash.
func (f *Farewells) Audit(known func(worker string) bool) (faults []string) {
	for _, name := range slices.Sorted(maps.Keys(f.late)) {
		if !strings.HasSuffix(name, "/") && !known(name) {
			faults = append(faults, name+" was late, and was removed")
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(f.of), comparePlaces) {
		if !known(p.Worker) {
			faults = append(faults, fmt.Sprintf("%s is to end on %s, which was removed", p.ID, p.Worker))
		}
	}
	return faults
}

func comparePlaces(a, b Place) int {
	return cmp.Or(strings.Compare(a.Worker, b.Worker), strings.Compare(string(a.ID), string(b.ID)))
}

func sortPlaces(list []Place) { slices.SortFunc(list, comparePlaces) }
