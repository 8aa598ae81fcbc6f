package cluster

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// learned is what a service was seen to do to its neighbours and to suffer from them, over all its instances here.
type learned struct {
	intensity [spec.NumShares]float64
	seen      int
	base      float64 // shortest probe, in milliseconds: what it takes alone
	scale     float64 // observed over predicted slow-down; 0: not yet known
}

// learnRate is the weight of a new observation.
const learnRate = 0.1

// learn folds what an instance uses into what is known of its service: processor, disk and network as shares of the
// machine's. What counters do not show (cache and memory bandwidth) must be stated or measured. The time that its probe
// takes corrects the predicted slow-down.
func (c *Core) learn(p *placement, q *wire.QoS) {
	w := c.workers[p.Worker]
	if w == nil || w.Facts == nil || w.Facts.Capacity.CPU <= 0 {
		return
	}
	l := c.services[p.A.Service]
	if l == nil {
		l = &learned{}
		c.services[p.A.Service] = l
	}
	now := [spec.NumShares]float64{0: share(float64(q.CPU) / float64(w.Facts.Capacity.CPU)), 3: share(q.Disk), 4: share(q.Network)}
	rate := max(learnRate, 1/float64(l.seen+1))
	l.seen++
	for i, v := range now {
		l.intensity[i] += (v - l.intensity[i]) * rate
	}
	if !(q.ProbeMs > 0 && q.ProbeMs < maxProbeMs) {
		return
	}
	if l.base == 0 || q.ProbeMs < l.base {
		l.base = q.ProbeMs
	}
	others := minus(w.loads, c.contentionOf(p))
	predicted := sched.Slowdown(spec.Contention{Sensitivity: c.uncorrected(p).Sensitivity}, others)
	if predicted < 0.05 {
		return // alone, or nearly so: nothing to compare
	}
	ratio := max(0.1, min(10, (q.ProbeMs/l.base-1)/predicted))
	if l.scale == 0 {
		l.scale = 1
	}
	l.scale += (ratio - l.scale) * learnRate
}

// maxProbeMs is longer than any probe takes.
const maxProbeMs = 3600e3

// share brings what a worker says to between 0 and 1: what is learned of a service holds for all its instances, and a
// broken or hostile worker must harm only itself.
func share(v float64) float64 {
	if !(v > 0) { // nor is NaN
		return 0
	}
	return min(1, v)
}

// uncorrected gives what a service states, or what was learned of its use; who takes a resource is taken to suffer from
// its lack.
func (c *Core) uncorrected(p *placement) spec.Contention {
	if k := p.A.Spec.Placement.Contention; k != nil {
		return *k
	}
	if l := c.services[p.A.Service]; l != nil {
		s := spec.SharesOf(l.intensity)
		return spec.Contention{Intensity: s, Sensitivity: s}
	}
	return spec.Contention{}
}

// contentionOf gives a service's contention, its sensitivity corrected by what was seen.
func (c *Core) contentionOf(p *placement) spec.Contention {
	k := c.uncorrected(p)
	if l := c.services[p.A.Service]; l != nil && l.scale > 0 {
		v := k.Sensitivity.Vector()
		for i := range v {
			v[i] *= l.scale
		}
		k.Sensitivity = spec.SharesOf(v)
	}
	return k
}

// load adds what a placement does to its neighbours to its worker, or takes it off; the worker's next report sets the
// sum right.
func (c *Core) load(w *worker, p *placement, sign int) {
	if k := c.contentionOf(p); sign > 0 {
		w.loads = plus(w.loads, k)
	} else {
		w.loads = minus(w.loads, k)
	}
	c.site.SetLoad(w.Name, w.loads)
}

// reload sums anew what runs on a worker.
func (c *Core) reload(w *worker, instances map[skerry.InstanceID]wire.QoS) {
	var sum spec.Contention
	for _, id := range sortedIDs(instances) {
		if p := c.places[id]; p != nil && (p.Worker == w.Name || p.Next != nil && p.Next.Worker == w.Name) {
			sum = plus(sum, c.contentionOf(p))
		}
	}
	if sum != w.loads {
		w.loads = sum
		c.site.SetLoad(w.Name, sum)
	}
}

func plus(a, b spec.Contention) spec.Contention { return sumOf(a, b, 1) }

func minus(a, b spec.Contention) spec.Contention { return sumOf(a, b, -1) }

func sumOf(a, b spec.Contention, sign float64) spec.Contention {
	f := func(x, y spec.Shares) spec.Shares {
		v, o := x.Vector(), y.Vector()
		for i := range v {
			v[i] = max(0, v[i]+sign*o[i])
		}
		return spec.SharesOf(v)
	}
	return spec.Contention{Intensity: f(a.Intensity, b.Intensity), Sensitivity: f(a.Sensitivity, b.Sensitivity)}
}
