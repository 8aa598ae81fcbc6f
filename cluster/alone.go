package cluster

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// fates is what dependents see of a site.
type fates struct{ l *ledger }

// Ends implements autonomy.Fates.
func (f fates) Ends(id skerry.InstanceID) (after time.Duration, ok bool) {
	p := f.l.places[id]
	after, ok = p.alone()
	return after, ok && !p.Removing && !p.Refused && !p.ended() && p.Obs.Phase != skerry.PhaseCutOff
}

// endAlone ends what may not run for so long without the root.
func (c *Core) endAlone(now time.Time, fx *wire.Effects) {
	since, heard := c.uplink.Away()
	for _, id := range c.dependents.Overdue(now, since, heard) {
		p := c.places[id]
		why := "ended by its site, which has not heard the root since it started"
		if heard {
			why = "ended by its site, which has been out of touch with the root for " + now.Sub(since).Round(time.Second).String()
		}
		c.event(fx, now, p, wire.EventWarning, "CutOff", why)
		c.unstrand(p)
		c.abandon(p)
		c.endOriginal(p)
		c.letGo(p)
		c.leave(p, p.Worker)
		c.reserve(p, -1)
		c.questions.Drop(id)
		c.bind(p, "")
		c.wait(id, false)
		p.Obs = wire.Observation{ID: id, Gen: p.A.Gen, Fence: p.A.Fence, State: skerry.ClusterScheduled, Phase: skerry.PhaseCutOff, Reason: why, Restarts: p.Obs.Restarts, Restart: p.Obs.Restart}
		c.linked[p.A.Service.App] = true
		c.freed()
		c.changed(now, p, fx)
	}
}
