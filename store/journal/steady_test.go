package journal

import (
	"testing"
	"time"
)

func TestSteady(t *testing.T) {
	var s Steady
	now := time.Unix(1_700_000_000, 0)
	if s.Enough(now) || s.Enough(now.Add(59*time.Minute)) || !s.Enough(now.Add(time.Hour)) {
		t.Error("an hour after the start it is enough, and not before")
	}
	// A reading with a monotonic part that tells another time than the wall clock is what a jump looks like.
	live := time.Now()
	s = Steady{since: live.Add(-2 * time.Hour), last: live.Add(-time.Second)}
	if !s.Enough(live) {
		t.Error("a clock that was not set is not steady")
	}
	for wall, set := range map[time.Duration]bool{time.Second: false, 30 * time.Second: false, -time.Hour: true, 24 * time.Hour: true, 87660 * time.Hour: true} {
		if wasSet(wall, time.Second) != set {
			t.Errorf("%v of the wall clock in a second: %v", wall, !set)
		}
	}
}
