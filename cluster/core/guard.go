package core

import (
	"fmt"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/cluster/placing"
	"skerry.dev/skerry/cluster/trust"
	"skerry.dev/skerry/decide/evidence"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// guard finds out which workers are out of touch, which are lost and which are not to be trusted, and does what follows for what they run.
//
//	beats stop, a connection ends ─► suspect ─► witnesses ─► loseWorker ─► strand, takeOver, move
//	a claim, a token, a start that took too long ─► counted ─► quarantine ─► what it has not started is moved
type guard struct {
	*lifecycle
	find  *finder
	peers *network.Peers
}

func (g *guard) quiet(now time.Time, m Quiet, fx *wire.Effects) {
	if g.detect.Silent(m.Name, m.Heard) {
		w := g.workers[m.Name]
		g.seeWorker(w)
		g.suspect(now, w, fx)
	}
}

func (g *guard) alive(m Alive) {
	if g.detect.Alive(m.Name) {
		g.seeWorker(g.workers[m.Name])
		g.retry()
	}
}

// suspect begins to find out about a worker.
func (g *guard) suspect(now time.Time, w *worker, fx *wire.Effects) {
	if g.detect.Suspect(now, w.Name) {
		g.askWitnesses(now, fx)
	}
}

func (g *guard) askWitnesses(now time.Time, fx *wire.Effects) {
	for _, q := range g.detect.Ask(now) {
		fx.Actions = append(fx.Actions, q)
	}
}

func (g *guard) witnessed(m Witnessed) {
	if !g.detect.Witnessed(m.Suspect, m.Witness, m.Reached) {
		return
	}
	for _, p := range g.byWorker[m.Suspect] {
		g.linked[p.A.Service.App] = true
	}
	w := g.workers[m.Suspect]
	for _, h := range w.leaving {
		g.interests.Touch(h.Service)
	}
}

// loseWorker gives the instances of a worker that is out of touch a new place. Its own copies, if it still lives, are
// ended when it comes back, because their tombstones wait for it.
func (g *guard) loseWorker(now time.Time, w *worker, fx *wire.Effects) {
	since := g.detect.Lose(w.Name)
	g.answered(w.Name)
	if k := g.Children.Get(w.Name); k != nil && k.Connected { // in name only
		g.Children.Down(now, w.Name)
		fx.Actions = append(fx.Actions, Disconnect{w.Name})
	}
	g.Apps.Arrivals(now, w.Name, nil)
	g.Apps.Waits(now, w.Name, nil)
	g.peers.Touch(now)
	g.seeWorker(w)
	g.uplink.Touch()
	g.siteEvent(fx, now, wire.EventWarning, "WorkerLost",
		"worker "+w.Name+" has been out of touch for "+now.Sub(since).Round(time.Second).String()+" ("+g.detect.Verdict(w.Name)+
			"); its instances are placed elsewhere", w.Name)
	for _, id := range sortedIDs(g.moving) {
		if inst := g.places[id]; inst.Next.Worker == w.Name {
			g.abandon(inst)
			g.changed(now, inst, fx)
		}
	}
	for _, inst := range g.on(w.Name) {
		switch {
		case (inst.Obs.State == skerry.Running || inst.mayRun()) && !inst.Removing && inst.Group == "" && inst.A.Spec.Mode == spec.ModeService:
			g.strand(now, inst, fx)
		case inst.Next != nil:
			g.takeOver(now, inst, "its worker is out of touch", fx)
		case inst.Removing:
			if !inst.ended() {
				g.leave(inst, w.Name)
			}
			g.drop(now, inst, fx)
		case inst.Group != "":
			inst.Obs.Unreachable, inst.Obs.Ready = true, false
			if inst.spot().inNetwork() {
				g.retry() // another worker may see its device
			}
			g.changed(now, inst, fx)
		case inst.Obs.State == skerry.Terminated || inst.Obs.State == skerry.Failed:
			// ended: nothing to place anew
		default:
			inst.Obs.Unreachable = true
			// Nothing new comes to a worker that is out of touch; once it is back it is as good as any.
			g.move(now, inst, "its worker is out of touch", false, fx)
		}
	}
	g.awaitEnd(now, w, fx)
}

// awaitEnd takes back what was moved from a worker that is out of touch now and does not run elsewhere yet, where two copies are not
// allowed: the one that was told to end may not have heard of it.
func (g *guard) awaitEnd(now time.Time, w *worker, fx *wire.Effects) {
	for _, id := range w.leaving.IDs() {
		p := g.places[id]
		if p == nil || p.Worker == "" || p.Worker == w.Name || p.Removing || p.Obs.State == skerry.Running || !p.mayRun() {
			continue
		}
		g.move(now, p, "the worker that it was on before is out of touch, and may not have stopped it", false, fx)
	}
}

func (g *guard) freezeChanged(now time.Time, w *worker, fx *wire.Effects) {
	if why := w.report.Frozen; why != "" {
		g.held[w.Name] = true
		g.siteEvent(fx, now, wire.EventNormal, "WorkerHeld", "worker "+w.Name+" is frozen on its device and ignores requests: "+why, w.Name)
		return
	}
	delete(g.held, w.Name)
	g.retry()
	g.siteEvent(fx, now, wire.EventNormal, "WorkerReleased", "worker "+w.Name+" was released on its device and carries out requests again",
		w.Name)
}

// forged is by how much a token must be beyond any that was given: the store may be a backup's.
const forged = 1 << 16

// counted tells what was counted against a worker, and does what follows.
func (g *guard) counted(now time.Time, f trust.Finding, fx *wire.Effects) {
	if f.Text == "" {
		return
	}
	w := g.workers[f.Worker]
	g.siteEvent(fx, now, wire.EventWarning, "Implausible", "worker "+w.Name+": "+f.Text, w.Name)
	g.reviewed(now, f, fx)
	g.saveWorker(w, fx)
	g.seeWorker(w)
}

// reviewed does what follows when the quarantine of a worker begins or ends.
func (g *guard) reviewed(now time.Time, f trust.Finding, fx *wire.Effects) {
	if !f.Changed {
		return
	}
	w := g.workers[f.Worker]
	g.uplink.Touch()
	g.saveWorker(w, fx)
	g.seeWorker(w)
	if w.trust.Quarantine() == "" {
		g.retry()
		g.siteEvent(fx, now, wire.EventNormal, "QuarantineEnded",
			"worker "+w.Name+" gets new instances again: nothing spoke against it for a while", w.Name)
		return
	}
	g.siteEvent(fx, now, wire.EventWarning, "WorkerQuarantined", "worker "+w.Name+" gets nothing new: "+w.trust.Quarantine(), w.Name)
	for _, p := range g.on(w.Name) { // what it has not started in all that time
		if p.starting() && p.Next == nil && now.Sub(p.Placed) >= placing.Patience && g.find.othersFit(p) {
			g.move(now, p, "its worker is in quarantine and has not started it", true, fx)
		}
	}
}

// reviewTrust looks again at the workers that are suspects.
func (g *guard) reviewTrust(now time.Time, fx *wire.Effects) {
	for _, name := range g.trust.Overdue(now) {
		g.reviewed(now, g.trust.Review(now, name), fx)
		if g.trust.Clear(name) {
			g.saveWorker(g.workers[name], fx)
		}
		g.seeWorker(g.workers[name]) // its rank rises by itself
	}
}

// restoreTrust has a worker trusted again, in all that it says.
func (g *guard) restoreTrust(now time.Time, w *worker, fx *wire.Effects) {
	claims, suspected := g.trust.Restore(w.Name)
	if claims != nil {
		facts := *w.Facts
		facts.Capacity = *claims
		w.Facts = &facts
	}
	if suspected {
		g.siteEvent(fx, now, wire.EventNormal, "QuarantineEnded", "worker "+w.Name+" is trusted again, by an operator", w.Name)
	}
}

// unknownToken looks whether a worker speaks for an instance that it was never given.
func (g *guard) unknownToken(now time.Time, w *worker, p *placement, o *wire.Observation, fx *wire.Effects) {
	text := ""
	switch {
	case w == nil:
	case o.Fence.ClusterTerm == g.term && o.Fence.Sequence > g.seq && o.Fence.Sequence-g.seq > forged:
		text = "it reports " + string(p.A.ID) + " under a token that was never issued"
	case p.Worker != "" && p.Worker != w.Name && o.Fence == p.A.Fence && o.Fence.Sequence > 0 && (p.Next == nil || p.Next.Worker != w.Name):
		text = "it reports " + string(p.A.ID) + ", which belongs to another worker"
	}
	if text != "" {
		g.counted(now, g.trust.Mark(now, w.Name, evidence.Tokens, text), fx)
	}
}

// witnesses is what trust sees of a site.
type witnesses struct{ o *overlay }

// At implements trust.Site.
func (s witnesses) At(probe string) string { return s.o.peers.At(probe) }

// Position implements trust.Site.
func (s witnesses) Position(worker string) *spec.Coordinate {
	if w := s.o.workers[worker]; w != nil && !w.sight.Lost() {
		return w.report.Coordinate
	}
	return nil
}

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
	text := fmt.Sprintf("it accepted %s and did not run it for %s; another worker did after %s", p.A.Service.String(),
		l.Waited.Round(time.Second), took.Round(time.Millisecond))
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
	if k := g.Children.Get(p.Worker); k != nil && k.Since.After(at) {
		at = k.Since
	}
	return at.Add(placing.Patience)
}

