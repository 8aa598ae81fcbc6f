package sched

import "skerry.dev/skerry/wire"

// Volumes keeps an instance with the data in its local volumes.
type Volumes struct{}

func (Volumes) Name() string { return "volumes" }

func (Volumes) Lasting() bool { return false }

func (Volumes) For(q *Query) Check {
	if q.Data == "" {
		return nil
	}
	return &volumes{q.Site.find(q.Data), q.Data}
}

type volumes struct {
	slot int // -1: the site does not know that worker
	name string
}

func (c *volumes) Impossible(*summary) bool { return c.slot < 0 }

func (c *volumes) Keep(b int, mask uint64) uint64 {
	if c.slot < 0 || b != c.slot/64 {
		return 0
	}
	return mask & (1 << (c.slot % 64))
}

func (c *volumes) Miss(int) (string, float64) { return "volumes", 1 }

func (c *volumes) Reason(int) wire.Reason {
	return wire.Reason{What: "volumes", Text: "the data in its local volumes is on worker " + c.name, Hint: "bring that worker back; to give the data up, `skerry worker forget " + c.name + "`"}
}
