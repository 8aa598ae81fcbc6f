package core

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Instances wait in this order, in whichever order they came: the important, those whose deadline is near, the old, those with few places to
// go to, the large.
func TestWaitingInOrder(t *testing.T) {
	now := time.Unix(1e9, 0)
	wait := func(cpu skerry.MilliCPU, age time.Duration, edit func(*placement)) *placement {
		p := &placement{Created: now.Add(-age)}
		p.A.Spec.Resources.CPU = cpu
		edit(p)
		return p
	}
	due := func(in, takes time.Duration) func(*placement) {
		return func(p *placement) {
			p.A.Due, p.A.Spec.Job = now.Add(in), &spec.JobSpec{Estimate: new(spec.Duration(takes))}
		}
	}
	plain := func(*placement) {}
	want := []*placement{
		wait(100, 0, func(p *placement) { p.A.Spec.Placement.Priority = 5 }),
		wait(100, 0, due(time.Hour, 50*time.Minute)),
		wait(100, time.Hour, due(30*time.Minute, time.Minute)),
		wait(100, time.Minute, plain),
		wait(100, 0, func(p *placement) { p.Pinned = "w1" }),
		wait(100, 0, func(p *placement) { p.A.Spec.Placement.Labels = map[string]string{"disk": "fast"} }),
		wait(4000, 0, func(p *placement) { p.A.Spec.Placement.Area = "north" }),
		wait(4000, 0, plain),
		wait(2000, 0, plain),
		wait(100, 0, plain),
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		got := slices.Clone(want)
		rng.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortStableFunc(got, func(a, b *placement) int { return placeBefore(now, a, b) })
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("place %d is taken by that of place %d", i, slices.Index(want, got[i]))
			}
		}
	}
}