// appraised tries elsewhere what a worker has not started for long.
func (g *guard) appraised(now time.Time, msg Appraised, fx *wire.Effects) {
	w, child := g.workers[msg.Name], g.Children.Get(msg.Name)
	if w == nil || child == nil || !child.Connected || w.sight.Quiet() || w.sight.Lost() || w.report.Frozen != "" {
		return
	}
	for _, inst := range g.on(msg.Name) {
		if !g.starts.Has(inst.A.ID) || !inst.starting() || now.Before(g.overdue(inst)) || inst.Next != nil || !g.has(msg.Name, inst.A.ID) {
			continue
		}
		waited := now.Sub(g.overdue(inst)) + placing.Patience
		l := placing.NewLate(now, inst.Worker, waited, msg.RTT)
		text := "its worker has not started it for " + waited.Round(time.Second).String()
		if inst.A.Spec.Mode != spec.ModeService {
			if !g.find.othersFit(inst) {
				continue
			}
			inst.Late = l
			g.move(now, inst, text, true, fx)
			continue
		}
		d, wait := g.find.besides(now, inst, nil, fx)
		if wait || d.Chosen == "" {
			continue
		}
		inst.Late = l
		g.starts.Done(inst.A.ID)
		g.migrate(now, inst, d, text, fx)
	}
}
