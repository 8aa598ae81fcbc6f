package sched

import (
	"math/bits"

	"skerry.dev/skerry/wire"
)

// kindCheck is a check whose answer is the same for all workers of a kind.
type kindCheck struct {
	s       *Site
	failing []bool // by kind
	bits    uint64 // kinds that pass, as in summary.kinds; bit 63 is set when all from 63 on pass
	some    bool   // some kind from 63 on passes
	what    string
	reason  func(k *kind) wire.Reason
}

// byKind asks once for each kind. It gives nil when every kind passes, as nearly all do.
func byKind(query *Query, what string, ok func(k *kind) bool, reason func(k *kind) wire.Reason) Check {
	var failing []bool
	bits, some := ^uint64(0), false
	for id, k := range query.Site.kinds {
		switch {
		case k.users == 0:
		case ok(k):
			some = some || id >= 63
		default:
			if failing == nil {
				failing = make([]bool, len(query.Site.kinds))
			}
			failing[id] = true
			bits &^= kindBit(k.id)
		}
	}
	if failing == nil {
		return nil
	}
	return &kindCheck{s: query.Site, failing: failing, bits: bits, some: some, what: what, reason: reason}
}

func (c *kindCheck) Impossible(sum *summary) bool {
	return sum.kinds&c.bits&^(1<<63) == 0 && (sum.kinds>>63 == 0 || !c.some)
}

func (c *kindCheck) Keep(b int, mask uint64) uint64 {
	sum := &c.s.blocks[b]
	if c.Impossible(sum) {
		return 0
	}
	if sum.kinds&^c.bits == 0 {
		return mask
	}
	for left := mask; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		if c.failing[c.s.kindOf[b*64+i]] {
			mask &^= 1 << i
		}
	}
	return mask
}

func (c *kindCheck) Miss(int) (string, float64) { return c.what, 1 }

func (c *kindCheck) Reason(n int) wire.Reason { return c.reason(c.s.kinds[c.s.kindOf[n]]) }
