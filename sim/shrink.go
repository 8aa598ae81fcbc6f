package sim

import (
	"slices"
	"strings"
	"time"
)

// Minimise gives the smallest scenario that it finds which breaks the same invariant: it leaves out actions, then workers and
// sites, by delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002), and then shortens
// the times between them. tries, if greater than 0, bounds the runs; progress, if not nil, is told how many actions are left.
func Minimise(s *Scenario, opt RunOptions, invariant string, tries int, progress func(left, runs int)) *Scenario {
	m := &minimiser{opt: opt, invariant: invariant, tries: tries, progress: progress, best: s}
	m.opt.Trace, m.opt.Until = nil, 0
	for {
		before := m.best.String()
		m.actions()
		m.fleet()
		m.times()
		if m.best.String() == before || m.spent() {
			return m.best
		}
	}
}

type minimiser struct {
	opt       RunOptions
	invariant string
	tries     int
	runs      int
	progress  func(left, runs int)
	best      *Scenario
}

func (m *minimiser) spent() bool { return m.tries > 0 && m.runs >= m.tries }

// breaks keeps a scenario if it breaks the invariant, too.
func (m *minimiser) breaks(s *Scenario) bool {
	if m.spent() {
		return false
	}
	m.runs++
	b := Run(s, m.opt).Broken
	if b == nil || b.Invariant != m.invariant {
		return false
	}
	m.best = s
	if m.progress != nil {
		m.progress(len(s.Actions), m.runs)
	}
	return true
}

func (m *minimiser) with(list []Action) *Scenario {
	s := *m.best
	s.Actions = list
	return &s
}

// actions leaves out parts of the list, from halves down to single ones.
func (m *minimiser) actions() {
	if m.breaks(m.with(nil)) {
		return
	}
	for n := 2; len(m.best.Actions) > 1 && !m.spent(); {
		list := m.best.Actions
		size := max(1, (len(list)+n-1)/n)
		smaller := false
		for at := 0; at < len(list) && !smaller; at += size {
			rest := slices.Concat(list[:at], list[min(at+size, len(list)):])
			smaller = m.breaks(m.with(rest))
		}
		switch {
		case smaller:
			n = max(n-1, 2)
		case size == 1:
			return
		default:
			n = min(2*n, len(list))
		}
	}
}

// fleet leaves out workers and sites.
func (m *minimiser) fleet() {
	for i := len(m.best.Workers) - 1; i >= 0; i-- {
		m.without(m.best.Workers[i].Name)
	}
	for i := len(m.best.Sites) - 1; i >= 0 && len(m.best.Sites) > 1; i-- {
		m.without(m.best.Sites[i])
	}
}

// without leaves out a node and all that is about it.
func (m *minimiser) without(name string) {
	s := *m.best
	s.Sites = slices.DeleteFunc(slices.Clone(s.Sites), func(x string) bool { return x == name })
	s.Workers = slices.DeleteFunc(slices.Clone(s.Workers), func(x Machinery) bool { return x.Name == name || strings.HasPrefix(x.Name, name+"/") })
	s.Actions = slices.DeleteFunc(slices.Clone(s.Actions), func(a Action) bool {
		return a.Target == name || strings.HasPrefix(a.Target, name+"/") || a.Args["owner"] == name
	})
	m.breaks(&s)
}

// times takes the waits out, or rounds them.
func (m *minimiser) times() {
	for i := range m.best.Actions {
		before := time.Duration(0)
		if i > 0 {
			before = m.best.Actions[i-1].At
		}
		wait := m.best.Actions[i].At - before
		for _, to := range []time.Duration{0, 100 * time.Millisecond, time.Second, wait.Round(time.Second), wait.Round(100 * time.Millisecond)} {
			if to >= wait {
				continue
			}
			list := slices.Clone(m.best.Actions)
			for j := i; j < len(list); j++ {
				list[j].At -= wait - to
			}
			if m.breaks(m.with(list)) {
				break
			}
		}
	}
}
