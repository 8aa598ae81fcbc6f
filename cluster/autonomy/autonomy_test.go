package autonomy

import (
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

var start = time.Unix(1_700_000_000, 0) // of the site, in every test

// ends is after how long instances end.
type ends map[skerry.InstanceID]time.Duration

func (e ends) Ends(id skerry.InstanceID) (time.Duration, bool) {
	d, ok := e[id]
	return d, ok
}

// never is asked about nothing.
type never struct{ *testing.T }

func (n never) Ends(id skerry.InstanceID) (time.Duration, bool) {
	n.Errorf("%s is looked at while the root is there", id)
	return 0, false
}

func TestDependents(t *testing.T) {
	d := NewDependents(ends{"a": time.Minute, "b": time.Hour})
	for _, id := range []skerry.InstanceID{"a", "b", "ended"} {
		d.Bind(id, true)
	}
	d.Bind("free", false)
	long := start.Add(24 * time.Hour)
	for _, x := range []struct {
		what      string
		now, away time.Time
		heard     bool
		due       time.Time
		overdue   []skerry.InstanceID
	}{
		{"the root is there", long, time.Time{}, true, time.Time{}, nil},
		{"just away", start, start, true, start.Add(time.Minute), nil},
		{"away for a minute", start.Add(time.Minute), start, true, start.Add(time.Minute), []skerry.InstanceID{"a"}},
		{"away for long", long, start, true, start.Add(time.Minute), []skerry.InstanceID{"a", "b"}},
		{"not heard since the start", start.Add(wire.AutonomyGrace), start, false, start.Add(min(time.Minute, wire.AutonomyGrace)),
			[]skerry.InstanceID{"a", "b"}},
	} {
		if due := d.Due(x.away, x.heard); !due.Equal(x.due) {
			t.Errorf("%s: the next one ends at %s, want %s", x.what, due, x.due)
		}
		if got := d.Overdue(x.now, x.away, x.heard); !slices.Equal(got, x.overdue) {
			t.Errorf("%s: %v end, want %v", x.what, got, x.overdue)
		}
	}
	// This is asked after each step, at a site with any number of instances.
	d.fates = never{t}
	if ids := d.Overdue(long, time.Time{}, true); !d.Due(time.Time{}, true).IsZero() || len(ids) > 0 {
		t.Errorf("%v end while the root is there", ids)
	}
	if faults := d.Audit(func(id skerry.InstanceID) (bool, bool) { return id != "b", true }); len(faults) != 1 {
		t.Errorf("one of them is gone, and the audit says %v", faults)
	}
}

func TestScaling(t *testing.T) {
	s := NewScaling()
	if !s.Due(start).IsZero() || s.Begin(start.Add(time.Hour), start) {
		t.Error("loads are looked at, and nothing follows them")
	}
	s.Follow()
	if !s.Due(time.Time{}).IsZero() {
		t.Error("loads are looked at while the root is there")
	}
	first := start.Add(scaleAfter)
	if s.Begin(first.Add(-1), start) || !s.Begin(first, start) {
		t.Error("loads are not looked at once the root has been away for long enough")
	}
	if next := s.Due(start); !next.Equal(first.Add(apps.ScaleEvery)) {
		t.Errorf("the next look is at %s", next)
	}
	if !s.Begin(first.Add(-time.Second), start.Add(-time.Hour)) {
		t.Error("a clock that was set back stops it")
	}
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}
	share := 0.5
	of := &spec.ServiceSpec{Scale: &spec.ScaleSpec{Max: 8, Target: spec.ScaleTarget{CPU: &share}}}
	if n, _ := s.Want(start, k, &Share{Spec: of, N: 2, Before: 2, Total: 2}); n < 1 || s.View(k) == nil {
		t.Errorf("%d are wanted, shown as %+v", n, s.View(k))
	}
	if s.Begin(first, time.Time{}); s.View(k) != nil {
		t.Error("the site decides when the root is back")
	}
}

func TestSharesOfTheLimits(t *testing.T) {
	two := 2
	s := &spec.ScaleSpec{Min: &two, Max: 10}
	for _, x := range []struct{ share, total, lo, hi int }{{5, 10, 1, 5}, {1, 3, 1, 4}, {3, 3, 2, 10}, {0, 0, 2, 10}} {
		if lo, hi := shareOf(s, x.share, x.total); lo != x.lo || hi != x.hi {
			t.Errorf("with %d of %d there may be %d to %d, want %d to %d", x.share, x.total, lo, hi, x.lo, x.hi)
		}
	}
}

func TestRebuild(t *testing.T) {
	if r := NewRebuild(false, time.Minute); r.Waits() || r.Over() || !r.Due(false).IsZero() || r.End(start.Add(time.Hour), false) {
		t.Error("a site that lost nothing is rebuilt")
	}
	r := NewRebuild(true, time.Minute)
	r.Start(start)
	if at := r.Due(false); !at.Equal(start.Add(time.Minute)) || !r.Due(true).Equal(start.Add(10*time.Minute)) {
		t.Errorf("workers have until %s, and without the root until %s", at, r.Due(true))
	}
	shop := skerry.AppKey{Namespace: "default", Name: "shop"}
	web := skerry.ServiceKey{App: shop, Service: "web"}
	r.Left("web-1", "not yet")
	r.Took(web, "web-1", 3)
	r.Took(web, "web-2", 2)
	r.Left("job-1", "a job")
	if got, want := r.Services(), []view.RebuiltService{{Service: web, Instances: 2, Wanted: 3}}; !slices.Equal(got, want) {
		t.Errorf("%+v was taken up, want %+v", got, want)
	}
	if !r.Made(shop) || r.Made(skerry.AppKey{Namespace: "default", Name: "bank"}) || r.Why("web-1") != "" || r.Why("job-1") != "a job" {
		t.Errorf("web-1 was left because %q, job-1 because %q", r.Why("web-1"), r.Why("job-1"))
	}
	over := start.Add(time.Minute)
	if r.End(over, true) || !r.End(over, false) || r.Waits() || !r.Over() || r.End(over, false) {
		t.Error("the time of workers ends once, when it is over")
	}
}
