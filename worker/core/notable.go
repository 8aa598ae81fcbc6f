package core

import (
	"math"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// divergence is how far usage is from what was told, where 1 is what a scheduler or a person would care about: a twentieth
// of a core or 8 MiB of an instance, a fifth of a core or 128 MiB of the machine. The component that is furthest counts.
func divergence(told, now Usage) float64 {
	// The whole machine has more that comes and goes.
	d := max(cores(told.Used.CPU, now.Used.CPU)/4, amount(told.Used.Memory, now.Used.Memory)/16)
	if len(told.Instances) != len(now.Instances) {
		d = max(d, anotherSet)
	}
	for id, q := range now.Instances {
		t, ok := told.Instances[id]
		if !ok {
			d = max(d, anotherSet)
			continue
		}
		d = max(d, apart(&t, &q))
	}
	if arrivalsMoved(told.Ingress, now.Ingress) {
		d = max(d, 1)
	}
	d = max(d, moved(told.Coordinate, now.Coordinate), pressed(told.Pressure, now.Pressure))
	if math.IsNaN(d) {
		return 1
	}
	return min(d, furthest)
}

const (
	// anotherSet is the divergence of another set of instances, of one that ran out of memory, and of a place that is known at
	// last: told within a second.
	anotherSet = 5
	// furthest bounds what one number can do.
	furthest = 100
)

// apart is how far the use of an instance is from what was told.
func apart(told, now *wire.QoS) float64 {
	if told.OOMKills != now.OOMKills {
		return anotherSet
	}
	return max(cores(told.CPU, now.CPU), amount(told.Memory, now.Memory), math.Abs(told.Waiting-now.Waiting)/0.1,
		linksMoved(told.Links, now.Links))
}

const (
	// leastTold is how far the use of an instance is from what the cluster knows before it is told: 5 thousandths of a core, or 0.8 MiB.
	leastTold = 0.1
	// leastShare, leastBytes and leastProbe are the same of what does not make a report due: shares, counters and milliseconds.
	leastShare = 0.02
	leastBytes = 1 << 20
	leastProbe = 1.0
)

// worthTelling reports whether the use of an instance has changed by more than what comes and goes.
func worthTelling(told, now *wire.QoS) bool {
	if d := apart(told, now); !(d < leastTold) { // what is no number, too
		return true
	}
	for _, x := range [][2]float64{{told.Throttled, now.Throttled}, {told.Disk, now.Disk}, {told.Network, now.Network}} {
		if !(math.Abs(x[0]-x[1]) < leastShare) {
			return true
		}
	}
	for _, x := range [][2]int64{{told.RxBytes, now.RxBytes}, {told.TxBytes, now.TxBytes}, {told.ReadBytes, now.ReadBytes},
		{told.WriteBytes, now.WriteBytes}} {
		if x[1] < x[0] || x[1]-x[0] >= leastBytes { // less: it was restarted
			return true
		}
	}
	return !(math.Abs(told.ProbeMs-now.ProbeMs) < leastProbe+told.ProbeMs/10)
}

func cores(a, b skerry.MilliCPU) float64 { return math.Abs(float64(a-b)) / 50 }

func amount(a, b skerry.Bytes) float64 { return math.Abs(float64(a-b)) / float64(8*skerry.MiB) }

// linksMoved is how far round trips are from what was told, where 1 is a tenth and a millisecond.
func linksMoved(told, now map[string]float64) (d float64) {
	if len(told) != len(now) {
		return 1
	}
	for k, ms := range now {
		t, ok := told[k]
		if !ok {
			return 1
		}
		d = max(d, math.Abs(ms-t)/(1+t/10))
	}
	return d
}

// moved is how far a coordinate is from what was told, where 1 is a millisecond and a tenth of its height.
func moved(told, now *spec.Coordinate) float64 {
	if told == nil || now == nil {
		if told != now {
			return anotherSet
		}
		return 0
	}
	d := math.Abs(told.Height - now.Height)
	for i := range now.Vec {
		d = max(d, math.Abs(now.Vec[i]-told.Vec[i]))
	}
	return d / (1 + now.Height/10)
}

func pressed(told, now *wire.Pressure) float64 {
	if told == nil || now == nil {
		if told != now {
			return 1
		}
		return 0
	}
	return max(math.Abs(told.CPU-now.CPU)/0.15, math.Abs(told.Memory-now.Memory)/0.1, math.Abs(told.IO-now.IO)/0.2)
}

// arrivalsMoved reports whether what comes by the ingress changed by a fifth, or began or ended.
func arrivalsMoved(told, now []wire.IngressUse) bool {
	if len(told) != len(now) {
		return true
	}
	far := func(a, b float64) bool { return math.Abs(a-b) > max(a, b)/5 && math.Abs(a-b) > 0.5 }
	for i := range now {
		t, n := told[i], now[i]
		if t.Service != n.Service || far(t.Requests, n.Requests) || far(t.Active, n.Active) || far(t.Ms, n.Ms) {
			return true
		}
	}
	return false
}
