package sched

import (
	"fmt"
	"math/bits"

	"skerry.dev/skerry"
)

// Capacity rules out workers with too little of a resource left (Algorithm 2, line 1: CPU and memory; storage,
// accelerators and bandwidth are counted in the same way).
type Capacity struct{}

func (Capacity) Name() string { return "capacity" }

func (Capacity) Lasting() bool { return false }

func (Capacity) For(q *Query) Check {
	c := &capacity{s: q.Site}
	for i, v := range q.Need.Vector() {
		if v > 0 {
			c.need = append(c.need, amountOf{i, v})
		}
	}
	if len(c.need) == 0 {
		return nil
	}
	return c
}

type amountOf struct {
	resource int
	amount   int64
}

type capacity struct {
	s    *Site
	need []amountOf // those that are not zero
}

func (c *capacity) Impossible(sum *summary) bool {
	for _, a := range c.need {
		if sum.most[a.resource] < a.amount {
			return true
		}
	}
	return false
}

func (c *capacity) Keep(b int, mask uint64) uint64 {
	sum := &c.s.blocks[b]
	if c.Impossible(sum) {
		return 0
	}
	tight := false
	for _, a := range c.need {
		tight = tight || sum.least[a.resource] < a.amount
	}
	if !tight {
		return mask
	}
	for left := mask; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		v := &c.s.avail[b*64+i]
		for _, a := range c.need {
			if v[a.resource] < a.amount {
				mask &^= 1 << i
				break
			}
		}
	}
	return mask
}

// Miss gives the resource of which the largest share is missing.
func (c *capacity) Miss(n int) (string, float64) {
	a, share := c.worst(n)
	return skerry.ResourceNames[a.resource], share
}

func (c *capacity) worst(n int) (amountOf, float64) {
	worst, share := c.need[0], -1.0
	for _, a := range c.need {
		if miss := 1 - float64(max(c.s.avail[n][a.resource], 0))/float64(a.amount); miss > share {
			worst, share = a, miss
		}
	}
	return worst, share
}

func (c *capacity) Reason(n int) skerry.Reason {
	worst, _ := c.worst(n)
	name, have := skerry.ResourceNames[worst.resource], max(c.s.avail[n][worst.resource], 0)
	hint := fmt.Sprintf("free some %s or add a worker", name)
	if have > 0 {
		hint = fmt.Sprintf("ask for at most %s of %s, free some, or add a worker", amount(worst.resource, have), name)
	}
	return skerry.Reason{What: name, Text: fmt.Sprintf("needs %s of %s, %s is free", amount(worst.resource, worst.amount), name, amount(worst.resource, have)), Hint: hint}
}

func amount(i int, v int64) string {
	switch i {
	case 0:
		return skerry.MilliCPU(v).String()
	case 3, 4:
		return fmt.Sprint(v)
	}
	return skerry.Bytes(v).String()
}
