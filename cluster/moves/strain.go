package moves

import "time"

// Strain is how an instance with runtime auto stands to the saturation point of the runtime that it has:
//
//	at rest ──nearly all of its processor time, or slow──► strained ──2 min──► may its service have more instances?
//	   ▲                                                     │  ▲             yes: wait for them, at most 10 min
//	   └──────────────clear again, or moved──────────────────┘  │             no: moved not long ago? ──► wait
//	                                                            └── no place ── look for a worker and a runtime that bear it
type Strain struct {
	Crowded string    `json:"crowded,omitempty"` // why it is not clear of that point, as it is told; empty: it is
	Moves   int       `json:"moves,omitempty"`   // because of that, of late
	Moved   time.Time `json:"moved,omitzero"`    // last

	since  time.Time // it is near it; zero: it is not
	looked time.Time // for another runtime
	text   string    // why it is still there
}

const (
	// From strainOn of its processor time on an instance is near its saturation point, and below strainOff no longer. One whose requests take
	// longer than they should is from StrainSlow on: below that it is not the processor that they wait for.
	strainOn, strainOff, StrainSlow = 0.9, 0.8, 0.5
	// strainFor is how long that must last, and strainScale how long more instances are waited for.
	strainFor, strainScale = 2 * time.Minute, 10 * time.Minute
	// strainEvery is how often a place is looked for, and strainCalm the least time between two moves; each further one doubles it.
	strainEvery, strainCalm, longestStrainCalm = time.Minute, 30 * time.Minute, 24 * time.Hour
)

// See takes the share of its processor time that an instance uses, and whether its requests take too long.
func (s *Strain) See(now time.Time, share float64, slow bool) {
	if s.since.After(now) {
		s.since = now // the clock was set back
	}
	slow = slow && share >= StrainSlow
	switch {
	case s.since.IsZero() && (share >= strainOn || slow):
		s.since = now
	case share < strainOff && !slow:
		s.Settle()
	}
}

// Settle forgets what was seen.
func (s *Strain) Settle() { s.since, s.looked, s.text = time.Time{}, time.Time{}, "" }

// Step is what is done about a strain.
type Step string

const (
	StepRest  Step = "rest"  // nothing
	StepScale Step = "scale" // others start, and bear a part of it
	StepMove  Step = "move"  // to a runtime that bears more
)

// Next tells what is due; more: its service may have more instances.
func (s *Strain) Next(now time.Time, more bool) Step {
	past := func(t time.Time) time.Duration {
		if d := now.Sub(t); d >= 0 {
			return d
		}
		return longestStrainCalm // the clock was set back
	}
	calm := time.Duration(0)
	if s.Moves > 0 {
		calm = min(longestStrainCalm, strainCalm<<min(s.Moves-1, 10))
	}
	switch {
	case s.since.IsZero() || now.Sub(s.since) < strainFor:
		return StepRest
	case more && now.Sub(s.since) < strainScale:
		return StepScale
	case past(s.Moved) < calm || past(s.looked) < strainEvery:
		return StepRest
	}
	return StepMove
}

// Strained reports whether the instance is near that point.
func (s *Strain) Strained() bool { return !s.since.IsZero() }

// Stays notes why it is still there.
func (s *Strain) Stays(why string) { s.text = why }

// Look notes that another runtime is looked for.
func (s *Strain) Look(now time.Time) {
	if now.Sub(s.Moved) > 2*longestStrainCalm {
		s.Moves = 0
	}
	s.looked = now
}

// Leave notes that it is moved to another runtime.
func (s *Strain) Leave(now time.Time) {
	s.Moves++
	s.Moved = now
}

// Why says why it is still near that point, or "".
func (s *Strain) Why() string { return s.text }
