package sched

// A level says roughly how much of a worker is free: the mean share of CPU and memory, in steps of 1/127. Blocks hold them
// side by side, eight to a word, so that a ranking by fullness passes over a block in a few instructions: only those whose
// level lies in a narrow range can fit and be better than what was found before.

const (
	topLevel = 127
	ones     = 0x0101010101010101
	highs    = 0x8080808080808080
)

// meanFree is the mean share of CPU and memory that is free; resources of which the worker has none do not count.
func meanFree(s *Site, n int) float64 {
	f := fit{s: s}
	return f.free(n)
}

func (s *Site) setLevel(b, i int, free float64) {
	w := &s.levels[b][i/8]
	*w = *w&^(0xff<<(i%8*8)) | uint64(free*topLevel)<<(i%8*8)
}

// everyLevel is the range in which everybody lies.
func everyLevel() (least, most float64) { return 0, 1 }

// withinLevels gives the slots of a block whose level may lie in a range, with a step to spare on both sides for rounding.
func (s *Site) withinLevels(b int, least, most float64) uint64 {
	lo, hi := uint64(clamp(least)*topLevel), uint64(clamp(most)*topLevel)
	if lo > 0 {
		lo--
	}
	hi = min(hi+1, topLevel)
	if lo == 0 && hi == topLevel {
		return ^uint64(0)
	}
	var mask uint64
	for i, w := range &s.levels[b] {
		// No byte has its highest bit set, so sums and differences stay within their bytes.
		in := (w | highs) - lo*ones    // highest bit: level >= lo
		over := w + (topLevel-hi)*ones // highest bit: level > hi
		mask |= ((in &^ over & highs) >> 7 * 0x0102040810204080 >> 56) << (8 * i)
	}
	return mask
}

// levels gives the slots of a block that can fit and be kept, as far as their level tells.
func (q *Query) levels(b int, best *shortlist) uint64 {
	if q.blocks == nil || !best.full() {
		return ^uint64(0)
	}
	sum := &q.Site.blocks[b]
	least, most := q.blocks.Levels(sum, best.worst())
	if q.room != nil {
		least = max(least, q.room.leastLevel(sum))
	}
	return q.Site.withinLevels(b, least, most)
}

// uses bounds the mean share of a worker under a summary that a placement takes. It gives false where somebody lacks CPU
// or memory altogether.
func (f *fit) uses(sum *summary) (least, most float64, ok bool) {
	if sum.leastPer[0] == 0 || sum.leastPer[1] == 0 {
		return 0, 0, false
	}
	return (f.need[0]*float64(sum.leastPer[0]) + f.need[1]*float64(sum.leastPer[1])) / 2,
		(f.need[0]*float64(sum.mostPer[0]) + f.need[1]*float64(sum.mostPer[1])) / 2, true
}

// fuller gives the levels of those that have at most so much free after the placement.
func (f *fit) fuller(sum *summary, free float64) (least, most float64) {
	_, use, ok := f.uses(sum)
	if !ok || free >= 1 {
		return everyLevel()
	}
	return 0, free + use
}

// emptier gives the levels of those that have at least so much free after the placement.
func (f *fit) emptier(sum *summary, free float64) (least, most float64) {
	use, _, ok := f.uses(sum)
	if !ok || free <= 0 {
		return everyLevel()
	}
	return free + use, 1
}

// leastLevel bounds from below what is free on a worker that has room.
func (c *capacity) leastLevel(sum *summary) float64 {
	var f fit
	for _, a := range c.need {
		if a.resource < len(f.need) {
			f.need[a.resource] = float64(a.amount)
		}
	}
	if f.need[0] <= 0 || f.need[1] <= 0 {
		return 0 // of what is not asked for, less than nothing may be left
	}
	least, _, _ := f.uses(sum)
	return least
}
