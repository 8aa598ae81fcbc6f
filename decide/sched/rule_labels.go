package sched

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Labels rules out workers without the labels asked for.
type Labels struct{}

func (Labels) Name() string { return "labels" }

func (Labels) Lasting() bool { return false }

func (Labels) For(q *Query) Check {
	if len(q.Spec.Placement.Labels) == 0 {
		return nil
	}
	return &labels{q.Site, q.Spec.Placement.Labels}
}

type labels struct {
	s    *Site
	want map[string]string
}

func (c *labels) Impossible(*summary) bool { return false }

func (c *labels) Keep(b int, mask uint64) uint64 {
	for left := mask; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		if x := c.s.more[b*64+i]; x == nil || !spec.HasLabels(x.labels, c.want) {
			mask &^= 1 << i
		}
	}
	return mask
}

func (c *labels) Miss(int) (string, float64) { return "label", 1 }

func (c *labels) Reason(n int) wire.Reason {
	for _, k := range slices.Sorted(maps.Keys(c.want)) {
		if x := c.s.more[n]; x == nil || !spec.HasLabels(x.labels, map[string]string{k: c.want[k]}) {
			return wire.Reason{What: "label", Text: fmt.Sprintf("it has no label %s=%s", k, c.want[k]),
				Hint: fmt.Sprintf("start a worker with --label %s=%s", k, c.want[k])}
		}
	}
	return wire.Reason{What: "label"}
}
