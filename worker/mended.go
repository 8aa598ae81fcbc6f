package worker

import (
	"time"

	"skerry.dev/skerry"
)

// ImageMended tells that a part of an image was found damaged on this machine, and was put right.
type ImageMended struct {
	ID   skerry.InstanceID
	Text string
}

func (m ImageMended) take(c *Core, now time.Time, fx *skerry.Effects) {
	c.event(now, c.insts[m.ID], skerry.EventWarning, "ImageRepaired", m.Text, fx)
}
