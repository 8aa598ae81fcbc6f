package bench

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/sim"
)

// TestFleetSample measures a small fleet: its size, and what it cost, in words.
func TestFleetSample(t *testing.T) {
	r := newBudgets("")
	fleetOf(t.Context(), r, sim.FleetOptions{Workers: 100, Clusters: 4, For: 10 * time.Minute})
	f := r.Find("", "sim.fleet", "")
	if f.Skip != "" || len(f.Samples) != 1 || f.Samples[0] != 100 {
		t.Fatalf("a fleet of 100 gives %+v", f)
	}
	for _, want := range []string{"4 clusters", "40 instances", "10m0s simulated", "sent by workers"} {
		if !strings.Contains(f.About, want) {
			t.Errorf("%q is not in %q", want, f.About)
		}
	}
}
