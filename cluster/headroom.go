package cluster

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// strain is how an instance with runtime auto stands to the saturation point of the runtime that it has:
//
//	at rest ──nearly all of its processor time, or slow──► strained ──2 min──► may its service have more instances?
//	   ▲                                                     │  ▲             yes: wait for them, at most 10 min
//	   └──────────────clear again, or moved──────────────────┘  │             no: moved not long ago? ──► wait
//	                                                            └── no place ── look for a worker and a runtime that bear it
type strain struct {
	Crowded string    `json:"crowded,omitempty"` // why it is not clear of that point, as it is told; empty: it is
	Moves   int       `json:"moves,omitempty"`   // because of that, of late
	Moved   time.Time `json:"moved,omitzero"`    // last

	since  time.Time // it is near it; zero: it is not
	looked time.Time // for another runtime
	text   string    // why it is still there
}

const (
	// From strainOn of its processor time on an instance is near its saturation point, and below strainOff no longer. One whose requests take
	// longer than they should is from strainSlow on: below that it is not the processor that they wait for.
	strainOn, strainOff, strainSlow = 0.9, 0.8, 0.5
	// strainFor is how long that must last, and strainScale how long more instances are waited for.
	strainFor, strainScale = 2 * time.Minute, 10 * time.Minute
	// strainEvery is how often a place is looked for, and strainCalm the least time between two moves; each further one doubles it.
	strainEvery, strainCalm, longestStrainCalm = time.Minute, 30 * time.Minute, 24 * time.Hour
)

// see takes the share of its processor time that an instance uses, and whether its requests take too long.
func (s *strain) see(now time.Time, share float64, slow bool) {
	if s.since.After(now) {
		s.since = now // the clock was set back
	}
	slow = slow && share >= strainSlow
	switch {
	case s.since.IsZero() && (share >= strainOn || slow):
		s.since = now
	case share < strainOff && !slow:
		s.settle()
	}
}

// settle forgets what was seen.
func (s *strain) settle() { s.since, s.looked, s.text = time.Time{}, time.Time{}, "" }

// step is what is done about a strain.
type step string

const (
	stepRest  step = "rest"  // nothing
	stepScale step = "scale" // others start, and bear a part of it
	stepMove  step = "move"  // to a runtime that bears more
)

// next tells what is due; more: its service may have more instances.
func (s *strain) next(now time.Time, more bool) step {
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
		return stepRest
	case more && now.Sub(s.since) < strainScale:
		return stepScale
	case past(s.Moved) < calm || past(s.looked) < strainEvery:
		return stepRest
	}
	return stepMove
}

// reconsider looks whether an instance has still the right runtime, by what it uses, and moves it to one that bears more where its service
// cannot have more instances: make before break, and never to one that keeps it apart less than it asks for.
func (c *Core) reconsider(now time.Time, p *placement, fx *wire.Effects) {
	s, x, w := &p.A.Spec, &p.Strain, c.workers[p.Worker]
	limit := s.Resources.MostCPU()
	if (s.Runtime != "" && s.Runtime != spec.RuntimeAuto) || s.Mode != spec.ModeService || limit <= 0 || w == nil || p.qos == nil || p.A.Runtime == "" || p.Next != nil {
		c.crowd(now, p, fx)
		return
	}
	for i := range s.Sidecars {
		limit += s.Sidecars[i].Resources.MostCPU()
	}
	share := float64(p.qos.CPU) / float64(limit)
	if x.see(now, share, share >= strainSlow && c.slow(p)); x.since.IsZero() {
		c.crowd(now, p, fx)
		return
	}
	near := fmt.Sprintf("it is near its saturation point in runtime %s with %s of a processor", p.A.Runtime, limit)
	switch x.next(now, c.mayGrow(p)) {
	case stepScale:
		x.text = near + "; its service may have more instances"
	case stepMove:
		if c.oneMoves(p) {
			break // once that serves, the others may bear less
		}
		if now.Sub(x.Moved) > 2*longestStrainCalm {
			x.Moves = 0
		}
		x.looked = now
		d, runtime, why := c.relieve(now, p, share)
		if d.Chosen != "" {
			x.Moves++
			x.Moved = now
			why = near + ", which is moved to " + runtime
			if runtime == p.A.Runtime {
				why = near + ", which takes less of one elsewhere"
			}
			c.event(fx, now, p, wire.EventWarning, "RuntimeChanged", why)
			c.migrateIn(now, p, d, runtime, why, fx)
			break
		}
		x.text = near + "; " + why
	}
	c.crowd(now, p, fx)
}

