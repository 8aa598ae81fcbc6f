package cluster

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
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
	if k := g.Kids.Get(w.Name); k != nil && k.Connected { // in name only
		g.Kids.Down(now, w.Name)
		fx.Actions = append(fx.Actions, Disconnect{w.Name})
	}
	g.Apps.Came(now, w.Name, nil)
	g.Apps.Waits(now, w.Name, nil)
	g.peers.Touch(now)
	g.seeWorker(w)
	g.uplink.Touch()
	g.siteEvent(fx, now, wire.EventWarning, "WorkerLost", "worker "+w.Name+" has been out of touch for "+now.Sub(since).Round(time.Second).String()+" ("+g.detect.Verdict(w.Name)+"); its instances get a new place", w.Name)
	for _, id := range sortedIDs(g.moving) {
		if p := g.places[id]; p.Next.Worker == w.Name {
			g.abandon(p)
			g.changed(now, p, fx)
		}
	}
	for _, p := range g.on(w.Name) {
		switch {
		case (p.Obs.State == skerry.Running || p.mayRun()) && !p.Removing && p.Group == "" && p.A.Spec.Mode == spec.ModeService:
			g.strand(now, p, fx)
		case p.Next != nil:
			g.takeOver(now, p, "its worker is out of touch", fx)
		case p.Removing:
			if !p.ended() {
				g.leave(p, w.Name)
			}
			g.drop(now, p, fx)
		case p.Group != "":
			p.Obs.Unreachable, p.Obs.Ready = true, false
			g.changed(now, p, fx)
		case p.Obs.State == skerry.Terminated || p.Obs.State == skerry.Failed:
			// ended: nothing to place anew
		default:
			p.Obs.Unreachable = true
			// Nothing new comes to a worker that is out of touch; once it is back it is as good as any.
			g.move(now, p, "its worker is out of touch", false, fx)
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

func (g *guard) heldChanged(now time.Time, w *worker, fx *wire.Effects) {
	if why := w.report.Held; why != "" {
		g.held[w.Name] = true
		g.siteEvent(fx, now, wire.EventNormal, "WorkerHeld", "worker "+w.Name+" is held on its device, and carries out nothing: "+why, w.Name)
		return
	}
	delete(g.held, w.Name)
	g.retry()
	g.siteEvent(fx, now, wire.EventNormal, "WorkerReleased", "worker "+w.Name+" carries out again what it is asked for", w.Name)
}
