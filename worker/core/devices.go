package core

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// endWithout ends instances whose devices are gone, or are elsewhere than when they were given: what they hold open leads nowhere, or to
// another device. It does not matter whether an agent ran when that happened. Their owner has them start again where such a device is.
func (c *Core) endWithout(now time.Time, fx *wire.Effects) {
	if c.reports.facts == nil || !c.ledger.ready {
		return
	}
	for _, id := range c.ledger.ids() {
		instance := c.ledger.insts[id]
		if len(instance.A.Devices) == 0 || instance.Ending || instance.halted() || instance.Phase == skerry.PhaseExited {
			continue
		}
		main := instance.Containers[spec.MainContainer]
		begun := main != nil && (main.Running || main.start) // until then it has none yet
		if begun && instance.Given == nil {                  // an older agent started it: this is the first look
			instance.Given = c.reports.given(instance.A.Devices)
			c.ledger.save(instance, fx)
		}
		for _, d := range instance.A.Devices {
			why := ""
			if !slices.Contains(c.reports.facts.Attachable, d) {
				why = d + " is gone"
			} else if begun && !c.reports.stillAt(d, instance.Given[d]) {
				why = d + " was plugged in again elsewhere"
			}
			if why != "" {
				c.ledger.event(now, instance, wire.EventWarning, "DeviceGone", why, fx)
				c.life.finish(now, instance, skerry.Failed, "its device "+why, fx)
				break
			}
		}
	}
}
