package core

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// ImageMended tells that a part of an image was found damaged on this machine, and was put right.
type ImageMended struct {
	ID   skerry.InstanceID
	Text string
}

func (m ImageMended) take(c *Core, now time.Time, fx *wire.Effects) {
	c.ledger.event(now, c.ledger.insts[m.ID], wire.EventWarning, "ImageRepaired", m.Text, fx)
}
