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
func (c *Core) counted(now time.Time, f trust.Finding, fx *wire.Effects) {
	if f.Text == "" {
		return
	}
	w := c.workers[f.Worker]
	c.siteEvent(fx, now, wire.EventWarning, "Implausible", "worker "+w.Name+": "+f.Text, w.Name)
	c.reviewed(now, f, fx)
	c.saveWorker(w, fx)
	c.seeWorker(w)
}

// reviewed does what follows when the quarantine of a worker begins or ends.
func (c *Core) reviewed(now time.Time, f trust.Finding, fx *wire.Effects) {
	if !f.Changed {
		return
	}
	w := c.workers[f.Worker]
	c.uplink.Touch()
	c.saveWorker(w, fx)
	c.seeWorker(w)
	if w.trust.Quarantine() == "" {
		c.retry()
		c.siteEvent(fx, now, wire.EventNormal, "QuarantineEnded", "worker "+w.Name+" gets new work again: nothing more came for long", w.Name)
		return
	}
	c.siteEvent(fx, now, wire.EventWarning, "WorkerQuarantined", "worker "+w.Name+" gets nothing new: "+w.trust.Quarantine(), w.Name)
	for _, p := range c.on(w.Name) { // what it has not started in all that time
		if p.starting() && p.Next == nil && now.Sub(p.Placed) >= placing.Patience && c.find.othersFit(p) {
			c.move(now, p, "its worker is in quarantine and has not started it", true, fx)
		}
	}
}

// reviewTrust looks again at the workers that are suspects.
func (c *Core) reviewTrust(now time.Time, fx *wire.Effects) {
	for _, name := range c.trust.Overdue(now) {
		c.reviewed(now, c.trust.Review(now, name), fx)
		if c.trust.Clear(name) {
			c.saveWorker(c.workers[name], fx)
		}
		c.seeWorker(c.workers[name]) // its rank rises by itself
	}
}

// restoreTrust has a worker trusted again, in all that it says.
func (c *Core) restoreTrust(now time.Time, w *worker, fx *wire.Effects) {
	claims, doubted := c.trust.Restore(w.Name)
	if claims != nil {
		facts := *w.Facts
		facts.Capacity = *claims
		w.Facts = &facts
	}
	if doubted {
		c.siteEvent(fx, now, wire.EventNormal, "QuarantineEnded", "worker "+w.Name+" is believed again: an operator says so", w.Name)
	}
}

// foreignToken looks whether a worker speaks for an instance that it was never given.
func (c *Core) foreignToken(now time.Time, w *worker, p *placement, o *wire.Observation, fx *wire.Effects) {
	text := ""
	switch {
	case w == nil:
	case o.Fence.ClusterTerm == c.opt.Term && o.Fence.Sequence > c.seq && o.Fence.Sequence-c.seq > forged:
		text = "it tells of " + string(p.A.ID) + " under a token that was never given"
	case p.Worker != "" && p.Worker != w.Name && o.Fence == p.A.Fence && o.Fence.Sequence > 0 && (p.Next == nil || p.Next.Worker != w.Name):
		text = "it tells of " + string(p.A.ID) + ", which another worker was given"
	}
	if text != "" {
		c.counted(now, c.trust.Mark(now, w.Name, credit.Tokens, text), fx)
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
