package sched

import (
	"fmt"
	"math"
	"math/bits"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Capacity rules out workers with too little of a resource left (Algorithm 2, line 1: CPU and memory; storage,
// accelerators and bandwidth are counted in the same way).
type Capacity struct{}

func (Capacity) Name() string { return "capacity" }

func (Capacity) Lasting() bool { return false }

func (Capacity) For(q *Query) Check {
	c := &capacity{s: q.Site, spec: q.Spec, runtimes: q.runtimes, more: q.more}
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

const memoryResource = 1

type amountOf struct {
	resource int
	amount   int64
}

type capacity struct {
	s    *Site
	spec *spec.ServiceSpec
	need []amountOf // those that are not zero

	runtimes []string // by kind: the service's there
	more     []int64  // memory that a kind takes beside that; nil: none does
}

// short is by how much a worker has too little of what a need is of.
func (c *capacity) short(n int, a amountOf) int64 {
	if a.resource == memoryResource && c.more != nil {
		a.amount += c.more[c.s.kindOf[n]]
	}
	return a.amount - c.s.avail[a.resource][n]
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
	for _, a := range c.need {
		more := a.resource == memoryResource && c.more != nil
		if !more && sum.least[a.resource] >= a.amount {
			continue
		}
		column := c.s.avail[a.resource][b*64:]
		for left := mask; left != 0; left &= left - 1 {
			i := bits.TrailingZeros64(left)
			if column[i] < a.amount || more && c.short(b*64+i, a) > 0 {
				mask &^= 1 << i
			}
		}
	}
	return mask
}

// Miss gives the resource of which the largest share is missing.
func (c *capacity) Miss(n int) (string, float64) {
	a, share := c.worst(n)
	return spec.ResourceNames[a.resource], share
}

func (c *capacity) worst(n int) (amountOf, float64) {
	worst, share := c.need[0], math.Inf(-1)
	for _, a := range c.need {
		have := c.s.avail[a.resource][n]
		a.amount = have + c.short(n, a) // what it takes in this runtime
		if miss := 1 - float64(max(have, 0))/float64(a.amount); miss > share {
			worst, share = a, miss
		}
	}
	return worst, share
}

func (c *capacity) Reason(n int) wire.Reason {
	worst, _ := c.worst(n)
	name, have := spec.ResourceNames[worst.resource], max(c.s.avail[worst.resource][n], 0)
	var own int64 // of it is the runtime's
	runtime := c.runtimes[c.s.kindOf[n]]
	if worst.resource == memoryResource {
		own = int64(c.spec.Overhead(runtime).Memory)
	}
	needs := fmt.Sprintf("needs %s of %s", amount(worst.resource, worst.amount-own), name)
	if own > 0 {
		needs += fmt.Sprintf(", and %s for runtime %s", amount(worst.resource, own), runtime)
	}
	hint := fmt.Sprintf("free some %s or add a worker", name)
	if have > own {
		hint = fmt.Sprintf("ask for at most %s of %s, free some, or add a worker", about(worst.resource, have-own), name)
	}
	return wire.Reason{What: name, Text: fmt.Sprintf("%s, %s is free", needs, about(worst.resource, have)), Hint: hint}
}

// about is amount for what is measured: whole Mi or Ki, rounded down.
func about(i int, v int64) string {
	for _, unit := range []skerry.Bytes{skerry.MiB, skerry.KiB} {
		if i != 0 && i != 3 && i != 4 && i != 7 && v >= int64(unit) {
			return amount(i, v-v%int64(unit))
		}
	}
	return amount(i, v)
}

func amount(i int, v int64) string {
	switch i {
	case 0:
		return skerry.MilliCPU(v).String()
	case 3, 4, 7:
		return fmt.Sprint(v)
	}
	return skerry.Bytes(v).String()
}
