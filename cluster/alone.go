package cluster

import (
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// A site lives on without the root. But where the root gives an instance to another site when this one is out of touch, and
// the service must not run twice (onDisconnect stopAfter), the site ends it after that time, counted from when it heard the
// root last. The root waits for longer than that before it starts it elsewhere. A new token starts it again.

// alone reports whether the site ends an instance when it is without the root for so long.
func (p *placement) alone() (after time.Duration, ok bool) {
	d, ok := p.A.Spec.OnDisconnect.StopAfter()
	return d, ok && p.A.Failover && p.Origin == "root" && p.Group == ""
}

// boundTo keeps the index of instances that depend on the root, and notes that something follows its load.
func (c *Core) boundTo(p *placement) {
	c.scaling.any = c.scaling.any || p.Origin == "root" && p.A.Spec.Scale != nil
	if _, ok := p.alone(); ok {
		c.dependent[p.A.ID] = true
	} else {
		delete(c.dependent, p.A.ID)
	}
}

// endsAlone is when an instance must end because the root is out of touch, or the zero time. An orchestrator that has not
// heard the root since it started does not know since when: it gives it AloneGrace, and no more.
func (c *Core) endsAlone(p *placement) time.Time {
	d, ok := p.alone()
	if !ok || c.Up.Connected || p.Removing || p.Refused || p.ended() || p.Obs.Phase == skerry.PhaseCutOff {
		return time.Time{}
	}
	since, heard := c.uplink.Away()
	if !heard {
		d = min(d, wire.AloneGrace)
	}
	return since.Add(d)
}

// endAlone ends what may not run for so long without the root.
func (c *Core) endAlone(now time.Time, fx *wire.Effects) {
	since, heard := c.uplink.Away()
	if c.Up.Connected {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(c.dependent)) {
		p := c.places[id]
		at := c.endsAlone(p)
		if at.IsZero() || now.Before(at) {
			continue
		}
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
		p.ask = nil
		c.bind(p, "")
		delete(c.waiting, id)
		p.Obs = wire.Observation{ID: id, Gen: p.A.Gen, Fence: p.A.Fence, State: skerry.ClusterScheduled, Phase: skerry.PhaseCutOff, Reason: why, Restarts: p.Obs.Restarts, Restart: p.Obs.Restart}
		c.linked[p.A.Service.App] = true
		c.freed()
		c.changed(now, p, fx)
	}
}

// nextAlone is when endAlone has something to do, or the zero time.
func (c *Core) nextAlone() (next time.Time) {
	if c.Up.Connected {
		return next
	}
	for id := range c.dependent {
		if at := c.endsAlone(c.places[id]); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
