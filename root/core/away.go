package core

import (
	"encoding/json"
	"slices"
	"time"

	"skerry.dev/skerry/wire"
)

// The root's own record of when sites were out of touch, which decides whether it believes that a site was changed while it was alone.
// A site says itself when that was: it could otherwise change what it holds at any time, past whoever may do that at the root.

const (
	// amendTolerance is for clocks that differ, and for the time until a link that was lost is missed.
	amendTolerance = 2 * time.Minute
	// amendWithin is how long after its return a site may tell of what it was changed to. What it did before it was in touch for as long
	// it has told.
	amendWithin = 10 * time.Minute
	// maxAway bounds the times that are kept of a link that breaks again and again.
	maxAway = 32
	// aliveEvery is how often the root notes that it lives, while sites speak to it.
	aliveEvery = time.Minute

	prefixAway = "root/away/"
	keyAlive   = "root/alive"
)

// presence is what the root knows of a site's link.
type presence struct {
	Up bool `json:"up"`
	// Heard is when the site was heard last before it got out of touch. Zero: not since this record is kept.
	Heard time.Time `json:"heard,omitzero"`
	Away  []absence `json:"away,omitempty"` // oldest first
}

// absence is a time without touch. A zero From means that the root does not know how long before.
type absence struct {
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to"`
}

type presences struct {
	sites map[string]*presence
	alive time.Time // when the root surely lived, in this life or the last
}

func newPresences() presences { return presences{sites: map[string]*presence{}} }

func (p *presences) load(site string, value []byte) error {
	s := new(presence)
	if err := json.Unmarshal(value, s); err != nil {
		return err
	}
	p.sites[site] = s
	return nil
}

// start ends loading: no site is connected, and those that were when the root ended may have been alone since.
func (p *presences) start(now time.Time) {
	if p.alive.After(now) {
		p.alive = now // the clock was set back
	}
	for _, s := range p.sites {
		if s.Up {
			s.Up = false
			if p.alive.After(s.Heard) {
				s.Heard = p.alive
			}
		}
	}
}

func (p *presences) save(site string, fx *wire.Effects) {
	data, err := json.Marshal(p.sites[site])
	if err != nil {
		panic("a presence always marshals: " + err.Error())
	}
	fx.Put(prefixAway+site, data)
}

// came notes that a site connects. heard is when it was heard last on the connection before, if that was not missed yet.
func (p *presences) arrivals(now time.Time, site string, heard time.Time, fx *wire.Effects) {
	s := p.sites[site]
	if s == nil {
		s = &presence{}
		p.sites[site] = s
	}
	from := s.Heard
	if s.Up {
		from = heard
	}
	s.Away = append(s.Away, absence{from, now})
	if n := len(s.Away) - maxAway; n > 0 {
		s.Away = slices.Delete(s.Away, 0, n)
	}
	s.Up = true
	p.save(site, fx)
}

// left notes that a site is missed, which was connected since a time and heard last at another.
func (p *presences) left(now time.Time, site string, since, heard time.Time, fx *wire.Effects) {
	s := p.sites[site]
	if s == nil || !s.Up {
		return
	}
	if heard.Sub(since) > amendWithin {
		s.Away = nil // what it did in those times it has told
	}
	s.Up, s.Heard = false, heard
	p.save(site, fx)
}

// lives notes now and then that the root lives.
func (p *presences) lives(now time.Time, fx *wire.Effects) {
	if d := now.Sub(p.alive); d < 0 || d >= aliveEvery {
		p.alive = now
		data, _ := now.MarshalText()
		fx.Put(keyAlive, data)
	}
}

func (p *presences) forget(site string, fx *wire.Effects) {
	if p.sites[site] != nil {
		delete(p.sites, site)
		fx.Delete(prefixAway + site)
	}
}

// wasAutonomous reports whether the root knows that a site, which is connected since a time, was out of touch at another, and has just
// come back.
func (p *presences) wasAutonomous(now, since time.Time, site string, at time.Time) bool {
	s := p.sites[site]
	if s == nil || now.Sub(since) > amendWithin {
		return false
	}
	return slices.ContainsFunc(s.Away, func(a absence) bool {
		return !at.Before(a.From.Add(-amendTolerance)) && !at.After(a.To.Add(amendTolerance))
	})
}
