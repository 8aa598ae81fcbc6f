package coord

import (
	"math"
	"testing"

	"skerry.dev/skerry/spec"
)

func TestGreatCircle(t *testing.T) {
	for _, c := range []struct {
		a, b spec.Location
		km   float64
	}{
		{spec.Location{Lat: 48.1374, Lon: 11.5755}, spec.Location{Lat: 52.52, Lon: 13.405}, 504},
		{spec.Location{Lat: 0, Lon: 0}, spec.Location{Lat: 0, Lon: 180}, math.Pi * EarthRadiusKm},
		{spec.Location{Lat: 90, Lon: 0}, spec.Location{Lat: -90, Lon: 77}, math.Pi * EarthRadiusKm},
		{spec.Location{Lat: 10, Lon: 179.9}, spec.Location{Lat: 10, Lon: -179.9}, 21.9},
		{spec.Location{Lat: 48, Lon: 11}, spec.Location{Lat: 48, Lon: 11}, 0},
	} {
		if got := GreatCircleKm(c.a, c.b); math.Abs(got-c.km) > 1 {
			t.Errorf("%v to %v: %.1f km, want %.1f", c.a, c.b, got, c.km)
		}
		if GreatCircleKm(c.a, c.b) != GreatCircleKm(c.b, c.a) {
			t.Error("the way back is longer")
		}
	}
}

func TestCentroidAcrossTheDateLine(t *testing.T) {
	c, r, ok := Centroid([]spec.Location{{Lat: 0, Lon: 179}, {Lat: 0, Lon: -179}})
	if !ok || math.Abs(math.Abs(c.Lon)-180) > 0.01 || math.Abs(r-111.2) > 1 {
		t.Errorf("%+v %.1f %v", c, r, ok)
	}
	if _, _, ok := Centroid(nil); ok {
		t.Error("no points have a middle")
	}
}
