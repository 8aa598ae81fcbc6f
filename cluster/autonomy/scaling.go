package autonomy

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// While the root is away the site has the number of instances of the root's services follow their load here, where they ask for
// that (scale). It changes its share by an override, as its operator would; numbers are adopted when the root is back.

// scaleAfter is for how long the root must have been away: a connection that comes back soon costs no override.
const scaleAfter = 30 * time.Second

// Scaling has the numbers of instances of the root's services follow their load.
type Scaling struct {
	any     bool      // a service of the root's asks for that
	looked  time.Time // when loads were looked at
	scalers map[skerry.ServiceKey]*apps.Scaler
}

// NewScaling gives a site without services that follow their load.
func NewScaling() *Scaling { return &Scaling{scalers: map[skerry.ServiceKey]*apps.Scaler{}} }

// Follow notes that a service of the root's follows its load.
func (s *Scaling) Follow() { s.any = true }

// Due is when loads are looked at next, or the zero time; away is since when the root is, or zero.
func (s *Scaling) Due(away time.Time) time.Time {
	if away.IsZero() || !s.any {
		return time.Time{}
	}
	if at := away.Add(scaleAfter); s.looked.Before(at) {
		return at
	}
	return s.looked.Add(apps.ScaleEvery)
}

// Begin reports whether it is time to look at loads.
func (s *Scaling) Begin(now, away time.Time) bool {
	if now.Before(s.looked) { // the clock was set back
		s.looked = time.Time{}
	}
	if away.IsZero() {
		clear(s.scalers)
	}
	due := s.Due(away)
	if due.IsZero() || now.Before(due) {
		return false
	}
	s.looked = now
	return true
}

// Share is a service of the root's as far as it is here.
type Share struct {
	Spec *spec.ServiceSpec
	N    int // instances wanted here now
	// Before is how many were here before the site changed that, and Total how many there are in the whole application.
	Before, Total int
	Load          apps.Load
}

// Want gives how many instances of a service there should be here, and why.
func (s *Scaling) Want(now time.Time, k skerry.ServiceKey, h *Share) (n int, why string) {
	lo, hi := shareOf(h.Spec.Scale, h.Before, h.Total)
	sc := s.scalers[k]
	if sc == nil {
		sc = &apps.Scaler{}
		s.scalers[k] = sc
	}
	n = sc.Want(now, h.Spec, lo, hi, h.N, h.Load)
	return n, sc.Why()
}

// View says why a service has so many instances here; nil: the site did not decide about that.
func (s *Scaling) View(k skerry.ServiceKey) *view.ScaleView {
	if sc := s.scalers[k]; sc != nil {
		return sc.View()
	}
	return nil
}

// shareOf gives the fewest and most instances that a site with some of all of them may have. A share of nothing is all.
func shareOf(s *spec.ScaleSpec, share, total int) (lo, hi int) {
	lo, hi = s.Limits()
	if total <= share || total <= 0 {
		return lo, hi
	}
	part := func(n int) int { return max(1, (n*share+total-1)/total) }
	return part(lo), part(hi)
}
