package sched

import "skerry.dev/skerry/wire"

// reachable rules out workers that are not in touch or take nothing new. It comes first in every policy.
type reachable struct{ s *Site }

func (c *reachable) Impossible(sum *summary) bool { return sum.open == 0 }

func (c *reachable) Keep(b int, mask uint64) uint64 { return mask & c.s.open[b] }

func (c *reachable) Miss(n int) (string, float64) {
	if x := c.s.more[n]; x != nil && !x.lost {
		return "refusing", 1
	}
	return "reachable", 1
}

func (c *reachable) Reason(n int) wire.Reason {
	if x := c.s.more[n]; x != nil && !x.lost {
		return wire.Reason{What: "refusing", Text: "it takes nothing new: " + x.refusing}
	}
	return wire.Reason{What: "reachable", Text: "it is not in touch"}
}
