package cluster

import (
	"time"

	"skerry.dev/skerry/spec"
)

const (
	// gatherFor is how long what is to be spread waits, after the site's start, for the workers that were there before: the first to come
	// back would get all of it. It is longer than the time between two tries of a worker to connect.
	gatherFor = 20 * time.Second
	// gatherLook is how often it looks whether they are all there.
	gatherLook = 500 * time.Millisecond
)

// gathers gives when an instance is to be looked at again that is to be spread, while a worker that this store knows has not come back since
// the start; zero: it waits for none.
func gathers(c *Core, now time.Time, p *placement) (again time.Time) {
	end := c.started.Add(gatherFor)
	if p.A.Spec.Placement.Policy != spec.PolicySpread || p.Pinned != "" || !now.Before(end) {
		return again
	}
	for name, w := range c.workers {
		if k := c.Kids.Get(name); w.Hold == "" && w.Drain == nil && (k == nil || !k.Connected) {
			if again = now.Add(gatherLook); again.After(end) {
				return end
			}
			return again
		}
	}
	return again
}
