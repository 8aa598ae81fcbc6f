package journal

import "time"

// Steady tells for how long the clock was not set. What deletes by age asks it first: a clock that jumps ahead, as after a dead battery,
// would delete all. The zero value is ready. It is not safe for concurrent use.
type Steady struct{ since, last time.Time }

// SteadyEnough is for how long a clock must not have been set before anything is deleted by age.
const SteadyEnough = time.Hour

// Enough takes the time, with its monotonic reading, and reports whether the clock has gone undisturbed for SteadyEnough.
func (s *Steady) Enough(now time.Time) bool {
	if s.last.IsZero() || wasSet(now.Round(0).Sub(s.last.Round(0)), now.Sub(s.last)) {
		s.since = now
	}
	s.last = now
	return now.Sub(s.since) >= SteadyEnough
}

// wasSet reports whether the wall clock went on by so much more or less than the monotonic one that somebody must have set it.
func wasSet(wall, monotonic time.Duration) bool {
	return (wall - monotonic).Abs() > time.Minute
}
