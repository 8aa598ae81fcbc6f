package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// updates is what an interval of reports costs and what it is good for.
type updates struct {
	bytes  float64 // of frames of a worker in an hour
	age    float64 // of what the site knows, mean, in seconds
	wrong  float64 // share of the time in which that is wrong by more than a fifth of a core (age of incorrect information)
	err    float64 // mean difference, in thousandths of a core
	regret float64 // of choosing who seems least loaded, over who is, in thousandths of a core
	late   float64 // seconds until the site knows that a worker has crossed 90 % of its processors, mean
}

// trace is the load of a worker over time: half of them are quiet, a quarter drift, a quarter jump, two of these to their limit.
type trace struct {
	kind  int
	level float64
	until time.Duration
	rng   *rand.Rand
	phase float64
}

const traceCapacity = 4000

func (x *trace) at(now time.Duration) skerry.MilliCPU {
	noise := 20 * (x.rng.Float64() - 0.5)
	switch {
	case x.kind%4 == 2:
		x.level = 1500 + 1200*math.Sin(2*math.Pi*now.Hours()*2+x.phase)
	case x.kind%4 == 3 && now >= x.until:
		x.until = now + time.Duration(20+x.rng.ExpFloat64()*150)*time.Second
		x.level = x.rng.Float64() * traceCapacity
	case x.kind%4 < 2 && x.level == 0:
		x.level = 400 + 1200*x.rng.Float64()
	}
	return skerry.MilliCPU(max(0, min(traceCapacity, x.level+noise)))
}

// runUpdates has twenty workers run for two hours and looks at what their site knows.
func runUpdates(fixed time.Duration) (u updates) {
	const workers, hours = 20, 2
	w := New(1)
	w.UseNetwork()
	w.quiet, w.reportFixed, w.Latency = true, fixed, 10*time.Millisecond
	site := w.AddCluster("a")
	var nodes []*Node
	traces := make([]*trace, workers)
	truth := make([]skerry.MilliCPU, workers)
	every := make([]time.Duration, workers) // how often use is measured
	for i := range workers {
		nodes = append(nodes, w.AddWorker("a", fmt.Sprintf("w%d", i), wire.WorkerFacts{Capacity: spec.Resources{CPU: traceCapacity, Memory: 8 * skerry.GiB}}))
		traces[i] = &trace{kind: i, rng: rand.New(rand.NewPCG(7, uint64(i))), phase: float64(i)}
		if every[i] = 10 * time.Second; fixed > 0 {
			every[i] = min(fixed, every[i])
		}
		n := nodes[i]
		n.outer = heeded{n.outer, &every[i], fixed > 0}
	}
	w.Run(time.Minute)
	w.net.traffic = map[string]*Traffic{"root": {}, "cluster": {}, "worker": {}}
	begin := w.Now
	known := make([]skerry.MilliCPU, workers)
	crossed := make([]time.Time, workers) // since when a worker is above its limit and the site does not know
	const limit = traceCapacity * 9 / 10
	samples, crossings := 0.0, 0.0
	for s := range hours * 3600 {
		now := time.Duration(s) * time.Second
		for i, x := range traces {
			was := truth[i]
			truth[i] = x.at(now)
			if truth[i] >= limit && was < limit {
				crossed[i] = w.Now
			}
			if now%every[i] < time.Second {
				w.tell(nodes[i], worker.Usage{Used: spec.Resources{CPU: truth[i], Memory: skerry.GiB}})
			}
		}
		w.Run(time.Second)
		for _, v := range site.Core.(*cluster.Core).Workers() {
			var i int
			fmt.Sscanf(string(v.Name), "w%d", &i)
			known[i] = v.Used.CPU
			u.age += w.Now.Sub(v.ReportAt).Seconds()
			if d := math.Abs(float64(known[i] - truth[i])); true {
				u.err += d
				if d > 200 {
					u.wrong++
				}
			}
			samples++
			switch {
			case crossed[i].IsZero():
			case known[i] >= limit || truth[i] < limit: // it is known, or over before that
				u.late += w.Now.Sub(crossed[i]).Seconds()
				crossed[i] = time.Time{}
				crossings++
			}
		}
		if s%10 == 0 {
			chosen, best := 0, 0
			for i := range known {
				if known[i] < known[chosen] {
					chosen = i
				}
				if truth[i] < truth[best] {
					best = i
				}
			}
			u.regret += float64(truth[chosen] - truth[best])
		}
	}
	u.age, u.wrong, u.err, u.regret, u.late = u.age/samples, u.wrong/samples, u.err/samples, u.regret/(hours*360), u.late/max(crossings, 1)
	u.bytes = float64(w.net.traffic["worker"].Bytes) / workers / w.Now.Sub(begin).Hours()
	return u
}

// heeded is a worker's core whose wish for how often to measure is granted.
type heeded struct {
	core
	every *time.Duration
	fixed bool
}

func (h heeded) heed(fx wire.Effects) wire.Effects {
	for _, a := range fx.Actions {
		if m, ok := a.(worker.MeasureEvery); ok && !h.fixed {
			if *h.every = m.Every.Truncate(time.Second); *h.every <= 0 {
				*h.every = 10 * time.Second
			}
		}
	}
	return fx
}

// Step implements core.
func (h heeded) Step(now time.Time, msg any) wire.Effects { return h.heed(h.core.Step(now, msg)) }

// Tick implements core.
func (h heeded) Tick(now time.Time) wire.Effects { return h.heed(h.core.Tick(now)) }

// TestAdaptiveUpdates: an interval that adapts knows as much as a short one, for the price of a long one.
func TestAdaptiveUpdates(t *testing.T) {
	adaptive, often, seldom := runUpdates(0), runUpdates(5*time.Second), runUpdates(15*time.Second)
	t.Logf("adaptive %+v\nevery 5 s %+v\nevery 15 s %+v", adaptive, often, seldom)
	if adaptive.bytes > seldom.bytes || adaptive.wrong > seldom.wrong || adaptive.late > seldom.late || adaptive.regret > seldom.regret {
		t.Errorf("an interval of 15 s does better: %+v, adaptive %+v", seldom, adaptive)
	}
	if adaptive.bytes > often.bytes/2 {
		t.Errorf("%g bytes, at 5 s %g", adaptive.bytes, often.bytes)
	}
}

// BenchmarkUpdates measures what intervals of reports cost against how old and how wrong what a site knows is.
func BenchmarkUpdates(b *testing.B) {
	for _, fixed := range []time.Duration{time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 0} {
		name := fixed.String()
		if fixed == 0 {
			name = "adaptive"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				u := runUpdates(fixed)
				b.ReportMetric(u.bytes/1000, "kB/worker-h")
				b.ReportMetric(u.age, "s-age")
				b.ReportMetric(100*u.wrong, "%wrong")
				b.ReportMetric(u.err, "mCPU-error")
				b.ReportMetric(u.regret, "mCPU-regret")
				b.ReportMetric(u.late, "s-late")
			}
		})
	}
}
