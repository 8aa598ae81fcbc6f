package interference

import (
	"fmt"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/report"
)

// row is a load on a service in a place.
type row struct {
	place string
	Setting
	rate    float64 // requests per second
	skip    string  // why it was not run
	outcome *Outcome
	// system is what the machine tells of it, by metric, and parts and used what succeeded, and the processor time, in each part of it.
	system      map[string]float64
	parts, used []float64
}

// metric is a figure of a row.
type metric struct {
	name, unit string
	kind       metricKind
}

// metricKind says how a metric is told.
type metricKind int

const (
	plain  metricKind = iota
	curve             // it is drawn by rate
	detail            // it is no part of tables
)

// Metrics that are more than figures.
const (
	meanLatency, overhead, success = "mean latency", "overhead", "success"
	p99Latency, inService          = "p99 latency", "time in the service"
	successByPart, cpuByPart       = "success, part by part", "processor time, part by part"
	perCycle, missed               = "instructions per cycle", "references to the cache that missed"
)

// metrics are all that a row may have, in the order of reports. Latency counts from when a request was due; overhead is the
// mean less what the service itself tells.
func metrics() []metric {
	list := []metric{
		{success, "%", curve}, {meanLatency, "ms", curve}, {p99Latency, "ms", curve}, {overhead, "ms", curve}, {inService, "ms", plain},
		{"processor time", "% of its limit", plain}, {"throttled", "ms", plain}, {"waiting for a processor", "ms", plain},
		{"processor time of the neighbour", "% of its limit", plain}, {"answers", "1/s", detail}, {"p50 latency", "ms", detail},
		{"p90 latency", "ms", detail}, {"largest latency", "ms", detail}, {"loading in it", "ms", detail}, {"processing in it", "ms", detail},
		{"sent late", "%", detail}, {"periods throttled", "%", detail}, {successByPart, "%", detail}, {cpuByPart, "% of its limit", detail},
	}
	for _, name := range pressures() {
		list = append(list, metric{"pressure, " + name, "ms", detail})
	}
	for _, name := range counters() {
		list = append(list, metric{name, "", detail})
	}
	return append(list, metric{perCycle, "", detail}, metric{missed, "%", detail})
}

// figure is a metric of a row in a report.
func (m metric) figure(r *report.Report, x *row) *report.Figure {
	f := r.Figure(x.name(), m.name+atRate(x.rate), x.place)
	f.Unit, f.Better, f.Detail = m.unit, report.Lower, m.kind == detail
	if m.name == success || m.name == successByPart || m.name == "answers" || m.name == perCycle {
		f.Better = report.Higher
	}
	if m.kind == curve {
		f.Curve, f.At = m.name+" by requests per second", x.rate
	}
	return f
}

// atRate ends the name of a figure at a rate.
func atRate(rate float64) string { return fmt.Sprintf(", %g/s", rate) }

// ran gives the figure that every row has that was run: success.
func (x *row) ran(r *report.Report) *report.Figure {
	return metrics()[0].figure(r, x)
}

// add adds a row to the present round of a report, and what the thesis has beside it.
func (x *row) add(r *report.Report, all *published.Set) {
	ran := x.ran(r)
	if ran.Skip = x.skip; x.outcome == nil {
		return
	}
	o := x.outcome
	values := map[string][]float64{success: {o.Success}, "answers": {o.Throughput}, "sent late": {o.Late},
		successByPart: x.parts, cpuByPart: x.used}
	if l, a := o.Latency, o.Application; l != nil {
		for name, v := range map[string]float64{meanLatency: l.Mean, "p50 latency": l.P50, "p90 latency": l.P90, p99Latency: l.P99,
			"largest latency": l.Max, inService: a.Total, "loading in it": a.Load, "processing in it": a.Processing, overhead: o.Overhead} {
			values[name] = []float64{v}
		}
	}
	for name, v := range x.system {
		values[name] = []float64{v}
	}
	if n := x.system["cycles"]; n > 0 {
		values[perCycle] = []float64{x.system["instructions"] / n}
	}
	if n := x.system["cache-references"]; n > 0 {
		values[missed] = []float64{100 * x.system["cache-misses"] / n}
	}
	thesis := beside(all, x.place, x.Setting, x.rate)
	for _, m := range metrics() {
		if len(values[m.name]) == 0 {
			continue
		}
		f := m.figure(r, x)
		f.Published = thesis[m.name]
		for _, v := range values[m.name] {
			r.Add(f, v)
		}
	}
	if o.Error != "" {
		r.Note("First failure of %s in %s, %g/s: %s", x.name(), x.place, x.rate, o.Error)
	}
}

// change adds what became of a load when one thing was changed: with a neighbour against alone, with a larger one against a
// smaller one, or with services that are pinned against others (tables 5.21 and 5.30 of the thesis). Figures are how many times
// the other's they are; groups are compared with those before them.
func change(r *report.Report, groups []group, places []string) {
	for i, g := range groups {
		for _, old := range groups[:i] {
			if g.Service != old.Service || g.CPU != old.CPU {
				continue
			}
			louder := g.Pin == old.Pin && g.Interference > old.Interference && (old.Interference == 0 || old.Neighbour == g.Neighbour)
			pinned := g.Pin != old.Pin && g.Interference == old.Interference && g.Neighbour == old.Neighbour
			if !louder && !pinned {
				continue
			}
			for _, rate := range g.rates {
				for _, name := range []string{meanLatency, p99Latency, inService, overhead} {
					name += atRate(rate)
					for _, place := range places {
						is, was := r.Find(g.name(), name, place), r.Find(old.name(), name, place)
						if is == nil || was == nil {
							continue
						}
						// Each has a round of its own: a load on a setting.
						before, now := report.Median(r.Counted(was).Samples), report.Median(r.Counted(is).Samples)
						if before > 0 && now > 0 {
							f := r.Figure(fmt.Sprintf("%s, %g CPU: %s against %s", g.Service, g.CPU, g.beside(), old.beside()), name, place)
							f.Unit, f.Rounds, f.Samples = "times", []int{1}, []float64{now / before}
						}
					}
				}
			}
		}
	}
}
