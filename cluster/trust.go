package cluster

import (
	"time"

	"skerry.dev/skerry/cluster/placing"
	"skerry.dev/skerry/cluster/trust"
	"skerry.dev/skerry/decide/credit"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

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
		g.siteEvent(fx, now, wire.EventNormal, "QuarantineEnded", "worker "+w.Name+" gets new work again: nothing more came for long", w.Name)
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
	claims, doubted := g.trust.Restore(w.Name)
	if claims != nil {
		facts := *w.Facts
		facts.Capacity = *claims
		w.Facts = &facts
	}
	if doubted {
		g.siteEvent(fx, now, wire.EventNormal, "QuarantineEnded", "worker "+w.Name+" is believed again: an operator says so", w.Name)
	}
}

// foreignToken looks whether a worker speaks for an instance that it was never given.
func (g *guard) foreignToken(now time.Time, w *worker, p *placement, o *wire.Observation, fx *wire.Effects) {
	text := ""
	switch {
	case w == nil:
	case o.Fence.ClusterTerm == g.term && o.Fence.Sequence > g.seq && o.Fence.Sequence-g.seq > forged:
		text = "it tells of " + string(p.A.ID) + " under a token that was never given"
	case p.Worker != "" && p.Worker != w.Name && o.Fence == p.A.Fence && o.Fence.Sequence > 0 && (p.Next == nil || p.Next.Worker != w.Name):
		text = "it tells of " + string(p.A.ID) + ", which another worker was given"
	}
	if text != "" {
		g.counted(now, g.trust.Mark(now, w.Name, credit.Tokens, text), fx)
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
