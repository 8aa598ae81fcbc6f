package core

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// endWithout ends instances whose devices are gone, or have come back elsewhere since the facts that were known: what they hold open leads
// nowhere. Their owner has them start again where such a device is.
func (c *Core) endWithout(now time.Time, was *wire.WorkerFacts, fx *wire.Effects) {
	if c.reports.facts == nil || !c.ledger.ready {
		return
	}
	c.looked = true
	var before map[string]wire.Device
	if was != nil {
		before = was.Details()
	}
	there := c.reports.facts.Details()
	for _, id := range c.ledger.ids() {
		i := c.ledger.insts[id]
		if len(i.A.Devices) == 0 || i.Ending || i.halted() || i.Phase == skerry.PhaseExited {
			continue
		}
		for _, d := range i.A.Devices {
			why := ""
			if at := before[d].At; !slices.Contains(c.reports.facts.Attachable, d) {
				why = d + " is gone"
			} else if at != "" && at != there[d].At {
				why = d + " was plugged in again elsewhere"
			}
			if why != "" {
				c.ledger.event(now, i, wire.EventWarning, "DeviceGone", why, fx)
				c.life.finish(now, i, skerry.Failed, "its device "+why, fx)
				break
			}
		}
	}
}
