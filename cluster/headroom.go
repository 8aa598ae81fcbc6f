package cluster

import (
	"time"

	"skerry.dev/skerry"
)

// crowd looks whether the runtime of an instance is clear of its saturation point, and tells when that changes. It stays where it is: the
// runtime was the one with the most head-room there.
func (c *Core) crowd(now time.Time, p *placement, fx *skerry.Effects) {
	text := ""
	if w := c.workers[p.Worker]; w != nil && !p.ended() {
		text = p.A.Spec.Crowded(p.A.Runtime, w.Facts.RuntimeCosts())
	}
	if text == p.Crowded {
		return
	}
	was := p.Crowded
	p.Crowded = text
	c.changed(now, p, fx)
	switch {
	case text != "":
		c.event(fx, now, p, skerry.EventWarning, "NoHeadRoom", text)
	case was != "":
		c.event(fx, now, p, skerry.EventNormal, "HeadRoom", "it is clear of its saturation point again")
	}
}
