package moves

import (
	"maps"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Neighbours is what services were seen to do to others on their worker, and to suffer from them, over all their instances here.
type Neighbours struct {
	services map[skerry.ServiceKey]*learned
}

// learned is what was seen of one service.
type learned struct {
	intensity [spec.NumShares]float64
	seen      int
	base      float64 // shortest probe, in milliseconds: what it takes alone
	scale     float64 // observed over predicted slow-down; 0: not yet known
}

const (
	// learnRate is the weight of a new observation.
	learnRate = 0.1
	// maxProbeMs is longer than any probe takes.
	maxProbeMs = 3600e3
)

// NewNeighbours gives a site that has seen nothing.
func NewNeighbours() *Neighbours { return &Neighbours{map[skerry.ServiceKey]*learned{}} }

// Learn folds what an instance uses into what is known of its service: processor, disk and network as shares of the machine's, which has
// such a capacity and such loads with it. What counters do not show (cache and memory bandwidth) must be stated or measured. The time that
// its probe takes corrects the predicted slow-down.
func (n *Neighbours) Learn(assigned *spec.Assignment, use *wire.QoS, capacity skerry.MilliCPU, loads spec.Contention) {
	if capacity <= 0 {
		return
	}
	known := n.services[assigned.Service]
	if known == nil {
		known = &learned{}
		n.services[assigned.Service] = known
	}
	now := [spec.NumShares]float64{0: share(float64(use.CPU) / float64(capacity)), 3: share(use.Disk), 4: share(use.Network)}
	rate := max(learnRate, 1/float64(known.seen+1))
	known.seen++
	for i, v := range now {
		known.intensity[i] += (v - known.intensity[i]) * rate
	}
	if !(use.ProbeMs > 0 && use.ProbeMs < maxProbeMs) {
		return
	}
	if known.base == 0 || use.ProbeMs < known.base {
		known.base = use.ProbeMs
	}
	others := loads.Minus(n.Of(assigned))
	predicted := sched.Slowdown(spec.Contention{Sensitivity: n.uncorrected(assigned).Sensitivity}, others)
	if predicted < 0.05 {
		return // alone, or nearly so: nothing to compare
	}
	ratio := max(0.1, min(10, (use.ProbeMs/known.base-1)/predicted))
	if known.scale == 0 {
		known.scale = 1
	}
	known.scale += (ratio - known.scale) * learnRate
}

// Bounded brings what a worker says of an instance to between 0 and 1 where it is summed with what others say, and leaves out round trips
// to services that its own has no link to: a broken or hostile worker must harm only itself.
func Bounded(q wire.QoS, links []spec.Link) wire.QoS {
	var trips map[string]float64
	for _, l := range links {
		if ms, told := q.Links[l.Service]; told {
			if trips == nil {
				trips = map[string]float64{}
			}
			trips[l.Service] = ms
		}
	}
	q.Links = trips
	q.Waiting, q.Throttled, q.Disk, q.Network = share(q.Waiting), share(q.Throttled), share(q.Disk), share(q.Network)
	return q
}

func share(v float64) float64 {
	if !(v > 0) { // nor is NaN
		return 0
	}
	return min(1, v)
}

// uncorrected gives what a service states, or what was learned of its use; who takes a resource is taken to suffer from its lack.
func (n *Neighbours) uncorrected(a *spec.Assignment) spec.Contention {
	if k := a.Spec.Placement.Contention; k != nil {
		return *k
	}
	if l := n.services[a.Service]; l != nil {
		s := spec.SharesOf(l.intensity)
		return spec.Contention{Intensity: s, Sensitivity: s}
	}
	return spec.Contention{}
}

// Of gives a service's contention, its sensitivity corrected by what was seen.
func (n *Neighbours) Of(a *spec.Assignment) spec.Contention {
	k := n.uncorrected(a)
	if l := n.services[a.Service]; l != nil && l.scale > 0 {
		v := k.Sensitivity.Vector()
		for i := range v {
			v[i] *= l.scale
		}
		k.Sensitivity = spec.SharesOf(v)
	}
	return k
}

// Forget drops what was seen of an application's services.
func (n *Neighbours) Forget(app skerry.AppKey) {
	maps.DeleteFunc(n.services, func(k skerry.ServiceKey, _ *learned) bool { return k.App == app })
}

// Audit reports services of which nothing is here; there says of which applications something is.
func (n *Neighbours) Audit(there func(app skerry.AppKey) bool) (faults []string) {
	for k := range n.services {
		if !there(k.App) {
			faults = append(faults, k.String()+" is gone, and what it did to others is kept")
		}
	}
	return faults
}
