package bench

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/sim"
)

// TestFleetSample measures a small fleet: its size, and what it cost, in words.
func TestFleetSample(t *testing.T) {
	s := fleetOf(t.Context(), sim.FleetOptions{Workers: 100, Clusters: 4, For: 10 * time.Minute})
	if s.err != nil || len(s.values) != 1 || s.values[0] != 100 {
		t.Fatalf("%+v", s)
	}
	for _, want := range []string{"4 clusters", "40 instances", "10m0s simulated", "sent by workers"} {
		if !strings.Contains(s.context, want) {
			t.Errorf("%q is not in %q", want, s.context)
		}
	}
}
