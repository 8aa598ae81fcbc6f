package moves

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
)

// counted is a crowd that counts how often it is asked about one of them.
type counted struct {
	crowd
	asked int
}

func (c *counted) Waits(name string, k skerry.ServiceKey, sent uint64) bool {
	c.asked++
	return c.crowd.Waits(name, k, sent)
}

// listening is a site with routes of another one, and a function that says which of them are to be confirmed.
func listening(t *testing.T, to Audience, now *time.Time) (h *Hearing, over func(want ...Heard)) {
	h = NewHearing()
	return h, func(want ...Heard) {
		t.Helper()
		if got := h.Over(*now, to); !slices.Equal(got, want) {
			t.Errorf("%v are confirmed, not %v", got, want)
		}
		if faults := h.Audit(func(string) bool { return true }); len(faults) > 0 {
			t.Errorf("its lists contradict each other: %v", faults)
		}
	}
}

func TestHearing(t *testing.T) {
	now := time.Unix(1000, 0)
	web, db := Heard{"b", skerry.ServiceKey{Service: "web"}}, Heard{"b", skerry.ServiceKey{Service: "db"}}
	to := crowd{}
	h, over := listening(t, to, &now)
	h.Begin(web)
	over(web) // nobody here was told
	to["a"], to["b"] = true, true
	h.Begin(web)
	over()
	to["a"] = false
	over() // nothing was heard of it
	h.Touch("a")
	over()
	to["b"] = false
	h.Touch("b")
	over(web)
	// What comes in its place is waited for anew; what is withdrawn is not confirmed.
	to["a"] = true
	h.Begin(web)
	h.Begin(db)
	over()
	h.Begin(web)
	h.End(db)
	over()
	to["a"] = false
	h.Touch("a")
	over(web)
	if due := h.Due(); !due.IsZero() {
		t.Errorf("something is due at %v", due)
	}
}

// A worker that is stuck keeps its site from confirming for a bounded time, once, and until it confirms again; routes
// that change without end put that off no further.
func TestHearingLeavesOutTheStuck(t *testing.T) {
	now := time.Unix(1000, 0)
	web, db := Heard{"b", skerry.ServiceKey{Service: "web"}}, Heard{"b", skerry.ServiceKey{Service: "db"}}
	to := crowd{"stuck": true, "fine": false}
	h, over := listening(t, to, &now)
	h.Begin(web)
	over()
	due := h.Due()
	if !due.Equal(now.Add(HearingTime)) || HearingTime >= FarewellTime {
		t.Errorf("it is due at %v", due)
	}
	now = now.Add(HearingTime / 2)
	h.Begin(web)
	h.Begin(db)
	over()
	if !h.Due().Equal(due) {
		t.Errorf("it was put off to %v", h.Due())
	}
	now = due
	over(db, web)
	h.Begin(web)
	over(web)
	to["fine"] = true // the others are waited for as before
	h.Begin(web)
	over()
	to["fine"], to["stuck"] = false, false
	h.Touch("fine")
	h.Touch("stuck")
	over(web)
	to["stuck"] = true
	h.Begin(web)
	over()
	now = now.Add(-time.Hour)
	over(web) // the clock was set back
}

// What came in place of a route is confirmed when all have that, and not when the last of those who held up the earlier one has
// confirmed in the same step.
func TestHearingOfReplacedRoutes(t *testing.T) {
	now := time.Unix(1000, 0)
	web := Heard{"b", skerry.ServiceKey{Service: "web"}}
	to := crowd{"goes": true}
	h, over := listening(t, to, &now)
	h.Begin(web)
	over()
	to["goes"], to["stays"] = false, true
	h.Touch("goes")
	h.Begin(web)
	over()
	to["stays"] = false
	h.Touch("stays")
	over(web)
}

// marked is a crowd in which everybody confirms up to a mark, and each service has one of its own.
type marked struct {
	crowd
	marks     map[string]uint64
	confirmed uint64
}

func (m *marked) Sent(_ string, k skerry.ServiceKey) uint64 { return m.marks[k.Service] }

func (m *marked) Waits(_ string, _ skerry.ServiceKey, sent uint64) bool { return m.confirmed < sent }

// Who is late with several routes is waited for again once it has confirmed the last of them, in whatever order they are looked at.
func TestHearingOfTheLate(t *testing.T) {
	for range 20 {
		now := time.Unix(1000, 0)
		to := &marked{crowd: crowd{"a": true}, marks: map[string]uint64{}}
		h, over := listening(t, to, &now)
		var all []Heard
		for i := range uint64(8) {
			k := skerry.ServiceKey{Service: fmt.Sprint("s", i)}
			to.marks[k.Service] = i + 1
			all = append(all, Heard{"b", k})
			h.Begin(all[i])
		}
		over()
		now = h.Due()
		over(all...)
		to.confirmed = 7
		h.Touch("a")
		h.Begin(all[7])
		over(all[7]) // it is late still
		to.confirmed, to.marks["s7"] = 8, 9
		h.Touch("a")
		h.Begin(all[7])
		over()
	}
}

// What a look costs depends on what has changed, and not on how many workers and routes there are.
func TestHearingCostsWhatChanges(t *testing.T) {
	const workers, routes = 200, 50
	to := &counted{crowd: crowd{}}
	for i := range workers {
		to.crowd[fmt.Sprint("w", i)] = true
	}
	now := time.Unix(1000, 0)
	h, over := listening(t, to, &now)
	for i := range routes {
		h.Begin(Heard{"b", skerry.ServiceKey{Service: fmt.Sprint("s", i)}})
	}
	over()
	asked := func(do func()) int {
		before := to.asked
		do()
		over()
		return to.asked - before
	}
	if n := asked(func() {}); n != 0 {
		t.Errorf("nothing has changed, and it asked %d times", n)
	}
	if n := asked(func() { h.Touch("w7") }); n != routes {
		t.Errorf("a worker that holds up %d routes answered, and it asked %d times", routes, n)
	}
	if n := asked(func() { h.Begin(Heard{"b", skerry.ServiceKey{Service: "s1"}}) }); n != workers {
		t.Errorf("a route was told to %d workers, and it asked %d times", workers, n)
	}
}
