package cluster

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// fewest is the size from which a class is reported exactly; smaller ones are rounded, so that the root cannot read off
// what a single worker has (docs/RATIONALE.md, "Why small classes are reported in coarse steps").
const fewest = 3

// buckets are the steps to which values of small classes are rounded, in the units of spec.Resources.Vector.
var buckets = [spec.NumResources]float64{500, float64(256 * skerry.MiB), float64(skerry.GiB), 1, 1, 1e6, 1e6, 1, float64(2 * skerry.MiB), float64(skerry.GiB)}

// Aggregate gives what the root learns of the site. Only workers that are in touch count (a dead worker leaves the next
// aggregate).
func (c *Core) Aggregate() wire.ClusterReport {
	type class struct {
		wire.Class
		values [spec.NumResources][]float64
	}
	classes := map[string]*class{}
	areas := map[string]bool{}
	var points []spec.Location
	var network []spec.Coordinate
	var r wire.ClusterReport
	for _, name := range slices.Sorted(maps.Keys(c.workers)) { // sums of floats depend on their order
		w, k := c.workers[name], c.Kids.Get(name)
		if w.Facts == nil || w.sight.Lost() || k == nil || !k.Connected || w.refusing() != "" {
			continue
		}
		key := w.classKey()
		g := classes[key]
		if g == nil {
			g = &class{Class: classOf(w.Facts)}
			classes[key] = g
		}
		for i, v := range w.available().Vector() {
			g.values[i] = append(g.values[i], float64(max(v, 0)))
		}
		if w.Facts.Area != "" {
			areas[w.Facts.Area] = true
		}
		if w.Facts.Location != nil {
			points = append(points, *w.Facts.Location)
		}
		if w.coordinate() != nil {
			network = append(network, *w.coordinate())
		}
	}
	keys := make([]string, 0, len(classes))
	for k := range classes {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		g := classes[k]
		a := wire.ClassAggregate{Class: g.Class, Workers: len(g.values[0])}
		for i := range g.values {
			a.Available[i] = wire.MomentsOf(g.values[i])
		}
		if a.Workers < fewest {
			coarsen(&a)
		}
		r.Classes = append(r.Classes, a)
	}
	for a := range areas {
		r.Areas = append(r.Areas, a)
	}
	slices.Sort(r.Areas)
	if centre, radius, ok := coord.Centroid(points); ok {
		// A site of few workers blurs where they are to about ten kilometres.
		if len(points) < fewest {
			centre.Lat, centre.Lon, radius = math.Round(centre.Lat*10)/10, math.Round(centre.Lon*10)/10, radius+10
		}
		r.Centroid, r.RadiusKm = &centre, radius
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
		r.Network, r.NetworkMs = &middle, ms
	}
	for _, p := range c.places {
		if n := p.A.Spec.Placement.Priority; p.Worker != "" && p.Pinned == "" && !p.Removing && !p.ended() && (r.Lowest == nil || n < *r.Lowest) {
			r.Lowest = &n
		}
	}
	r.Instances = len(c.places)
	r.Services, r.Ingress, r.Came = c.foldQoS(), c.foldIngress(), c.foldCame()
	return r
}

// classOf gives a worker's capability class.
func classOf(f *wire.WorkerFacts) wire.Class {
	runtimes := f.PassedRuntimes()
	slices.Sort(runtimes)
	devices := slices.Clone(f.Devices)
	for _, d := range f.Attachable { // names of single ones do not leave the site
		devices = append(devices, spec.DeviceClass(d))
	}
	slices.Sort(devices)
	return wire.Class{Arch: f.Arch, Runtimes: runtimes, Devices: slices.Compact(devices), Egress: f.Egress}
}

// classKey names a worker's class; it is worked out once for each set of facts.
func (w *worker) classKey() string {
	if w.classFor != w.Facts {
		k := classOf(w.Facts)
		w.classFor, w.class = w.Facts, k.Arch+"|"+strings.Join(k.Runtimes, ",")+"|"+strings.Join(k.Devices, ",")+"|"+strconv.FormatBool(k.Egress)
	}
	return w.class
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

// uses reports whether it is known what an instance uses now: what ended, is ending, or runs where nobody hears of it does not
// count with what it used last.
func (c *Core) uses(p *placement) bool {
	w := c.workers[p.Worker]
	return p.qos != nil && !p.Removing && !p.ended() && w != nil && !w.sight.Lost()
}

// foldQoS sums what the root's services use here.
func (c *Core) foldQoS() []wire.ServiceQoS {
	by := map[skerry.ServiceKey]*wire.ServiceQoS{}
	for _, id := range sortedIDs(c.places) {
		p := c.places[id]
		if p.Origin != "root" || !c.uses(p) {
			continue
		}
		q := by[p.A.Service]
		if q == nil {
			q = &wire.ServiceQoS{Service: p.A.Service}
			by[p.A.Service] = q
		}
		q.QoS = q.QoS.Add(*p.qos)
		if p.Obs.Ready {
			q.Ready++
		}
	}
	out := make([]wire.ServiceQoS, 0, len(by))
	for _, q := range by {
		out = append(out, *q)
	}
	slices.SortFunc(out, func(a, b wire.ServiceQoS) int { return strings.Compare(a.Service.String(), b.Service.String()) })
	return out
}

func (c *Core) sendReport(now time.Time, fx *wire.Effects) {
	r := c.Aggregate()
	c.reportSeq++
	r.Seq = c.reportSeq
	c.reportAt, c.reportDue = now, false
	fx.Sends = append(fx.Sends, wire.Outgoing{Msg: &wire.Report{Kind: wire.ReportCluster, Payload: c.codec.Marshal(&r)}})
}
