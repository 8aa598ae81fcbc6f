package sched

import (
	"slices"

	"skerry.dev/skerry/wire"
)

// NotTried rules out workers that failed at this instance in this round, and those on which others make room for somebody else.
type NotTried struct{}

func (NotTried) Name() string { return "not-tried" }

func (NotTried) Lasting() bool { return false }

func (NotTried) For(q *Query) Check {
	c := slotCheck{what: "tried", reason: func(n int) wire.Reason {
		if slices.Contains(q.Kept, q.Site.names[n]) {
			return wire.Reason{What: "kept", Text: "others have just made room there for an instance of higher priority"}
		}
		return wire.Reason{What: "tried", Text: "it was tried just now and failed"}
	}}
	for _, name := range slices.Concat(q.Avoid, q.Kept) {
		if n := q.Site.find(name); n >= 0 {
			c.rule(n)
		}
	}
	return c.orNil()
}

// slotCheck rules out single workers.
type slotCheck struct {
	out    map[int]uint64 // by block
	what   string
	reason func(n int) wire.Reason
}

func (c *slotCheck) rule(n int) {
	if c.out == nil {
		c.out = map[int]uint64{}
	}
	c.out[n/64] |= 1 << (n % 64)
}

func (c *slotCheck) orNil() Check {
	if len(c.out) == 0 {
		return nil
	}
	return c
}

func (c *slotCheck) Impossible(*summary) bool       { return false }
func (c *slotCheck) Keep(b int, mask uint64) uint64 { return mask &^ c.out[b] }
func (c *slotCheck) Miss(int) (string, float64)     { return c.what, 1 }
func (c *slotCheck) Reason(n int) wire.Reason       { return c.reason(n) }
