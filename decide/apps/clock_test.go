package apps

import (
	"testing"
	"time"
)

// TestRolloutUnderAnEarlierClock: whoever goes on with a rollout may have a clock that is behind the one under which it began, by more
// than anybody wants to wait.
func TestRolloutUnderAnEarlierClock(t *testing.T) {
	for _, after := range []time.Duration{3 * time.Second, 30 * time.Second, 50 * time.Second, 80 * time.Second} {
		s := newSite(t)
		s.least = -1
		s.tell(apply(5, image("web:1", waves)))
		s.run(10 * time.Second)
		s.least = 5
		s.tell(apply(5, image("web:2", waves)))
		s.run(after)
		const back = -26 * time.Hour
		s.now = s.now.Add(back)
		for id := range s.placed {
			s.placed[id] = s.placed[id].Add(back)
		}
		s.c = New([16]byte{2}, "t")
		for key, value := range s.store {
			if _, err := s.c.Load(key, value.([]byte)); err != nil {
				t.Fatal(err)
			}
		}
		s.c.Start(s.now)
		s.run(3 * time.Minute)
		s.expect("5 web:2")
	}
}
