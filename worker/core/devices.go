package core

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// endWithout ends instances whose devices are gone: what they hold open leads nowhere. Their owner has them start again where such a
// device is.
func (c *Core) endWithout(now time.Time, fx *wire.Effects) {
	if c.reports.facts == nil || !c.ledger.ready {
		return
	}
	for _, id := range c.ledger.ids() {
		i := c.ledger.insts[id]
		if len(i.A.Devices) == 0 || i.Ending || i.halted() || i.Phase == skerry.PhaseExited {
			continue
		}
		for _, d := range i.A.Devices {
			if !slices.Contains(c.reports.facts.Attachable, d) {
				c.ledger.event(now, i, wire.EventWarning, "DeviceGone", d+" is gone", fx)
				c.life.finish(now, i, skerry.Failed, "its device "+d+" is gone", fx)
				break
			}
		}
	}
}
