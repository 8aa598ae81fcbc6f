package placing

import (
	"math"
	"time"
)

// SLA is how an instance's SLA has fared. Violations are smoothed, and a move buys calm that doubles, so that nothing flaps:
//
//	violated ─► share of violation of late ─> 0.2─► alarm ─< 0.05─► kept again
//	                      └─ more than the rigidness puts up with, and no calm ─► another place ─► calm: 30 s, 1 min, 2 min ... 1 h
type SLA struct {
	// SLAMoves, SLAMoved and Calm are what is kept across restarts, as of the last move: what was counted towards calm. The share of violation
	// is found out anew.
	SLAMoves int       `json:"slaMoves,omitempty"`
	SLAMoved time.Time `json:"slaMoved,omitzero"`
	Calm     time.Time `json:"calm,omitzero"`

	share    float64 // of late, smoothed: 1 is violated all the time
	judged   time.Time
	violated string // what was violated last
	alarm    bool   // it was told of as violated
	moves    int    // because of violations, not long ago
	moved    time.Time
	calm     time.Time // no move before
	ready    bool      // it has been ready
	restarts int       // when it was ready last
}

const (
	// smoothing is the time constant of the share of violation: after so long, 63 % of the past is forgotten.
	smoothing = 20 * time.Second
	// firstCalm is the least time between two moves of an instance; each further move doubles it.
	firstCalm   = 30 * time.Second
	longestCalm = time.Hour
	// Alarms come and go at different shares, so that what flickers is told of once.
	alarmOn, alarmOff = 0.2, 0.05
	// lookEvery is how often an instance is judged again while its SLA is violated, reports or not.
	lookEvery = 2 * time.Second
)

// Start begins a life of the site with what was kept.
func (s *SLA) Start(now time.Time) {
	s.moves, s.moved, s.calm = s.SLAMoves, s.SLAMoved, s.Calm
	if s.calm.Sub(now) > longestCalm {
		s.calm = now // the clock was set back
	}
}

// Given notes that the instance is at another place, where it is ready or not, after so many restarts.
func (s *SLA) Given(ready bool, restarts int) {
	if s.ready = ready; ready {
		s.restarts = restarts
	}
}

// Pause notes that nothing can be said of the SLA now.
func (s *SLA) Pause(now time.Time) { s.judged = now }

// See takes what is violated now, or "".
func (s *SLA) See(now time.Time, violated string) {
	value := 0.0
	if violated != "" {
		value, s.violated = 1, violated
	}
	dt := time.Second
	if !s.judged.IsZero() {
		dt = max(0, now.Sub(s.judged))
	}
	s.share += (value - s.share) * (1 - math.Exp(-dt.Seconds()/smoothing.Seconds()))
	s.judged = now
}

// Raise reports whether an alarm begins, with what is violated now.
func (s *SLA) Raise(violated string) bool {
	if s.alarm || violated == "" || s.share <= alarmOn {
		return false
	}
	s.alarm = true
	return true
}

// Settle reports whether the alarm, or what the owner was told besides, ends, with what is violated now, and what it was about; held: it is
// told for another reason, too.
func (s *SLA) Settle(violated string, told, held bool) (was string, ends bool) {
	if held || !s.alarm && !told || violated != "" || s.share >= alarmOff {
		return "", false
	}
	s.alarm = false
	return s.violated, true
}

// Alarmed reports whether there is an alarm.
func (s *SLA) Alarmed() bool { return s.alarm }

// Violated is what was violated last, and when that was judged.
func (s *SLA) Violated() (what string, judged time.Time) { return s.violated, s.judged }

// Again is when the instance is judged again while its SLA is violated.
func (s *SLA) Again() time.Time { return s.judged.Add(lookEvery) }

// Exceeds reports whether the smoothed share of violation is more than the rigidness puts up with.
func (s *SLA) Exceeds(rigidness *float64) bool {
	r := 0.5
	if rigidness != nil {
		r = *rigidness
	}
	return r > 0 && s.share > 1-r
}

// Rests reports whether the instance is not to be moved yet, and Rest has it not moved before.
func (s *SLA) Rests(now time.Time) bool { return now.Before(s.calm) }

// Rest has the instance not moved before a time.
func (s *SLA) Rest(until time.Time) { s.calm = until }

// Look notes that another place is looked for.
func (s *SLA) Look(now time.Time) {
	if now.Sub(s.moved) > 2*longestCalm {
		s.moves = 0
	}
	s.calm = now.Add(min(longestCalm, firstCalm<<min(s.moves, 20)))
}

// Move notes that the instance moves there.
func (s *SLA) Move(now time.Time) {
	s.moves++
	s.moved, s.share, s.alarm = now, 0, false
	s.SLAMoves, s.SLAMoved, s.Calm = s.moves, s.moved, s.calm
}

// Fell reports whether the instance was ready and is not, without a restart.
func (s *SLA) Fell(ready bool, restarts int) bool { return s.ready && !ready && restarts == s.restarts }
