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
// confirms it. It is not written down: that a copy is to end is, and it begins anew after a start.
//
//	to end ─► Begin ─► whoever was told of the service confirms a route without it, or FarewellTime ─► Over: its worker is told
//	                 └► nothing is left of it, or it is to stay after all ─► End
type Farewells struct {
	of      map[Place]*farewell
	touched map[string]bool // workers and sites of which something is known since the last look
}

type farewell struct {
	service skerry.ServiceKey
	until   time.Time       // the zero time: nobody was asked yet
	waits   map[string]bool // who has not confirmed
}

// Audience is who sends requests to the instances of services.
type Audience interface {
	// Told runs over those who were told of a service.
	Told(k skerry.ServiceKey) iter.Seq[string]
	// Waits reports whether one of them has yet to confirm what it was told last, and can.
	Waits(name string, k skerry.ServiceKey) bool
}

// NewFarewells gives a site where nothing ends.
func NewFarewells() *Farewells {
	return &Farewells{of: map[Place]*farewell{}, touched: map[string]bool{}}
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

// Touch has it looked again whether somebody has confirmed.
func (f *Farewells) Touch(name string) {
	if len(f.of) > 0 {
		f.touched[name] = true
	}
}

// Over lists the copies whose workers are to be told now, and forgets them.
func (f *Farewells) Over(now time.Time, to Audience) (out []Place) {
	for p, x := range f.of {
		if x.until.IsZero() {
			x.until, x.waits = now.Add(FarewellTime), map[string]bool{}
			for name := range to.Told(x.service) {
				if to.Waits(name, x.service) {
					x.waits[name] = true
				}
			}
		} else {
			for name := range f.touched {
				if x.waits[name] && !to.Waits(name, x.service) {
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
		delete(f.of, p)
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

// Audit reports copies on workers that are gone.
func (f *Farewells) Audit(known func(worker string) bool) (faults []string) {
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
