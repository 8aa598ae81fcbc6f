package lease

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
)

// What is due, and when the guard looks again: at the first end of a lease, and no earlier.
func TestJudge(t *testing.T) {
	const s = time.Second
	one := func(ending bool, main int) []Lease {
		return []Lease{{Instance: "a", Stop: 10 * s, Kill: 20 * s, Ending: ending, Main: main}}
	}
	for _, c := range []struct {
		name   string
		leases []Lease
		at     time.Duration // of the contact; negative: not known
		want   string
	}{
		{"in touch", one(false, 1), 100 * s, "signal [] kill [] at 110s"},
		{"just before", one(false, 1), 91 * s, "signal [] kill [] at 101s"},
		{"over", one(false, 1), 90 * s, "signal [a] kill [] at 110s"},
		{"the agent ends it", one(true, 1), 90 * s, "signal [] kill [] at 110s"},
		{"the agent has begun to end it early", one(true, 1), 99 * s, "signal [] kill [] at 119s"},
		{"nothing to signal", one(false, 0), 90 * s, "signal [] kill [] at 110s"},
		{"for good", one(false, 1), 80 * s, "signal [] kill [a] at 101s"},
		{"for good, though the agent ends it", one(true, 1), 80 * s, "signal [] kill [a] at 101s"},
		{"no contact", one(false, 1), -1, "signal [] kill [a] at 101s"},
		{"the first counts", append(one(false, 1), Lease{Instance: "b", Stop: 5 * s, Kill: 50 * s, Main: 1}), 98 * s, "signal [] kill [] at 103s"},
		{"each by itself", append(one(false, 1), Lease{Instance: "b", Stop: 5 * s, Kill: 50 * s, Main: 1}), 94 * s, "signal [b] kill [] at 104s"},
		{"none", nil, 0, "signal [] kill [] at 3700s"},
	} {
		due := Judge(c.leases, 100*s, func() (time.Duration, bool) { return c.at, c.at >= 0 })
		got := fmt.Sprintf("signal %v kill %v at %ds", ids(due.Signal), ids(due.Kill), due.Next/s)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func ids(list []End) []skerry.InstanceID {
	out := []skerry.InstanceID{}
	for _, e := range list {
		out = append(out, e.Instance)
	}
	return out
}

func FuzzContact(f *testing.F) {
	const boot = "b4c5"
	f.Add(boot + " 17")
	f.Add(boot + " -1")
	f.Add("other 17")
	f.Fuzz(func(t *testing.T, text string) {
		if at, ok := parseContact(text, boot); ok && (at < 0 || !strings.HasPrefix(strings.TrimLeft(text, " \t\r"), boot)) {
			t.Errorf("%q is %v", text, at)
		}
	})
}
