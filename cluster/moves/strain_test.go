package moves

import (
	"testing"
	"time"
)

// TestStrain has an instance use shares of its processor time, and look what is done about it each time.
func TestStrain(t *testing.T) {
	type look struct {
		after time.Duration
		share float64
		slow  bool
		more  bool
		want  Step
	}
	for _, tt := range []struct {
		name  string
		moves int
		moved time.Duration // so long ago
		looks []look
	}{
		{"at rest", 0, 0, []look{{0, 0.5, false, false, StepRest}, {time.Hour, 0.89, false, false, StepRest}, {time.Hour, 0.89, false, true, StepRest}}},
		{"for long enough", 0, 0, []look{{0, 0.95, false, false, StepRest}, {119 * time.Second, 0.95, false, false, StepRest}, {time.Second, 0.95, false, false, StepMove}}},
		{"between the thresholds it lasts", 0, 0, []look{{0, 0.95, false, false, StepRest}, {time.Minute, 0.85, false, false, StepRest}, {time.Minute, 0.85, false, false, StepMove}}},
		{"below the lower one it begins anew", 0, 0, []look{{0, 0.95, false, false, StepRest}, {time.Minute, 0.79, false, false, StepRest}, {time.Minute, 0.95, false, false, StepRest}, {2 * time.Minute, 0.95, false, false, StepMove}}},
		{"slow, and short of a processor", 0, 0, []look{{0, 0.6, true, false, StepRest}, {2 * time.Minute, 0.6, true, false, StepMove}}},
		{"slow for other reasons", 0, 0, []look{{0, 0.4, true, false, StepRest}, {2 * time.Minute, 0.4, true, false, StepRest}}},
		{"no longer slow", 0, 0, []look{{0, 0.6, true, false, StepRest}, {time.Minute, 0.6, false, false, StepRest}, {time.Minute, 0.6, true, false, StepRest}}},
		{"more instances come first, for a while", 0, 0, []look{{0, 1, false, true, StepRest}, {2 * time.Minute, 1, false, true, StepScale}, {7 * time.Minute, 1, false, true, StepScale}, {time.Minute, 1, false, true, StepMove}}},
		{"as many as there may be", 0, 0, []look{{0, 1, false, true, StepRest}, {2 * time.Minute, 1, false, true, StepScale}, {time.Second, 1, false, false, StepMove}}},
		{"moved not long ago", 1, 10 * time.Minute, []look{{0, 1, false, false, StepRest}, {10 * time.Minute, 1, false, false, StepRest}, {10 * time.Minute, 1, false, false, StepMove}}},
		{"moved twice", 2, 10 * time.Minute, []look{{0, 1, false, false, StepRest}, {49 * time.Minute, 1, false, false, StepRest}, {time.Minute, 1, false, false, StepMove}}},
		{"the clock was set back", 1, -time.Hour, []look{{0, 1, false, false, StepRest}, {-time.Hour, 1, false, false, StepRest}, {2 * time.Minute, 1, false, false, StepMove}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Unix(1_700_000_000, 0)
			s := Strain{Moves: tt.moves}
			if tt.moves > 0 {
				s.Moved = now.Add(-tt.moved)
			}
			for n, l := range tt.looks {
				now = now.Add(l.after)
				s.See(now, l.share, l.slow)
				if got := s.Next(now, l.more); got != l.want {
					t.Errorf("look %d: %s, not %s", n, got, l.want)
				}
			}
		})
	}
	s := Strain{}
	now := time.Unix(1_700_000_000, 0)
	s.See(now, 1, false)
	if now = now.Add(strainFor); s.Next(now, false) != StepMove {
		t.Fatal("no place is looked for")
	}
	if s.Look(now); s.Next(now.Add(strainEvery-1), false) != StepRest || s.Next(now.Add(strainEvery), false) != StepMove {
		t.Error("a place is looked for too often, or once only")
	}
}
