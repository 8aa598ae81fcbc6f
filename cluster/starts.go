package cluster

import (
	"fmt"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/placing"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

type (
	// Appraise has the round trip on a worker's own connection measured -> Appraised.
	Appraise struct{ Name string }
	// Appraised answers Appraise; RTT is 0 where no answer came or the worker's connection cannot tell.
	Appraised struct {
		Name string
		RTT  time.Duration
	}
)

// compareStart compares a first start with one that another worker did not manage.
func (g *guard) compareStart(now time.Time, p *placement, fx *wire.Effects) {
	g.trust.Started(now, p.Worker)
	l := p.Late
	p.Late = nil
	took, blames := l.Blames(now, p.Worker)
	if !blames || g.workers[l.Worker] == nil {
		return
	}
	w := g.workers[l.Worker]
	runs := 0
	for _, o := range g.byWorker[w.Name] {
		if o.Ran && o.Obs.State == skerry.Running {
			runs++
		}
	}
	text := fmt.Sprintf("it accepted %s and did not run it for %s; another worker did after %s", p.A.Service.String(), l.Waited.Round(time.Second), took.Round(time.Millisecond))
	g.counted(now, g.trust.Slow(now, w.Name, runs, text), fx)
}

// lateStarts asks what the links of workers look like that should have started something.
func (g *guard) lateStarts(now time.Time, fx *wire.Effects) {
	asked := map[string]bool{}
	for _, id := range g.starts.Look(now) {
		p := g.places[id]
		if p == nil || !p.starting() {
			g.starts.Done(id)
			continue
		}
		at := g.overdue(p)
		if now.Before(at) {
			g.starts.Again(at)
			continue
		}
		if w := g.workers[p.Worker]; !asked[p.Worker] && w != nil {
			asked[p.Worker] = true
			fx.Actions = append(fx.Actions, Appraise{Name: p.Worker})
		}
		g.starts.Again(now.Add(placing.Patience / 5))
	}
}

// overdue is when an instance should have started, as far as its worker could be told and carry it out.
func (g *guard) overdue(p *placement) time.Time {
	at := p.Placed
	if k := g.Kids.Get(p.Worker); k != nil && k.Since.After(at) {
		at = k.Since
	}
	return at.Add(placing.Patience)
}

// appraised tries elsewhere what a worker has not started for long.
func (g *guard) appraised(now time.Time, m Appraised, fx *wire.Effects) {
	w, k := g.workers[m.Name], g.Kids.Get(m.Name)
	if w == nil || k == nil || !k.Connected || w.sight.Quiet() || w.sight.Lost() || w.report.Held != "" {
		return
	}
	for _, p := range g.on(m.Name) {
		if !g.starts.Has(p.A.ID) || !p.starting() || now.Before(g.overdue(p)) || p.Next != nil || !g.has(m.Name, p.A.ID) {
			continue
		}
		waited := now.Sub(g.overdue(p)) + placing.Patience
		l := placing.NewLate(now, p.Worker, waited, m.RTT)
		text := "its worker has not started it for " + waited.Round(time.Second).String()
		if p.A.Spec.Mode != spec.ModeService {
			if !g.find.othersFit(p) {
				continue
			}
			p.Late = l
			g.move(now, p, text, true, fx)
			continue
		}
		d, wait := g.find.besides(now, p, nil, fx)
		if wait || d.Chosen == "" {
			continue
		}
		p.Late = l
		g.starts.Done(p.A.ID)
		g.migrate(now, p, d, text, fx)
	}
}
