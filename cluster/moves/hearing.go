package moves

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// HearingTime is how long at most a worker keeps its site from confirming a route of another site: so long that what
// that one waits for, which is FarewellTime, still comes in time.
const HearingTime = FarewellTime / 2

// Heard is a route of another site.
type Heard struct {
	Site    string
	Service skerry.ServiceKey
}

// Hearing is the other end of Farewells: which routes of other sites workers here have yet to confirm. It looks at who
// was told of a route when that has come, and then only at workers that have answered, for what they hold up. Nothing
// of it is written down: other sites tell their routes again after a start.
//
//	a route came ─► Begin ─► all who were told of it have confirmed it, or HearingTime ─► Over: the other site is told
//	                    └► it is withdrawn ─► End
//
// A worker that did not confirm in time is left out until it has: it must not keep all others from being waited for.
type Hearing struct {
	fresh   map[Heard]bool // nobody was asked yet
	of      map[Heard]*hearing
	by      map[string]map[Heard]bool // by worker: what it holds up
	touched map[string]bool           // workers of which something is known since the last look
	late    map[string]sent           // who has not confirmed in time, and what
	due     time.Time                 // somebody is late then; no later than that
}

type hearing struct {
	until time.Time
	waits map[string]uint64 // who has not confirmed what
}

// NewHearing gives a site to which no other has told anything.
func NewHearing() *Hearing {
	return &Hearing{fresh: map[Heard]bool{}, of: map[Heard]*hearing{}, by: map[string]map[Heard]bool{}, touched: map[string]bool{},
		late: map[string]sent{}}
}

// Begin takes that a route has come, in place of one that may not be confirmed yet.
func (h *Hearing) Begin(k Heard) { h.fresh[k] = true }

// End takes that a route was withdrawn.
func (h *Hearing) End(k Heard) {
	delete(h.fresh, k)
	if x := h.of[k]; x != nil {
		for name := range x.waits {
			h.free(name, k)
		}
		delete(h.of, k)
	}
}

// Touch has it looked again whether a worker has confirmed, or is gone.
func (h *Hearing) Touch(name string) {
	if _, late := h.late[name]; late || len(h.by[name]) > 0 {
		h.touched[name] = true
	}
}

// Over lists the routes that other sites are to be told of as confirmed, and forgets them.
func (h *Hearing) Over(now time.Time, to Audience) (out []Heard) {
	for name := range h.touched {
		if x, ok := h.late[name]; ok && !to.Waits(name, x.service, x.mark) {
			delete(h.late, name)
		}
		for k := range h.by[name] {
			if !to.Waits(name, k.Service, h.of[k].waits[name]) {
				out = h.confirmed(out, name, k)
			}
		}
	}
	clear(h.touched)
	for route := range h.fresh {
		until := now.Add(HearingTime)
		if x := h.of[route]; x != nil && x.until.Before(until) && !over(now, x.until) {
			until = x.until // what changes without end is not put off without end
		}
		h.End(route)
		x := &hearing{until, map[string]uint64{}}
		for name := range to.Told(route.Service) {
			mark := to.Sent(name, route.Service)
			if _, late := h.late[name]; !late && to.Waits(name, route.Service, mark) {
				x.waits[name] = mark
				if h.by[name] == nil {
					h.by[name] = map[Heard]bool{}
				}
				h.by[name][route] = true
			}
		}
		if len(x.waits) == 0 {
			out = append(out, route)
			continue
		}
		h.of[route] = x
		if h.due.IsZero() || until.Before(h.due) {
			h.due = until
		}
	}
	if !h.due.IsZero() && over(now, h.due) {
		out = h.leaveOut(now, out)
	}
	slices.SortFunc(out, func(a, b Heard) int { return cmp.Or(strings.Compare(a.Site, b.Site), a.Service.Compare(b.Service)) })
	return out
}

// over reports whether a time has come, or is so far away that the clock was set back.
func over(now, until time.Time) bool {
	left := until.Sub(now)
	return left <= 0 || left > HearingTime
}

// leaveOut waits no longer for those that are late.
func (h *Hearing) leaveOut(now time.Time, out []Heard) []Heard {
	for k, x := range h.of {
		if over(now, x.until) {
			for name, mark := range x.waits {
				is, was := sent{k.Service, mark}, h.late[name] // the last of them counts
				if cmp.Or(cmp.Compare(is.mark, was.mark), is.service.Compare(was.service)) > 0 {
					h.late[name] = is
				}
			}
		}
	}
	for name := range h.late {
		for k := range h.by[name] {
			out = h.confirmed(out, name, k)
		}
	}
	h.due = time.Time{}
	for _, x := range h.of {
		if h.due.IsZero() || x.until.Before(h.due) {
			h.due = x.until
		}
	}
	return out
}

// confirmed notes that nobody waits for a worker with a route any more, and adds the route if it waits for nobody and nothing has come in
// its place.
func (h *Hearing) confirmed(out []Heard, name string, k Heard) []Heard {
	h.free(name, k)
	if delete(h.of[k].waits, name); len(h.of[k].waits) > 0 {
		return out
	}
	delete(h.of, k)
	if h.fresh[k] {
		return out
	}
	return append(out, k)
}

func (h *Hearing) free(name string, k Heard) {
	if delete(h.by[name], k); len(h.by[name]) == 0 {
		delete(h.by, name)
	}
}

// Due is when somebody is late, or the zero time.
func (h *Hearing) Due() time.Time {
	if len(h.of) == 0 {
		return time.Time{}
	}
	return h.due
}

// Audit reports where the lists contradict each other, and workers that are gone.
func (h *Hearing) Audit(known func(worker string) bool) (faults []string) {
	held := 0
	for k, x := range h.of {
		for name := range x.waits {
			if held++; !h.by[name][k] {
				faults = append(faults, fmt.Sprintf("%s holds up %s of %s, and is not listed", name, k.Service, k.Site))
			}
		}
		if len(x.waits) == 0 || h.due.IsZero() || x.until.Before(h.due) {
			faults = append(faults, fmt.Sprintf("%s of %s waits for %d until %v, due at %v", k.Service, k.Site, len(x.waits), x.until, h.due))
		}
	}
	for name, list := range h.by {
		if held -= len(list); !known(name) {
			faults = append(faults, name+" holds up routes of other sites, and was removed")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.late)) {
		if !known(name) {
			faults = append(faults, name+" was late, and was removed")
		}
	}
	if held != 0 {
		faults = append(faults, fmt.Sprintf("%d more routes are held up than listed by worker", held))
	}
	return faults
}
