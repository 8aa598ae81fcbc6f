// Package topology knows how a machine's processors hang together, and takes those for an instance that are to be its own. It reads what
// Linux tells below /sys/devices/system and changes nothing. Workers import it.
package topology

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Machine is the processors that are on, and which of them share what. Every processor is in one set of each list.
type Machine struct {
	Online Set
	Cores  []Set // hardware threads of one core
	Caches []Set // that share the largest cache
	Nodes  []Set // that have the same memory near
}

// Read reads a machine from /sys, or from a record of one. What is not told counts as not shared, but for memory, which all share then.
func Read(sys fs.FS) (*Machine, error) {
	machine := &Machine{}
	var err error
	if machine.Online, err = readSet(sys, "devices/system/cpu/online"); err != nil {
		return nil, err
	}
	if len(machine.Online) == 0 {
		return nil, errors.New("no processor is on")
	}
	for _, n := range machine.Online {
		dir := "devices/system/cpu/cpu" + strconv.Itoa(n)
		core, err := readSet(sys, dir+"/topology/thread_siblings_list")
		if err != nil {
			core = Set{n}
		}
		machine.Cores = machine.group(machine.Cores, n, core)
		cache, level := core, 0
		for i := range 10 {
			at := dir + "/cache/index" + strconv.Itoa(i)
			data, err := fs.ReadFile(sys, at+"/level")
			if err != nil {
				break
			}
			l, _ := strconv.Atoi(strings.TrimSpace(string(data)))
			if s, err := readSet(sys, at+"/shared_cpu_list"); err == nil && l > level {
				cache, level = s, l
			}
		}
		machine.Caches = machine.group(machine.Caches, n, cache)
	}
	nodes, _ := fs.Glob(sys, "devices/system/node/node[0-9]*/cpulist")
	left := machine.Online
	for _, file := range nodes {
		s, err := readSet(sys, file)
		if err != nil {
			return nil, err
		}
		if s = s.and(left); len(s) > 0 {
			machine.Nodes, left = append(machine.Nodes, s), left.Minus(s)
		}
	}
	if len(left) > 0 {
		machine.Nodes = append(machine.Nodes, left)
	}
	return machine, nil
}

// group puts a processor into the list with those that it shares something with, unless it is there already.
func (m *Machine) group(list []Set, n int, with Set) []Set {
	for _, s := range list {
		if slices.Contains(s, n) {
			return list
		}
	}
	with = with.Or(Set{n}).and(m.Online)
	for _, s := range list {
		with = with.Minus(s)
	}
	return append(list, with)
}

func readSet(sys fs.FS, name string) (Set, error) {
	data, err := fs.ReadFile(sys, name)
	if err != nil {
		return nil, err
	}
	return ParseSet(string(data))
}

// Lendable are the processors that instances may have for their own: all but one core, which the rest of the machine
// lives on. A machine of one core keeps one of its threads.
func (m *Machine) Lendable() Set {
	first := m.Cores[0]
	if len(m.Cores) == 1 {
		first = first[:1]
	}
	return m.Online.Minus(first)
}

// Take chooses n processors of those that are free, or gives nil where there are not as many. They come from as few memory nodes as
// possible, from the node and the cache that they fill best, in whole cores, and a last single thread from a core that is in use already:
// so that nobody else's work runs on a sibling, or throws out what they have cached (static CPU manager policy with whole cores, as in
// Kubernetes; the thesis, chapter 4, measures what it gives).
func (m *Machine) Take(free Set, n int) Set {
	free = free.and(m.Online)
	if n <= 0 || len(free) < n {
		return nil
	}
	for _, level := range [][]Set{m.Nodes, {m.Online}} {
		if within := tightest(level, free, n); within != nil {
			if cache := tightest(m.Caches, free.and(within), n); cache != nil {
				within = cache
			}
			return m.cores(free.and(within), n)
		}
	}
	return nil
}

// tightest gives the set with the fewest free processors of those that have enough; nil where none has.
func tightest(list []Set, free Set, n int) Set {
	var best Set
	room := 0
	for _, s := range list {
		if have := len(free.and(s)); have >= n && (best == nil || have < room) {
			best, room = s, have
		}
	}
	return best
}

// cores takes n of a set that has as many: whole cores first.
func (m *Machine) cores(free Set, n int) Set {
	var whole, parts []Set
	for _, c := range m.Cores {
		switch have := free.and(c); {
		case len(have) == len(c):
			whole = append(whole, have)
		case len(have) > 0:
			parts = append(parts, have)
		}
	}
	var out Set
	for _, c := range whole {
		if len(c) <= n-len(out) {
			out = out.Or(c)
		}
	}
	slices.SortStableFunc(parts, func(a, b Set) int { return cmp.Compare(len(a), len(b)) })
	for _, c := range append(parts, whole...) {
		for _, p := range c.Minus(out) {
			if len(out) < n {
				out = out.Or(Set{p})
			}
		}
	}
	return out
}
