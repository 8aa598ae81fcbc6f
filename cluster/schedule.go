package cluster

import (
	"time"

	"skerry.dev/skerry/wire"
)

func (c *Core) heldChanged(now time.Time, w *worker, fx *wire.Effects) {
	if why := w.report.Held; why != "" {
		c.held[w.Name] = true
		c.siteEvent(fx, now, wire.EventNormal, "WorkerHeld", "worker "+w.Name+" is held on its device, and carries out nothing: "+why, w.Name)
		return
	}
	delete(c.held, w.Name)
	c.retry()
	c.siteEvent(fx, now, wire.EventNormal, "WorkerReleased", "worker "+w.Name+" carries out again what it is asked for", w.Name)
}
