package ctl

import (
	"math"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// TestBarsOfADay: each hour has its place, the last sign is now, an hour without a point is a dot, and the height is the share of the
// capacity.
func TestBarsOfADay(t *testing.T) {
	now := time.Date(2026, 11, 28, 17, 40, 0, 0, time.UTC)
	at := func(hours int, m skerry.MilliCPU) view.HistoryPoint {
		return view.HistoryPoint{At: now.Truncate(time.Hour).Add(time.Duration(-hours) * time.Hour), CPU: m}
	}
	cpu := func(p *view.HistoryPoint) int64 { return int64(p.CPU) }
	for _, c := range []struct {
		name     string
		points   []view.HistoryPoint
		capacity int64
		want     string
	}{
		{"nothing", nil, 4000, "························"},
		{"now", []view.HistoryPoint{at(0, 2000)}, 4000, "·······················▅"},
		{"a day",
			[]view.HistoryPoint{at(24, 4000), at(23, 4000), at(2, 0), at(1, 1000), at(0, 4000)}, 4000, "█····················▁▃█"},
		{"no capacity: the most is all", []view.HistoryPoint{at(1, 10), at(0, 20)}, 0, "······················▅█"},
		{"more than there is", []view.HistoryPoint{at(1, 4000), at(0, 8000)}, 4000, "······················▅█"},
		{"the clock was ahead", []view.HistoryPoint{at(-3, 4000)}, 4000, "························"},
		{"more than any machine has", []view.HistoryPoint{at(1, 1), at(0, math.MaxInt64)}, 4000, "······················▁█"},
		{"below zero", []view.HistoryPoint{at(0, -5)}, 4000, "·······················▁"},
	} {
		if got := drawBars(c.points, cpu, c.capacity, now); got != c.want {
			t.Errorf("%s: got bars %q, want %q", c.name, got, c.want)
		}
	}
}

// TestHistoryTable: a row for the site and each worker; of one without points nothing but its name is known, and of one
// that is away nothing of now.
func TestHistoryTable(t *testing.T) {
	now := time.Date(2026, 11, 28, 17, 40, 0, 0, time.UTC)
	capacity := spec.Resources{CPU: 4000, Memory: 8 * skerry.GiB}
	points := []view.HistoryPoint{
		{At: now.Add(-100 * time.Minute), CPU: 3100, Memory: skerry.GiB, Storage: skerry.GiB, Instances: 2, Restarts: 3},
		{At: now.Truncate(time.Hour), CPU: 500, Memory: 4 * skerry.GiB, Storage: 20 * skerry.GiB, Instances: 5,
			Restarts: 1, RTTMs: 1.25}}
	gone := []view.HistoryPoint{{At: now.Truncate(time.Hour).Add(-5 * time.Hour), CPU: 2000, Memory: skerry.GiB, Storage: skerry.GiB,
		Instances: 7, Restarts: 2, RTTMs: 3}}
	var out strings.Builder
	list := []view.HistorySeries{{Capacity: capacity, Points: points}, {Worker: "w1"}, {Worker: "w2", Capacity: capacity, Points: gone}}
	historyTable(list, now).print(&out, false, true)
	want := `
NAME     CPU, 24 HOURS              LAST   MOST    MEMORY, 24 HOURS           LAST   MOST   STORAGE   INSTANCES   RESTARTS   RTT
(site)   ······················▇▂   500m   3100m   ······················▂▅   4Gi    4Gi    20Gi      5           4          1.2ms
w1       -                          -      -       -                          -      -      -         -           -          -
w2       ··················▅·····   -      2       ··················▂·····   -      1Gi    -         -           2          -
`
	if got := out.String(); got != want[1:] {
		t.Errorf("got table\n%s\nwant\n%s", got, want[1:])
	}
}
