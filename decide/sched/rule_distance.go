package sched

import (
	"fmt"
	"math"
	"math/bits"

	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/wire"
)

// Distance rules out workers too far from the location asked for (Schema 1: location and threshold).
type Distance struct{}

func (Distance) Name() string { return "distance" }

func (Distance) Lasting() bool { return true }

func (Distance) For(q *Query) Check {
	p := &q.Spec.Placement
	if p.Location == nil || p.MaxDistance == 0 {
		return nil
	}
	return &distance{q.Site, onSphere(*p.Location), chord2(p.MaxDistance), p.MaxDistance}
}

type distance struct {
	s      *Site
	from   [3]float32
	chord2 float64
	km     float64
}

// chord2 gives the square of the straight line, on the unit sphere, between two points so many kilometres apart along
// the great circle.
func chord2(km float64) float64 {
	half := km / (2 * coord.EarthRadiusKm)
	if half >= math.Pi/2 {
		return 4.0001 // nothing is further
	}
	c := 2 * math.Sin(half)
	return c * c
}

// kmOf is the inverse of chord2.
func kmOf(c2 float64) float64 {
	return 2 * coord.EarthRadiusKm * math.Asin(math.Min(1, math.Sqrt(c2)/2))
}

func (c *distance) Impossible(sum *summary) bool {
	return boxDistance2(c.from, sum.atLo, sum.atHi) > c.chord2
}

func (c *distance) Keep(b int, mask uint64) uint64 {
	if c.Impossible(&c.s.blocks[b]) {
		return 0
	}
	for left := mask; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		if p := c.s.at[b*64+i]; p == ([3]float32{}) || !(distance2(p, c.from) <= c.chord2) {
			mask &^= 1 << i
		}
	}
	return mask
}

func (c *distance) Miss(n int) (string, float64) {
	if c.s.at[n] == ([3]float32{}) {
		return "location", 1
	}
	return "distance", distance2(c.s.at[n], c.from) - c.chord2
}

func (c *distance) Reason(n int) wire.Reason {
	if c.s.at[n] == ([3]float32{}) {
		return wire.Reason{What: "location", Text: "its location is not known", Hint: "start the worker with --location LAT,LON"}
	}
	km := kmOf(distance2(c.s.at[n], c.from))
	return wire.Reason{What: "distance", Text: fmt.Sprintf("it is %.1f km away, at most %.1f km are allowed", km, c.km),
		Hint: fmt.Sprintf("raise placement.maxDistance to %.0f or add a worker nearer", math.Ceil(km))}
}
