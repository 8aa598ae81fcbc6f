package sched

import (
	"math/bits"

	"skerry.dev/skerry/wire"
)

// located rules out workers whose place in the network is not known.
type located struct{}

func (located) Name() string { return "located" }

func (located) Lasting() bool { return false }

func (located) For(q *Query) Check { return &locatedCheck{q.Site} }

type locatedCheck struct{ s *Site }

func (c *locatedCheck) Impossible(*summary) bool { return false }

func (c *locatedCheck) Keep(b int, mask uint64) uint64 {
	for left := mask; left != 0; left &= left - 1 {
		if i := bits.TrailingZeros64(left); c.s.net[b*64+i][3] < 0 {
			mask &^= 1 << i
		}
	}
	return mask
}

func (c *locatedCheck) Miss(int) (string, float64) { return "latency", 1 }

func (c *locatedCheck) Reason(int) wire.Reason {
	return wire.Reason{What: "latency", Text: "its place in the network is not known yet"}
}
