package sched

import (
	"math"
	"math/rand/v2"
	"testing"

	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/spec"
)

func TestDistance(t *testing.T) {
	near := func(lat, lon, km float64) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) {
			s.Placement.Location, s.Placement.MaxDistance = &spec.Location{Lat: lat, Lon: lon}, km
		}
	}
	at := func(lat, lon float64) func(*Worker) {
		return func(w *Worker) { w.Location = &spec.Location{Lat: lat, Lon: lon} }
	}
	testRule(t, Distance{}, []ruleCase{
		{name: "no limit", spec: near(0, 0, 0), worker: at(50, 50)},
		{name: "within", spec: near(48, 11, 120), worker: at(49, 11)},
		{name: "beyond", spec: near(48, 11, 100), worker: at(49, 11), want: "distance: it is 111.2 km away, at most 100.0 km are allowed"},
		{name: "unknown", spec: near(48, 11, 100), want: "location: its location is not known"},
		{name: "off the earth counts as unknown", spec: near(48, 11, 100), worker: at(math.NaN(), 500), want: "location: its location is not known"},
		{name: "across the date line", spec: near(10, 179.9, 30), worker: at(10, -179.9)},
		{name: "across a pole", spec: near(89.9, 0, 30), worker: at(89.9, 180)},
		{name: "half around the world is never further", spec: near(0, 0, 20100), worker: at(0, 180)},
	})
}

func TestChordsAreGreatCircles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		a, b := spec.Location{Lat: 180*rng.Float64() - 90, Lon: 360*rng.Float64() - 180}, spec.Location{Lat: 180*rng.Float64() - 90, Lon: 360*rng.Float64() - 180}
		km := coord.GreatCircleKm(a, b)
		if got := kmOf(distance2(onSphere(a), onSphere(b))); math.Abs(got-km) > 0.01 && km < 19000 {
			t.Fatalf("%v to %v: %v km, want %v", a, b, got, km)
		}
		if got := kmOf(chord2(km)); math.Abs(got-km) > 0.01 && km < 19000 {
			t.Fatalf("%v km becomes %v", km, got)
		}
	}
}
