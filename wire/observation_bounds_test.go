package wire

import (
	"math"
	"testing"

	"skerry.dev/skerry/spec"
)

// What a manifest may ask for is told of whole.
func TestBoundOfPorts(t *testing.T) {
	for said, want := range map[int]int{spec.MaxPorts: spec.MaxPorts, spec.MaxPorts + 1: spec.MaxPorts} {
		o := Observation{Ports: make([]PortBinding, said)}
		if o.Bound(); len(o.Ports) != want {
			t.Errorf("of %d ports %d are kept, want %d", said, len(o.Ports), want)
		}
	}
}

// What a child counts is neither negative nor so large that sums of it are: parents double times by it and add it up.
func TestBoundOfCounts(t *testing.T) {
	for _, n := range []int{math.MinInt, -1, 0, 7, math.MaxInt} {
		o := Observation{Restarts: n, Want: n, Have: n}
		o.Bound()
		for _, got := range []int{o.Restarts, o.Want, o.Have} {
			if want := min(max(n, 0), maxSaidCount); got != want {
				t.Errorf("%d became %d, want %d", n, got, want)
			}
		}
	}
}
