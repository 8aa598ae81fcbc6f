package interference

import (
	"fmt"
	"math"
)

// Bounds beyond which a rate is more than a service can do.
const (
	minSuccess  = 99.0 // percent
	minAchieved = 0.97 // answers per second, of the rate
)

// full tells why a rate is too much, or "".
func (o *Outcome) full(rate, p99 float64) string {
	switch {
	case o.Latency == nil || o.Success < minSuccess:
		return fmt.Sprintf("%.1f %% succeeded", o.Success)
	case o.Throughput < minAchieved*rate:
		return fmt.Sprintf("%.2f answers per second", o.Throughput)
	case o.Latency.P99 > p99:
		return fmt.Sprintf("p99 %.0f ms", o.Latency.P99)
	}
	return ""
}

// Saturation is where a place is full: it does Low requests per second, and not High. 0 is for an end that was not found.
type Saturation struct {
	Low, High float64
	Why       string // why High is too much
	Stopped   string // why the search ended before the ends were close
}

// words tell what was found.
func (s *Saturation) words() (text string) {
	switch {
	case s.Low > 0 && s.High > 0:
		text = fmt.Sprintf("%g requests per second are done, %g are not (%s)", s.Low, s.High, s.Why)
	case s.Low > 0:
		text = fmt.Sprintf("%g requests per second are done", s.Low)
	case s.High > 0:
		text = fmt.Sprintf("%g requests per second are not done (%s)", s.High, s.Why)
	default:
		text = "not found"
	}
	if s.Stopped != "" {
		text += "; " + s.Stopped
	}
	return text
}

// Rates between which is searched, per second, and how close the ends come: a twentieth, but no less than half a request per second.
const (
	lowest  = 0.5
	highest = 1024
)

func narrow(low, high float64) bool { return high-low <= max(0.5, 0.05*high) }

// search finds where a place is full: from start it goes up or down by factors of two to a rate that passes and one that does not,
// then halves what is between. A run that is invalid is done once more.
func search(start, p99 float64, run func(rate float64) (Outcome, error)) (s Saturation, err error) {
	try := func(rate float64) (ok bool) {
		for range 2 {
			var o Outcome
			if o, err = run(rate); err != nil {
				return false
			}
			if o.Invalid != "" {
				continue
			}
			if why := o.full(rate, p99); why == "" {
				s.Low = rate
			} else {
				s.High, s.Why = rate, why
			}
			return true
		}
		s.Stopped = fmt.Sprintf("two runs at %g requests per second were invalid", rate)
		return false
	}
	for rate := start; s.Low == 0 || s.High == 0; {
		if !try(rate) {
			return s, err
		}
		if s.Low == 0 {
			rate /= 2
		} else {
			rate *= 2
		}
		if rate < lowest || rate > highest {
			s.Stopped = fmt.Sprintf("searched between %g and %g requests per second", lowest, float64(highest))
			return s, nil
		}
	}
	for !narrow(s.Low, s.High) {
		if !try(math.Round(5*(s.Low+s.High)) / 10) {
			return s, err
		}
	}
	return s, nil
}
