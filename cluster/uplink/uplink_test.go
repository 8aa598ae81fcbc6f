package uplink

import (
	"testing"
	"time"

	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/wire"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) // of the site, in every test

func TestReportsArePaced(t *testing.T) {
	root := members.NewParent("a1", reconcile.Options{})
	u := New(root, 10*time.Second)
	u.Start(start)
	u.Touch()
	if !u.Due().IsZero() || u.Ready(start) {
		t.Error("a report is due while there is no root")
	}
	root.Up(start, &wire.Welcome{})
	var r wire.ClusterReport
	if !u.Ready(start) {
		t.Error("no report for a root that has just connected")
	}
	u.Number(start, &r)
	for _, x := range []struct {
		what string
		at   time.Duration
		is   bool
	}{{"nothing changed", 9 * time.Second, false}, {"it is time", 10 * time.Second, true}} {
		if got := u.Ready(start.Add(x.at)); got != x.is {
			t.Errorf("%s: a report is due: %v", x.what, got)
		}
	}
	u.Touch()
	if soon := start.Add(reportPause); u.Ready(start.Add(reportPause/2)) || !u.Ready(soon) || !u.Due().Equal(soon) {
		t.Errorf("a change is reported at %s, the last report was at %s", u.Due(), start)
	}
	if u.Number(start.Add(reportPause), &r); r.Seq != 2 || u.Ready(start.Add(2*reportPause)) {
		t.Errorf("report %d is the second, and it is followed by another at once: %v", r.Seq, u.Ready(start.Add(2*reportPause)))
	}
}

func TestAway(t *testing.T) {
	root := members.NewParent("a1", reconcile.Options{})
	u := New(root, time.Second)
	u.Start(start)
	is := func(what string, since time.Time, heard bool) {
		t.Helper()
		if s, h := u.Away(); !s.Equal(since) || h != heard {
			t.Errorf("%s: away since %s, heard %v; want %s and %v", what, s, h, since, heard)
		}
	}
	is("never heard", start, false)
	u.Lost(start.Add(time.Second), time.Time{})
	is("a connection ends that never was", start, false)
	root.Up(start.Add(time.Minute), &wire.Welcome{})
	is("connected", time.Time{}, true)
	u.Lost(start.Add(time.Hour), start.Add(30*time.Minute))
	root.Down(start.Add(time.Hour))
	is("lost", start.Add(30*time.Minute), true)
	root.Up(start.Add(2*time.Hour), &wire.Welcome{})
	u.Lost(start.Add(3*time.Hour), start.Add(4*time.Hour))
	root.Down(start.Add(3 * time.Hour))
	is("lost, and the clock was set back", start.Add(3*time.Hour), true)
}
