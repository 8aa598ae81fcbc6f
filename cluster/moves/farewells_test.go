package moves

import (
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
)

// crowd are those who were told of every service, by whether they have yet to confirm it.
type crowd map[string]bool

func (c crowd) Told(skerry.ServiceKey) iter.Seq[string]                  { return maps.Keys(c) }
func (c crowd) Sent(string, skerry.ServiceKey) uint64                    { return 7 }
func (c crowd) Waits(name string, _ skerry.ServiceKey, sent uint64) bool { return c[name] && sent == 7 }

func TestFarewells(t *testing.T) {
	now := time.Unix(1000, 0)
	web := skerry.ServiceKey{Service: "web"}
	one, two := Place{"w", "web-1"}, Place{"w", "web-2"}
	f := NewFarewells()
	over := func(to crowd, want ...Place) {
		t.Helper()
		if got := f.Over(now, to); !slices.Equal(got, want) {
			t.Errorf("%v end, not %v", got, want)
		}
		for _, p := range want {
			if f.Has(p) {
				t.Errorf("%v is still to end", p)
			}
		}
	}
	f.Begin(one, web)
	over(crowd{}, one)
	f.Begin(one, web)
	over(crowd{"a": false}, one)

	// Who has confirmed is not asked again, whatever becomes of it.
	to := crowd{"a": true, "b": true, "c": false}
	f.Begin(one, web)
	f.Begin(one, web)
	over(to)
	to["c"] = true
	to["a"] = false
	over(to) // nothing was heard
	f.Touch("a")
	f.Touch("c")
	over(to)
	to["b"] = false
	f.Touch("b")
	over(to, one)

	// Nobody holds it up for ever.
	to = crowd{"a": true}
	f.Begin(one, web)
	over(to)
	now = now.Add(FarewellTime / 2)
	f.Begin(two, web)
	over(to)
	if due := f.Due(); !due.Equal(now.Add(FarewellTime / 2)) {
		t.Errorf("it is due at %v", due)
	}
	now = now.Add(FarewellTime / 2)
	over(to, one)
	now = now.Add(-time.Hour)
	f.End(two)

	// Whoever was late is not waited for again until it has confirmed that.
	f.Begin(two, web)
	over(to, two)
	f.Begin(two, web)
	f.Touch("a")
	over(to, two)
	to["a"] = false
	f.Touch("a")
	over(to)
	to["a"] = true
	f.Begin(two, web)
	over(to)
	now = now.Add(-time.Hour) // the clock was set
	over(to, two)
	to["a"] = false
	f.Touch("a")
	over(to)
	if !f.Due().IsZero() || len(f.late) > 0 {
		t.Errorf("nothing is to end, %v is due, and late are %v", f.Due(), f.late)
	}

	f.Begin(one, web)
	f.Begin(Place{"v", "web-1"}, web)
	if got := f.EndAll("web-1"); !slices.Equal(got, []Place{{"v", "web-1"}, one}) {
		t.Errorf("of web-1 were to end %v", got)
	}
	if f.End(one) {
		t.Error("it was to end after all")
	}
	f.Begin(one, web)
	if faults := f.Audit(func(string) bool { return false }); len(faults) != 1 {
		t.Errorf("%q", faults)
	}
	if !f.End(one) || len(f.Audit(all)) != 0 {
		t.Error("it is still to end")
	}
}
