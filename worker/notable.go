package worker

import (
	"math"

	"skerry.dev/skerry"
)

// notable reports whether usage differs from what was told by so much that a scheduler or a person would care: a
// twentieth of a core, 8 MiB, an OOM kill, or another set of instances.
func notable(told, now Usage) bool {
	far := func(a, b skerry.MilliCPU, x, y skerry.Bytes) bool {
		return max(a-b, b-a) >= 50 || max(x-y, y-x) >= 8*skerry.MiB
	}
	// The whole machine has more that comes and goes.
	if max(told.Used.CPU-now.Used.CPU, now.Used.CPU-told.Used.CPU) >= 200 || max(told.Used.Memory-now.Used.Memory, now.Used.Memory-told.Used.Memory) >= 128*skerry.MiB {
		return true
	}
	if len(told.Instances) != len(now.Instances) {
		return true
	}
	for id, q := range now.Instances {
		t, ok := told.Instances[id]
		if !ok || far(t.CPU, q.CPU, t.Memory, q.Memory) || t.OOMKills != q.OOMKills || math.Abs(t.Waiting-q.Waiting) > 0.1 || linksMoved(t.Links, q.Links) {
			return true
		}
	}
	return moved(told.Coordinate, now.Coordinate) || pressed(told.Pressure, now.Pressure)
}

// linksMoved reports whether a round trip changed by more than a tenth and a millisecond.
func linksMoved(told, now map[string]float64) bool {
	if len(told) != len(now) {
		return true
	}
	for k, ms := range now {
		if t, ok := told[k]; !ok || math.Abs(ms-t) > 1+t/10 {
			return true
		}
	}
	return false
}

// moved reports whether a coordinate came or went, or moved by more than a millisecond and a tenth of its height.
func moved(told, now *skerry.Coordinate) bool {
	if told == nil || now == nil {
		return told != now
	}
	d := math.Abs(told.Height - now.Height)
	for i := range now.Vec {
		d = max(d, math.Abs(now.Vec[i]-told.Vec[i]))
	}
	return d > 1+now.Height/10
}

func pressed(told, now *skerry.Pressure) bool {
	if told == nil || now == nil {
		return told != now
	}
	return math.Abs(told.CPU-now.CPU) > 0.15 || math.Abs(told.Memory-now.Memory) > 0.1 || math.Abs(told.IO-now.IO) > 0.2
}