// relieve looks for a worker and a runtime in which an instance would be clear of its saturation point, the cheapest first, or says why there
// is none.
func (c *Core) relieve(now time.Time, p *placement, share float64) (d wire.Decision, runtime, why string) {
	if why := c.stays(now, p); why != "" {
		return d, "", why
	}
	policy, plugins, reason := c.policy(&p.A.Spec)
	if reason != nil {
		return d, "", reason.Text
	}
	if len(plugins) > 0 {
		return d, "", "plugins are not asked about what runs"
	}
	here := c.workers[p.Worker].Facts.RuntimeCosts()
	for _, name := range p.A.Spec.Runtimes() {
		avoid := append(append(c.heldWorkers(), c.incapable(p)...), p.Worker)
		some := false
		for at, w := range c.workers {
			r := w.report.Pressure
			bears := w.Facts != nil && slices.Contains(w.Facts.PassedRuntimes(), name) && slices.Contains(p.A.Spec.Relief(p.A.Runtime, share, here, w.Facts.RuntimeCosts()), name)
			if !bears || r != nil && (r.Memory > pressureLimit/2 || r.CPU > pressureLimit) {
				avoid = append(avoid, at)
			} else {
				some = true
			}
		}
		if !some {
			continue
		}
		slices.Sort(avoid)
		spec := p.A.Spec
		spec.Runtime = name
		req := c.request(p)
		req.Spec, req.Avoid = &spec, slices.Concat(req.Avoid, avoid)
		c.rounds++
		if d = c.site.Place(now, policy, req, c.rounds); d.Chosen != "" {
			return d, name, ""
		}
	}
	return d, "", "no other worker has room for it in a runtime that is known to bear it"
}

// slow reports whether what comes to an instance's service by ingresses takes longer, in the mean, than it is to take at most.
func (c *Core) slow(p *placement) bool {
	most := time.Duration(p.A.Spec.LatencyObjective).Seconds() * 1000
	if most <= 0 {
		return false
	}
	var sum wire.IngressUse
	for _, name := range slices.Sorted(maps.Keys(c.workers)) { // the sums do not depend on the order
		w := c.workers[name]
		for _, u := range w.report.Ingress {
			if !w.sight.Lost() && u.Service == p.A.Service {
				sum = sum.Add(u)
			}
		}
	}
	return sum.Requests > 0 && sum.Ms > most
}

// mayGrow reports whether the service of an instance follows its load and may have more instances.
func (c *Core) mayGrow(p *placement) bool {
	s := &p.A.Spec
	if s.Scale == nil {
		return false
	}
	n := 0
	for _, o := range c.byApp[p.A.Service.App] {
		if o.A.Service == p.A.Service && !o.Removing && !o.ended() {
			n++
		}
	}
	if a := c.Apps.App(p.A.Service.App); a != nil && a.Manifest.Spec.Service(p.A.Service.Service) != nil {
		s = a.Manifest.Spec.Service(p.A.Service.Service)
	}
	if s.Replicas != nil {
		n = max(n, *s.Replicas)
	}
	_, hi := p.A.Spec.Scale.Limits()
	return n < hi
}

// oneMoves reports whether another instance of the same service is on its way to another worker.
func (c *Core) oneMoves(p *placement) bool {
	for id := range c.moving {
		if o := c.places[id]; o != p && o.A.Service == p.A.Service {
			return true
		}
	}
	return false
}

// crowd tells whether an instance is clear of the saturation point of its runtime, when that changes: by what is expected of it, or by what it
// was seen to use.
func (c *Core) crowd(now time.Time, p *placement, fx *wire.Effects) {
	text := ""
	if w := c.workers[p.Worker]; w != nil && !p.ended() {
		if text = p.Strain.text; text == "" && p.A.Spec.ExpectedRate > 0 {
			text = p.A.Spec.Crowded(p.A.Runtime, w.Facts.RuntimeCosts())
		}
	}
	if text == p.Strain.Crowded {
		return
	}
	was := p.Strain.Crowded
	p.Strain.Crowded = text
	c.changed(now, p, fx)
	switch {
	case text != "":
		c.event(fx, now, p, wire.EventWarning, "NoHeadRoom", text)
	case was != "":
		c.event(fx, now, p, wire.EventNormal, "HeadRoom", "it is clear of its saturation point again")
	}
}
