package sched

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry/wire"
)

// miss counts the workers that one kind of reason rules out and remembers the nearest.
type miss struct {
	count int
	slot  int
	by    float64
	check Check
}

// tally counts misses by what they are about. Reasons are written for the nearest alone, because text costs more than
// the rest of a decision.
type tally struct {
	s     *Site
	last  string // what the one before was about, and its miss
	lastM *miss
	order []string
	by    map[string]*miss
}

func (t *tally) add(c Check, slot int) {
	if t.by == nil {
		t.by = map[string]*miss{}
	}
	what, by := c.Miss(slot)
	m := t.lastM
	if m == nil || what != t.last {
		m = t.by[what]
		if m == nil {
			m = &miss{0, slot, by, c}
			t.by[what] = m
			t.order = append(t.order, what)
		}
		t.last, t.lastM = what, m
	}
	m.count++
	if by < m.by || by == m.by && t.s.names[slot] < t.s.names[m.slot] {
		m.slot, m.by, m.check = slot, by, c
	}
}

// reasons gives the reasons, most frequent first. Neither they nor the nearest depend on the order in which workers came.
func (t *tally) reasons() []wire.Reason {
	out := make([]wire.Reason, 0, len(t.order))
	for _, k := range t.order {
		m := t.by[k]
		r := m.check.Reason(m.slot)
		r.Count = m.count
		if m.count > 1 {
			r.Text = fmt.Sprintf("%d workers: nearest: %s", m.count, r.Text)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b wire.Reason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.What, b.What))
	})
	return out
}

// whyNot tells what ruled the workers out, each counted under the first rule that it fails, with a few of them as
// examples.
func (q *Query) whyNot() ([]wire.Reason, []wire.Candidate) {
	s := q.Site
	if s.Len() == 0 {
		return []wire.Reason{{What: "workers", Text: "the site has no workers", Hint: "join one with `skerry token create --role worker`"}}, nil
	}
	t := tally{s: s}
	var examples []int
	count := func(c Check, b int, mask uint64) {
		for ; mask != 0; mask &= mask - 1 {
			n := b*64 + bits.TrailingZeros64(mask)
			t.add(c, n)
			examples = insertByName(s, examples, n)
		}
	}
	for b, mask := range s.live {
		if q.only >= 0 {
			if b != q.only/64 {
				continue
			}
			mask &= 1 << (q.only % 64)
		}
		kept := q.reach.Keep(b, mask)
		count(q.reach, b, mask&^kept)
		for _, c := range q.checks {
			if mask = kept; mask == 0 {
				break
			}
			kept = c.Keep(b, mask)
			count(c, b, mask&^kept)
		}
	}
	top := make([]wire.Candidate, 0, len(examples))
	for _, n := range examples {
		out := q.firstFailing(n).Reason(n)
		top = append(top, wire.Candidate{Name: s.names[n], Out: &out})
	}
	return t.reasons(), top
}

// insertByName keeps the first few by name, so that the examples do not depend on the order in which workers came.
func insertByName(s *Site, list []int, n int) []int {
	if len(list) == maxShown && s.names[n] > s.names[list[maxShown-1]] {
		return list
	}
	i, _ := slices.BinarySearchFunc(list, n, func(a, b int) int { return strings.Compare(s.names[a], s.names[b]) })
	list = slices.Insert(list, i, n)
	return list[:min(len(list), maxShown)]
}

// each visits the workers, or the only one.
func (s *Site) each(only int, visit func(n int)) {
	if only >= 0 {
		visit(only)
		return
	}
	for b, mask := range s.live {
		for ; mask != 0; mask &= mask - 1 {
			visit(b*64 + bits.TrailingZeros64(mask))
		}
	}
}

func fails(c Check, n int) bool { return c.Keep(n/64, 1<<(n%64)) == 0 }

func (q *Query) firstFailing(n int) Check {
	if fails(q.reach, n) {
		return q.reach
	}
	for _, c := range q.checks {
		if fails(c, n) {
			return c
		}
	}
	return nil
}

// Fails gives the first rule of a policy that a worker fails, or nil. Rules about who may take something new play no part.
func (s *Site) Fails(p Policy, r *Request, worker string) *wire.Reason {
	s.refresh()
	n := s.find(worker)
	if n < 0 {
		return nil
	}
	for _, c := range s.query(time.Time{}, p, r).checks {
		if fails(c, n) {
			out := c.Reason(n)
			return &out
		}
	}
	return nil
}

// Explain tells, for each class of workers, how many fit, what ruled the others out, and what change would make one fit.
// Workers are counted under every rule that they fail.
func (s *Site) Explain(now time.Time, policy Policy, req *Request) []wire.ClassVerdict {
	s.refresh()
	query := s.query(now, policy, req)
	type group struct {
		wire.ClassVerdict
		all, sole tally // sole: misses of workers that fail nothing else
	}
	groups, byKind := map[string]*group{}, make([]*group, len(s.kinds)) // kinds that differ in taints alone share a group
	checks := append([]Check{query.reach}, query.checks...)
	var failing []Check
	if query.only >= len(s.kindOf) {
		return nil
	}
	s.each(query.only, func(n int) {
		g := byKind[s.kindOf[n]]
		if g == nil {
			k := s.kinds[s.kindOf[n]]
			key := k.class.Arch + "|" + strings.Join(k.class.Runtimes, ",") + "|" + strings.Join(k.class.Devices, ",") + "|" + k.area + "|" +
				strconv.FormatBool(k.class.Egress) + strconv.FormatBool(k.levels) + "|" + strings.Join(k.class.Features, ",")
			if g = groups[key]; g == nil {
				g = &group{ClassVerdict: wire.ClassVerdict{Class: k.class, Area: k.area}, all: tally{s: s}, sole: tally{s: s}}
				groups[key] = g
			}
			byKind[s.kindOf[n]] = g
		}
		g.Workers++
		failing = failing[:0]
		for _, c := range checks {
			if fails(c, n) {
				failing = append(failing, c)
				g.all.add(c, n)
			}
		}
		switch len(failing) {
		case 0:
			score := query.rank.Score(n) * s.freshness(n, now.Unix())
			if g.Fits++; g.Fits == 1 {
				g.Best, g.Least = score, score
			}
			g.Best, g.Least = max(g.Best, score), min(g.Least, score)
		case 1:
			g.sole.add(failing[0], n)
		}
	})
	out := make([]wire.ClassVerdict, 0, len(groups))
	for _, g := range groups {
		g.Out = g.all.reasons()
		for i := range g.Out {
			// The nearest of those that fail nothing else is the one that a change would let in.
			if m := g.sole.by[g.Out[i].What]; m != nil {
				g.Out[i].Hint = m.check.Reason(m.slot).Hint
				g.Out[i].Sole = m.count
			}
		}
		out = append(out, g.ClassVerdict)
	}
	slices.SortFunc(out, func(a, b wire.ClassVerdict) int {
		return cmp.Or(cmp.Compare(b.Fits, a.Fits), cmp.Compare(b.Workers, a.Workers), strings.Compare(a.Class.Arch, b.Class.Arch),
			strings.Compare(strings.Join(a.Class.Runtimes, ","), strings.Join(b.Class.Runtimes, ",")),
			strings.Compare(strings.Join(a.Class.Devices, ","), strings.Join(b.Class.Devices, ",")), strings.Compare(a.Area, b.Area))
	})
	return out
}
