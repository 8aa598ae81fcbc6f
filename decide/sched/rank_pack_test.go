package sched

import (
	"testing"

	"skerry.dev/skerry"
)

func TestPack(t *testing.T) {
	empty := worker("empty", 4000, 4*skerry.GiB)
	used := worker("used", 3900, 4*skerry.GiB)
	full := worker("full", 1000, skerry.GiB)
	small := worker("small", 1000, skerry.GiB, func(w *Worker) { w.Capacity = w.Available })
	checkOrder(t, "in use first, the fullest before", order(Pack{}, request(500, skerry.GiB), empty, used, full), "full used empty")
	checkOrder(t, "the one with the most room is opened", order(Pack{}, request(500, 512*skerry.MiB), small, empty), "empty small")
	checkOrder(t, "an empty one is not in use, however full it gets", order(Pack{}, request(1000, skerry.GiB), small, used), "used small")
	bare := worker("bare", 4000, 0, func(w *Worker) { w.Capacity.Memory = 0 })
	checkOrder(t, "nor is one without any memory", order(Pack{}, request(500, 0), bare, used), "used bare")
}
