// Package coord measures distances on the earth and in the network. It is pure; sched and the cores import it.
package coord

import (
	"math"

	"skerry.dev/skerry/spec"
)

// EarthRadiusKm is the mean radius of the earth as a sphere, in kilometres (IUGG).
const EarthRadiusKm = 6371.0088

// GreatCircleKm gives the distance of two points on a sphere, in kilometres, by the haversine formula, which stays exact
// for points close to each other.
func GreatCircleKm(a, b spec.Location) float64 {
	const rad = math.Pi / 180
	dLat, dLon := (b.Lat-a.Lat)*rad, (b.Lon-a.Lon)*rad
	h := sq(math.Sin(dLat/2)) + math.Cos(a.Lat*rad)*math.Cos(b.Lat*rad)*sq(math.Sin(dLon/2))
	return 2 * EarthRadiusKm * math.Asin(math.Min(1, math.Sqrt(h)))
}

func sq(x float64) float64 { return x * x }

// Centroid gives the middle of some points on the sphere and the largest distance of a point from it, in kilometres. It
// gives false for no points.
func Centroid(points []spec.Location) (c spec.Location, radiusKm float64, ok bool) {
	if len(points) == 0 {
		return c, 0, false
	}
	const rad = math.Pi / 180
	var x, y, z float64
	for _, p := range points {
		x += math.Cos(p.Lat*rad) * math.Cos(p.Lon*rad)
		y += math.Cos(p.Lat*rad) * math.Sin(p.Lon*rad)
		z += math.Sin(p.Lat * rad)
	}
	c = spec.Location{Lat: math.Atan2(z, math.Hypot(x, y)) / rad, Lon: math.Atan2(y, x) / rad}
	for _, p := range points {
		radiusKm = math.Max(radiusKm, GreatCircleKm(c, p))
	}
	return c, radiusKm, true
}
