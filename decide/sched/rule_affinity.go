package sched

import (
	"fmt"
	"math/bits"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Affinity keeps instances beside, or apart from, services of the same application with the labels named. Where no
// instance of such a service is placed yet, affinity binds nobody: the other one may come second.
type Affinity struct{}

func (Affinity) Name() string { return "affinity" }

func (Affinity) Lasting() bool { return false }

func (Affinity) For(q *Query) Check {
	c := &affinity{s: q.Site}
	for _, a := range q.Spec.Placement.Affinity {
		if !a.Preferred {
			if p := q.places(a); p.any {
				c.beside = append(c.beside, p)
			}
		}
	}
	for _, a := range q.Spec.Placement.AntiAffinity {
		if !a.Preferred {
			if p := q.places(a); p.any {
				c.apart = append(c.apart, p)
			}
		}
	}
	if len(c.beside)+len(c.apart) == 0 {
		return nil
	}
	return c
}

// places is where the peers meant by one affinity are.
type places struct {
	labels map[string]string
	over   string
	slots  map[int]int    // by slot: how many
	areas  map[string]int // by area, when over is area
	any    bool
}

// places finds the peers that an affinity means.
func (q *Query) places(a spec.Affinity) places {
	p := places{labels: a.Labels, over: a.Over, slots: map[int]int{}, areas: map[string]int{}}
	for _, peer := range q.peers {
		if peer.slot < 0 || !spec.HasLabels(peer.Labels, a.Labels) {
			continue
		}
		p.any = true
		p.slots[peer.slot]++
		if area := q.Site.areaOf(peer.slot); area != "" {
			p.areas[area]++
		}
	}
	return p
}

func (s *Site) areaOf(n int) string { return s.kinds[s.kindOf[n]].area }

// at counts the peers in the same place as a worker.
func (p *places) at(s *Site, n int) int {
	if p.over == "area" {
		return p.areas[s.areaOf(n)]
	}
	return p.slots[n]
}

type affinity struct {
	s             *Site
	beside, apart []places
}

func (c *affinity) Impossible(*summary) bool { return false }

func (c *affinity) Keep(b int, mask uint64) uint64 {
	for left := mask; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		if p, _ := c.broken(b*64 + i); p != nil {
			mask &^= 1 << i
		}
	}
	return mask
}

// broken gives a condition that a worker does not meet, and whether it is one of keeping apart.
func (c *affinity) broken(n int) (*places, bool) {
	for i := range c.beside {
		if c.beside[i].at(c.s, n) == 0 {
			return &c.beside[i], false
		}
	}
	for i := range c.apart {
		if c.apart[i].at(c.s, n) > 0 {
			return &c.apart[i], true
		}
	}
	return nil, false
}

func (c *affinity) Miss(n int) (string, float64) {
	if _, apart := c.broken(n); apart {
		return "antiAffinity", 1
	}
	return "affinity", 1
}

func (c *affinity) Reason(n int) wire.Reason {
	p, apart := c.broken(n)
	if p == nil {
		return wire.Reason{What: "affinity"}
	}
	if apart {
		return wire.Reason{What: "antiAffinity", Text: fmt.Sprintf("its %s has an instance with labels %s already", overName(p.over),
			spec.LabelText(p.labels)), Hint: "add a worker, ask for fewer replicas, or set preferred: true"}
	}
	text := fmt.Sprintf("its %s has no instance with labels %s", overName(p.over), spec.LabelText(p.labels))
	return wire.Reason{What: "affinity", Text: text, Hint: "set preferred: true to do without"}
}

func overName(over string) string {
	if over == "area" {
		return "area"
	}
	return "worker"
}
