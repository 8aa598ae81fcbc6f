package sched

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

func TestLeastPower(t *testing.T) {
	draws := func(idle, busy float64) func(*Worker) {
		return func(w *Worker) { w.Power = &wire.Power{Idle: idle, Busy: busy} }
	}
	list := []*Worker{
		worker("a-server-on", 2000, skerry.GiB, draws(100, 300)),                   // adds a tenth of 200 W
		worker("b-board-asleep", 4000, 4*skerry.GiB, draws(3, 7)),                  // adds 0.4 W and wakes for 3 W
		worker("c-board-on", 2000, skerry.GiB, draws(3, 7)),                        // adds 0.4 W
		worker("d-server-asleep", 4000, 4*skerry.GiB, draws(100, 300)),             // 120 W
		worker("e-unknown", 2000, skerry.GiB), worker("f-odd", 1, 1, draws(9, -9)), // never less than nothing
	}
	checkOrder(t, "fewest watts", order(LeastPower{}, request(400, 1), list...), "f-odd c-board-on b-board-asleep a-server-on d-server-asleep e-unknown")
}
