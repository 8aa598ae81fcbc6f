package sched

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

func TestFits(t *testing.T) {
	list := func() []*Worker {
		return []*Worker{worker("a-empty", 4000, 4*skerry.GiB), worker("b-half", 2000, 2*skerry.GiB), worker("c-full", 600, skerry.GiB),
			worker("d-no-cpu", 0, skerry.GiB, func(w *Worker) { w.Capacity.CPU = 0 }), worker("e-nothing", 0, 0, func(w *Worker) { w.Capacity = spec.Resources{} })}
	}
	r := request(500, skerry.GiB)
	// A worker without any CPU is judged by its memory (full after placing), one with nothing as empty.
	checkOrder(t, "best fit", order(BestFit{}, r, list()...), "d-no-cpu c-full b-half a-empty e-nothing")
	checkOrder(t, "worst fit", order(WorstFit{}, r, list()...), "e-nothing a-empty b-half c-full d-no-cpu")
	checkOrder(t, "first fit", order(FirstFit{}, r, list()...), "a-empty=b-half=c-full=d-no-cpu=e-nothing")
}

func TestFitLooksAtShares(t *testing.T) {
	small := worker("small", 1000, skerry.GiB, func(w *Worker) { w.Capacity = w.Available })
	large := worker("large", 8000, 8*skerry.GiB, func(w *Worker) { w.Capacity = w.Available })
	checkOrder(t, "best fit takes the one that it fills", order(BestFit{}, request(500, 512*skerry.MiB), small, large), "small large")
}
