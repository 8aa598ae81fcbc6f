package coord

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"skerry.dev/skerry/spec"
)

// Round trips made from a known place lead back to it.
func TestTrilaterateFindsThePlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	at := func() (c spec.Coordinate) {
		for i := range c.Vec {
			c.Vec[i] = rng.Float64()*100 - 50
		}
		c.Height = rng.Float64() * 5
		return c
	}
	missed := 0
	for range 200 {
		user := at()
		var from []spec.Coordinate
		var rtt []float64
		for range 8 {
			w := at()
			from, rtt = append(from, w), append(rtt, w.RTT(user))
		}
		got, residual := Trilaterate(from, rtt)
		far := 0.0
		for i := range got.Vec {
			far += (got.Vec[i] - user.Vec[i]) * (got.Vec[i] - user.Vec[i])
		}
		if math.Sqrt(far) > 0.5 || residual > 0.5 || math.Abs(got.Height-user.Height) > 0.5 {
			missed++
		}
	}
	if missed > 4 {
		t.Errorf("%d of 200 places were missed", missed)
	}
}

func TestTrilaterateReportsWhatIsLeftOver(t *testing.T) {
	from := []spec.Coordinate{{}, {Vec: [3]float64{10}}, {Vec: [3]float64{0, 10}}, {Vec: [3]float64{0, 0, 10}}, {Vec: [3]float64{10, 10, 10}}}
	// Nobody is 1 ms from two points that are 10 ms apart.
	if _, residual := Trilaterate(from, []float64{1, 1, 1, 1, 1}); residual < 1 {
		t.Errorf("residual %v for round trips that cannot be", residual)
	}
	if c, residual := Trilaterate(from[:1], []float64{7}); residual > 0.01 || math.Abs(c.RTT(from[0])-7) > 0.01 {
		t.Errorf("one round trip: %+v, %v", c, residual)
	}
	for _, rtt := range [][]float64{nil, {math.NaN()}, {-1}, {math.Inf(1)}, {0}} {
		if _, residual := Trilaterate(from[:1], rtt); !math.IsInf(residual, 1) {
			t.Errorf("%v: residual %v", rtt, residual)
		}
	}
}

// Round trips err by a tenth: the place is missed by no more than that, and the residual tells.
func TestTrilaterateWithNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, anchors := range []int{4, 5, 8, 16} {
		var off, residuals []float64
		for range 200 {
			user := spec.Coordinate{Vec: [3]float64{rng.Float64()*100 - 50, rng.Float64()*100 - 50, rng.Float64()*100 - 50}, Height: 2}
			var from []spec.Coordinate
			var rtt []float64
			for range anchors {
				w := spec.Coordinate{Vec: [3]float64{rng.Float64()*100 - 50, rng.Float64()*100 - 50, rng.Float64()*100 - 50}, Height: 1}
				from, rtt = append(from, w), append(rtt, w.RTT(user)*(1+0.1*rng.NormFloat64()))
			}
			got, residual := Trilaterate(from, rtt)
			// What counts is how well round trips to other places are told.
			other := spec.Coordinate{Vec: [3]float64{rng.Float64()*100 - 50, rng.Float64()*100 - 50, rng.Float64()*100 - 50}}
			off, residuals = append(off, math.Abs(got.RTT(other)-user.RTT(other))/user.RTT(other)), append(residuals, residual)
			if !got.Valid() {
				t.Fatalf("%+v", got)
			}
		}
		slices.Sort(off)
		slices.Sort(residuals)
		fmt.Fprintf(t.Output(), "%2d anchors: round trips told with a median error of %.1f %%, p90 %.1f %%, residual %.1f ms\n", anchors, 100*off[100], 100*off[180], residuals[100])
		if most := map[int]float64{4: 0.25, 5: 0.2, 8: 0.15, 16: 0.1}[anchors]; off[100] > most {
			t.Errorf("%d anchors: median error %.1f %%", anchors, 100*off[100])
		}
	}
}

// Anchors in a plane see two places, one on each side: both fit, and either is given, with no residual.
func TestTrilaterateMirrored(t *testing.T) {
	from := []spec.Coordinate{{Vec: [3]float64{0, 0, 0}}, {Vec: [3]float64{100, 0, 0}}, {Vec: [3]float64{0, 100, 0}}, {Vec: [3]float64{100, 90, 0}}, {Vec: [3]float64{50, 20, 0}}}
	user := spec.Coordinate{Vec: [3]float64{30, 40, 60}}
	var rtt []float64
	for _, c := range from {
		rtt = append(rtt, c.RTT(user))
	}
	got, residual := Trilaterate(from, rtt)
	up, down := user, user
	down.Vec[2] = -down.Vec[2]
	if got.Height > 1 {
		t.Logf("a height stands for the side: %+v", got)
	}
	if residual > 0.5 || min(got.RTT(up), got.RTT(down)) > 5+got.Height {
		t.Errorf("%+v with residual %v", got, residual)
	}
}

// With fewer anchors than unknowns the round trips still fit.
func TestTrilaterateFromFew(t *testing.T) {
	from := []spec.Coordinate{{Vec: [3]float64{0, 0, 0}}, {Vec: [3]float64{80, 0, 0}}}
	for n := range len(from) {
		got, residual := Trilaterate(from[:n+1], []float64{30, 60}[:n+1])
		if residual > 0.1 || !got.Valid() {
			t.Errorf("%d anchors: %+v, residual %v", n+1, got, residual)
		}
	}
	// Two at one place that disagree: between them.
	got, residual := Trilaterate([]spec.Coordinate{from[0], from[0]}, []float64{10, 20})
	if d := got.RTT(from[0]); d < 10 || d > 20 || residual < 1 {
		t.Errorf("%v ms away, residual %v", d, residual)
	}
}
