package uplink

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// fewest is the size from which a class is reported exactly; smaller ones are rounded, so that the root cannot read off
// what a single worker has (docs/RATIONALE.md, "Why small classes are reported in coarse steps").
const fewest = 3

// buckets are the steps to which values of small classes are rounded, in the units of spec.Resources.Vector.
var buckets = [spec.NumResources]float64{500, float64(256 * skerry.MiB), float64(skerry.GiB), 1, 1, 1e6, 1e6, 1, float64(2 * skerry.MiB),
	float64(skerry.GiB)}

// Member is what counts of a worker.
type Member struct {
	Facts      *wire.WorkerFacts
	Class      string // ClassKey of these facts
	Available  spec.Resources
	Coordinate *spec.Coordinate // nil: unknown, or not believed
}

// Fold gives what the root learns of the workers of a site, which are in the order of their names: sums of floats depend on it.
func Fold(members []Member) (report wire.ClusterReport) {
	type class struct {
		wire.Class
		values [spec.NumResources][]float64
	}
	classes := map[string]*class{}
	areas := map[string]bool{}
	var points []spec.Location
	var network []spec.Coordinate
	for _, w := range members {
		g := classes[w.Class]
		if g == nil {
			g = &class{Class: classOf(w.Facts)}
			classes[w.Class] = g
		}
		for i, v := range w.Available.Vector() {
			g.values[i] = append(g.values[i], float64(max(v, 0)))
		}
		if w.Facts.Area != "" {
			areas[w.Facts.Area] = true
		}
		if w.Facts.Location != nil {
			points = append(points, *w.Facts.Location)
		}
		if w.Coordinate != nil {
			network = append(network, *w.Coordinate)
		}
	}
	room := mostOfAll / max(len(classes), 1)
	for _, k := range slices.Sorted(maps.Keys(classes)) {
		g := classes[k]
		a := wire.ClassAggregate{Class: g.Class, Workers: len(g.values[0])}
		a.Class.Runtimes, a.Class.Devices = few(a.Class.Runtimes, room), few(a.Class.Devices, room)
		for i := range g.values {
			a.Available[i] = wire.MomentsOf(g.values[i])
		}
		if a.Workers < fewest {
			coarsen(&a)
		}
		report.Classes = append(report.Classes, a)
	}
	report.Areas = few(slices.Collect(maps.Keys(areas)), mostOfAll)
	if centre, radius, ok := coord.Centroid(points); ok {
		// A site of few workers blurs where they are to about ten kilometres.
		if len(points) < fewest {
			centre.Lat, centre.Lon, radius = math.Round(centre.Lat*10)/10, math.Round(centre.Lon*10)/10, radius+10
		}
		report.Centroid, report.RadiusKm = &centre, radius
	}
	if middle, ms, ok := coord.Middle(network); ok {
		// Of a few workers the place is told to ten milliseconds; the round trip is longer by what that may hide.
		if len(network) < fewest {
			const grain = 10
			for i := range middle.Vec {
				middle.Vec[i] = math.Round(middle.Vec[i]/grain) * grain
			}
			middle.Error = math.Ceil(middle.Error*10) / 10
			ms = math.Ceil((ms+grain*math.Sqrt(spec.CoordinateDims)/2)/grain) * grain
		}
		report.Network, report.NetworkMs = &middle, ms
	}
	return report
}

// classOf gives a worker's capability class.
func classOf(f *wire.WorkerFacts) wire.Class {
	devices := slices.Clone(f.Devices)
	for _, d := range f.Attachable { // names of single ones do not leave the site
		devices = append(devices, spec.DeviceClass(d))
	}
	class := wire.Class{Runtimes: few(f.PassedRuntimes(), mostWords), Devices: few(devices, mostWords), Egress: f.Egress,
		Features: sortedFeatures(f.Features)}
	if len(f.Arch) <= longestWord {
		class.Arch = f.Arch
	}
	return class
}

// What a worker says of itself is passed up within bounds: a report that is too large for a frame is none, and the root would not hear of
// the site any more.
const (
	longestWord = 255       // bytes
	mostWords   = 32 << 10  // bytes of a list
	mostOfAll   = 256 << 10 // bytes of the lists of one kind of all classes, of which each has the same part
)

// few gives a list in order, without what is there twice or too long, and no more of it than may be passed up.
func few(list []string, room int) (out []string) {
	slices.Sort(list)
	size := 0
	for _, s := range slices.Compact(list) {
		if len(s) > longestWord {
			continue
		}
		if size += len(s) + 4; size > room {
			break
		}
		out = append(out, s)
	}
	return out
}

// ClassKey names a worker's class.
func ClassKey(f *wire.WorkerFacts) string {
	k := classOf(f)
	return k.Arch + "|" + strings.Join(k.Runtimes, ",") + "|" + strings.Join(k.Devices, ",") + "|" + strconv.FormatBool(k.Egress) +
		"|" + strings.Join(k.Features, ",")
}

// sortedFeatures leaves out what this build does not know itself: it would drop the fields of such a service on their way to the worker.
func sortedFeatures(list []string) (out []string) {
	known := spec.AgentFeatures()
	for _, feature := range list[:min(len(list), spec.MaxFeatures)] {
		if slices.Contains(known, feature) {
			out = append(out, feature)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// coarsen rounds a small class: sums up, so that nothing possible is ruled out, means down, deviation away.
func coarsen(a *wire.ClassAggregate) {
	a.Coarse = true
	for i := range a.Available {
		m := &a.Available[i]
		m.Sum = math.Ceil(m.Sum/buckets[i]) * buckets[i]
		m.Mean = math.Floor(m.Mean/buckets[i]) * buckets[i]
		m.StdDev = 0
	}
}
