package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds the numbers of processors that are believed.
const maxCPU = 1 << 14

// Set is a set of processors, in order.
type Set []int

// ParseSet reads a list as the kernel writes it: "0-2,5". An empty one is the empty set.
func ParseSet(s string) (Set, error) {
	var out Set
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		if part == "" {
			continue
		}
		from, to, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if err == nil && ranged {
			b, err = strconv.Atoi(to)
		}
		if err != nil || a < 0 || b < a || b >= maxCPU {
			return nil, fmt.Errorf("%q is not a list of processors", s)
		}
		for n := a; n <= b; n++ {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// String writes a set as the kernel does.
func (s Set) String() string {
	var parts []string
	for i := 0; i < len(s); {
		j := i
		for j+1 < len(s) && s[j+1] == s[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(s[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", s[i], s[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// Minus gives those that are not in another set.
func (s Set) Minus(o Set) Set {
	var out Set
	for _, n := range s {
		if !slices.Contains(o, n) {
			out = append(out, n)
		}
	}
	return out
}

// and gives those that are in both.
func (s Set) and(o Set) Set { return s.Minus(s.Minus(o)) }

// Or gives those that are in either.
func (s Set) Or(o Set) Set {
	out := append(slices.Clone(s), o...)
	slices.Sort(out)
	return slices.Compact(out)
}
