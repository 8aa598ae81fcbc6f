package placing

import (
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

var start = time.Unix(1_700_000_000, 0)

func TestLocated(t *testing.T) {
	limit := spec.Duration(10 * time.Millisecond)
	of := &spec.Placement{Users: []spec.User{{Address: "far"}, {Address: "192.0.2.9", MaxLatency: &limit}}}
	where := func(worker string) *spec.Coordinate {
		return map[string]*spec.Coordinate{"a": {}, "b": {Vec: [3]float64{30}}}[worker]
	}
	var l Located
	if l.Known(start) || l.Old(start) {
		t.Error("something is known before it was measured")
	}
	l.Set(start, of, nil, "", where)
	if l.Users[1].Unknown == "" || !l.Known(start.Add(usersRetry-1)) || l.Known(start.Add(usersRetry)) {
		t.Errorf("nobody answered, and %+v is known", l.Users)
	}
	l.Set(start, of, []map[string]float64{{"a": 10, "b": 25, "gone": 1}}, "", where)
	if u := l.Users[1]; u.Unknown != "" || u.Probes != 2 || !l.Known(start.Add(usersGoodFor-1)) || !l.Old(start.Add(usersGoodFor)) {
		t.Errorf("two workers measured %+v", u)
	}
	was := l.Users[1]
	if l.Update(start.Add(time.Minute), of, nil, where); l.Users[1] != was {
		t.Errorf("nobody answered while it runs, and it is taken to be at %+v, before at %+v", l.Users[1], was)
	}
}

// TestSLA has an SLA be violated for a while, and then kept.
func TestSLA(t *testing.T) {
	var s SLA
	now, never, seldom := start, 0.0, 0.5
	for n := 0; !s.Exceeds(nil); n++ {
		if now = now.Add(time.Second); n > 60 {
			t.Fatal("a violation of a minute is put up with")
		}
		s.See(now, "slow")
		if was := s.Alarmed(); s.Raise("slow") && (was || s.share <= alarmOn) {
			t.Errorf("after %d s, of which %.0f %% count as violated, an alarm begins; there was one: %v", n+1, 100*s.share, was)
		}
	}
	if s.Exceeds(&never) || !s.Exceeds(&seldom) || !s.Alarmed() {
		const text = "with %.0f %% violated rigidness 0 moves: %v, 0.5: %v, alarm: %v"
		t.Errorf(text, 100*s.share, s.Exceeds(&never), s.Exceeds(&seldom), s.Alarmed())
	}
	s.Look(now)
	s.Move(now)
	if s.Alarmed() || s.Exceeds(nil) || !s.Rests(now.Add(firstCalm-1)) || s.Rests(now.Add(firstCalm)) {
		t.Error("it does not begin anew after a move, or rests for another time than the first calm")
	}
	s.Look(now)
	if !s.Rests(now.Add(2*firstCalm - 1)) {
		t.Error("the calm does not double")
	}
	again := SLA{SLAMoves: s.SLAMoves, SLAMoved: s.SLAMoved, Calm: s.Calm}
	if again.Start(now); !again.Rests(now.Add(firstCalm-1)) || again.moves != 1 {
		t.Errorf("after a restart of the site it rests until %s", again.calm)
	}
	if again.Start(now.Add(-48 * time.Hour)); again.Rests(now) {
		t.Error("it rests for long where the clock was set back")
	}
	for range 10 {
		now = now.Add(10 * time.Second)
		s.See(now, "slow")
		s.Raise("slow")
	}
	if _, ends := s.Settle("", false, false); ends {
		t.Error("the alarm ends before it is kept for long")
	}
	for range 20 {
		now = now.Add(10 * time.Second)
		s.See(now, "")
	}
	if _, ends := s.Settle("", true, true); ends {
		t.Error("the alarm ends while it is held")
	}
	if was, ends := s.Settle("", false, false); !ends || was != "slow" || s.Alarmed() {
		t.Errorf("the alarm about %q ends: %v", was, ends)
	}
	if s.Given(true, 3); !s.Fell(false, 3) || s.Fell(true, 3) || s.Fell(false, 4) {
		t.Error("it fell where it is not ready without a restart, and only there")
	}
	if s.Given(false, 0); s.Fell(false, 3) {
		t.Error("it fell at a place where it never was ready")
	}
}

func TestStarts(t *testing.T) {
	s := NewStarts()
	s.Expect("b", start.Add(2*time.Minute))
	s.Expect("a", start.Add(time.Minute))
	if !s.Due().Equal(start.Add(time.Minute)) || s.Look(start) != nil {
		t.Errorf("they are looked at at %s", s.Due())
	}
	if got := s.Look(start.Add(time.Minute)); !slices.Equal(got, []skerry.InstanceID{"a", "b"}) || !s.Due().IsZero() {
		t.Errorf("%v are looked at, and again at %s", got, s.Due())
	}
	if faults := s.Audit(func(id skerry.InstanceID) bool { return id == "a" }); len(faults) != 2 {
		t.Errorf("b is gone and nobody looks again, and the audit says %v", faults)
	}
	if s.Done("a"); s.Has("a") || !s.Has("b") {
		t.Error("a has started, and b has not")
	}
	l := NewLate(start, "slow", 5*time.Minute, time.Millisecond)
	for _, x := range []struct {
		what   string
		l      *Late
		took   time.Duration
		on     string
		blames bool
	}{
		{"nothing was late", nil, 0, "other", false},
		{"at once", l, time.Second, "other", true},
		{"a fifth of the time", l, time.Minute, "other", true},
		{"not much faster", l, time.Minute + 1, "other", false},
		{"where it was late", l, time.Second, "slow", false},
		{"a bad link", NewLate(start, "slow", time.Hour, badLink), time.Second, "other", false},
		{"a link that is not known", NewLate(start, "slow", time.Hour, 0), time.Second, "other", false},
	} {
		if _, got := x.l.Blames(start.Add(x.took), x.on); got != x.blames {
			t.Errorf("%s: it speaks against the worker: %v", x.what, got)
		}
	}
}
