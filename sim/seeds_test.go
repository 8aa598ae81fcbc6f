package sim

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
)

// TestFreshSeeds runs seeds that nobody has tried: 20, more among long tests, or SKERRY_SIM_SEEDS, from one made of the time, or SKERRY_SIM_SEED. What
// fails is printed with the smallest scenario that does, which belongs into testdata with the repair. One, or one in 200, is reported: it is no
// fault of the change that met it, which another run would not. More fail the test. `skerry sim` and `make sim-long` fail for any.
func TestFreshSeeds(t *testing.T) {
	first, count := fresh(time.Now()), testenv.Times(20, 1000)
	if s, err := strconv.ParseUint(os.Getenv("SKERRY_SIM_SEED"), 10, 64); err == nil {
		first = s
	}
	if n, err := strconv.Atoi(os.Getenv("SKERRY_SIM_SEEDS")); err == nil {
		count = n
	}
	r := Sweep(t.Context(), SweepOptions{First: first, Seeds: count, Parallel: runtime.GOMAXPROCS(0), Minimise: 300})
	for _, f := range r.Failures {
		say := t.Errorf
		if len(r.Failures) <= max(1, count/200) {
			say = t.Logf
		}
		say("REPORT: seed %d: %v\nskerry sim --seed %d --until %d shows it; the smallest scenario found:\n\n%s", f.Seed, f.Broken, f.Seed, f.Broken.Step, f.Scenario)
	}
	t.Logf("%d seeds from %d: %d actions, %d changes acknowledged, %d steps, %s simulated; the slowest fleet was right again after %s",
		r.Seeds, r.First, r.Actions, r.Acked, r.Steps, r.Simulated, r.Converged)
	if r.Seeds != count || r.Acked == 0 {
		t.Errorf("%d seeds ran, %d changes were acknowledged", r.Seeds, r.Acked)
	}
}

// TestSameSeedSameSteps: whoever replays a seed sees what the one saw whom it failed, byte for byte.
func TestSameSeedSameSteps(t *testing.T) {
	for seed := range uint64(testenv.Times(4, 30)) {
		a, b := Run(Generate(seed), RunOptions{}), Run(Generate(seed), RunOptions{})
		if a.Trail != b.Trail || a.Steps != b.Steps {
			t.Errorf("seed %d: %d steps, then %d; %s, then %s", seed, a.Steps, b.Steps, a.Trail, b.Trail)
		}
		c := Run(Generate(seed), RunOptions{Until: a.Steps / 2})
		if c.Steps != a.Steps/2 {
			t.Errorf("seed %d: asked to end at step %d, it ended at %d", seed, a.Steps/2, c.Steps)
		}
	}
}
