package sim

import (
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestPerDeviceOutOfTouch: the site's store does not have all that a worker tells of its devices. A site that restarts while a worker is
// out of touch keeps the copies there: nobody said that their devices have gone.
func TestPerDeviceOutOfTouch(t *testing.T) {
	world := newPlant(t, map[string][]string{"w1": {"a"}, "w2": {"b", "c@10.0.0.7"}})
	starts := 0
	world.Machine.Exit = func(*spec.Assignment, string, int) (time.Duration, wire.Exit) {
		starts++
		return -1, wire.Exit{}
	}
	world.apply("x:1")
	world.Run(30 * time.Second)
	first := world.serves("at first", "w1 a x:1", "w2 b x:1", "w2 c x:1")
	world.Cut(world.Workers["a/w2"])
	world.Run(3 * time.Minute)
	world.Restart(world.Clusters["a"], nil)
	world.Run(5 * time.Minute)
	world.counts("out of touch", 1, 3, "Degraded")
	world.Heal(world.Workers["a/w2"])
	world.Run(time.Minute)
	for device, id := range world.serves("back", "w1 a x:1", "w2 b x:1", "w2 c x:1") {
		if id != first[device] {
			t.Errorf("back: %s has instance %q, want %q as before", device, id, first[device])
		}
	}
	if starts != 3 {
		t.Errorf("instances started %d times, want 3 times: none was to end", starts)
	}
}
