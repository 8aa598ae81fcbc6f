package coord

import (
	"math"
	"math/rand/v2"
	"testing"

	"skerry.dev/skerry"
)

// Round trips made from a known place lead back to it.
func TestTrilaterateFindsThePlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	at := func() (c skerry.Coordinate) {
		for i := range c.Vec {
			c.Vec[i] = rng.Float64()*100 - 50
		}
		c.Height = rng.Float64() * 5
		return c
	}
	missed := 0
	for range 200 {
		user := at()
		var from []skerry.Coordinate
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
	from := []skerry.Coordinate{{}, {Vec: [3]float64{10}}, {Vec: [3]float64{0, 10}}, {Vec: [3]float64{0, 0, 10}}, {Vec: [3]float64{10, 10, 10}}}
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
