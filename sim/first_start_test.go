package sim

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// TestKilledInAFirstStart: the agent is killed when a container has started and before it knows. Its next life takes the container up, and
// starts no other; a power cut at that moment ends it, and it starts anew.
func TestKilledInAFirstStart(t *testing.T) {
	for _, c := range []struct {
		name   string
		power  bool
		starts int
	}{{"agent", false, 1}, {"power", true, 2}} {
		t.Run(c.name, func(t *testing.T) {
			w := New(5)
			w.UseNetwork()
			w.AddCluster("a")
			worker := w.AddWorker("a", "w1", facts(2000))
			w.Run(30 * time.Second)
			starts := 0
			w.Machine.Started = func(*spec.Assignment, string, int) {
				if starts++; starts == 1 {
					w.crash(worker, c.power)
				}
			}
			w.must(t, w.Root, app("shop", 1))
			w.Run(100 * time.Millisecond)
			if starts != 1 || worker.Up {
				t.Fatalf("%d starts, the agent runs: %v; want one, and no agent", starts, worker.Up)
			}
			w.boot(worker)
			w.Run(time.Minute)
			for _, i := range w.RootCore().Apps.Instances(web("shop")) {
				if i.State != skerry.Running || i.Restarts != 0 {
					t.Errorf("%s is %s after %d restarts, want it running after none", i.ID, i.State, i.Restarts)
				}
			}
			if starts != c.starts || worker.Tasks() != 1 {
				t.Errorf("%d starts, %d tasks; want %d and one", starts, worker.Tasks(), c.starts)
			}
		})
	}
}
