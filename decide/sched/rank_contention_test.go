package sched

import (
	"math"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

func TestLeastContention(t *testing.T) {
	cache := spec.Contention{Intensity: spec.Shares{Cache: 0.8}, Sensitivity: spec.Shares{Cache: 1}}
	disk := spec.Contention{Intensity: spec.Shares{Disk: 0.8}, Sensitivity: spec.Shares{Disk: 1}}
	with := func(c spec.Contention) func(*Worker) { return func(w *Worker) { w.Load = c } }
	list := []*Worker{worker("cache", 4000, skerry.GiB, with(cache)), worker("disk", 4000, skerry.GiB, with(disk)), worker("busy-idle", 1000, skerry.GiB)}
	r := request(100, 1)
	r.Contention = cache
	checkOrder(t, "unlike loads come together", order(LeastContention{}, r, list...), "disk busy-idle cache")
	r.Contention = disk
	checkOrder(t, "the other way", order(LeastContention{}, r, list...), "cache busy-idle disk")
	if got := Slowdown(cache, cache); math.Abs(got-1.6) > 1e-9 {
		t.Errorf("both slow each other down by 0.8: %v", got)
	}
	if got := Slowdown(cache, disk); got != 0 {
		t.Errorf("unlike loads: %v", got)
	}
	s := siteOf(list)
	s.SetLoad("disk", cache)
	s.SetLoad("cache", spec.Contention{})
	s.SetLoad("gone", cache)
	r.Contention = cache
	if d := s.Place(epoch, Policy{Rank: LeastContention{}}, r, 1); d.Chosen != "cache" {
		t.Errorf("after the loads changed: %s", d.Chosen)
	}
}
