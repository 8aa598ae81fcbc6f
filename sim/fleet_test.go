package sim

import (
	"testing"
	"time"
)

// TestFleet: a small fleet comes up, loses machines, and has all instances at the end; an idle worker says no more than it should.
func TestFleet(t *testing.T) {
	r, err := Fleet(t.Context(), FleetOptions{Workers: 200, Clusters: 4, For: 20 * time.Minute, Failures: 5})
	if err != nil {
		t.Fatal(err)
	}
	if r.Failures != 5 || r.Instances != 40 {
		t.Errorf("%d failures, %d instances", r.Failures, r.Instances)
	}
	// Reports every 30 s, and an answer now and then.
	if per := float64(r.Traffic["worker"].Messages) / 200 / 20; per > 3 {
		t.Errorf("a worker sends %.1f messages a minute", per)
	}
	if _, err := Fleet(t.Context(), FleetOptions{Workers: 1, Clusters: 2}); err == nil {
		t.Error("one worker is in two clusters")
	}
}

func BenchmarkFleet(b *testing.B) {
	for b.Loop() {
		r, err := Fleet(b.Context(), FleetOptions{Workers: 2000, Clusters: 20, Progress: func(s string) { b.Log(s) }})
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("%+v", r)
		for t, x := range r.Traffic {
			b.Log(t, x.Messages, x.Bytes)
		}
	}
}
