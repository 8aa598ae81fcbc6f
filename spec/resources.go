package spec

import (
	"skerry.dev/skerry"
)

// MostCPU is the most processor time that a container may use; 0: no limit.
func (r Resources) MostCPU() skerry.MilliCPU { return max(r.CPU, r.Limits.CPU) }

// MostMemory is the most memory that a container may use; 0: no limit.
func (r Resources) MostMemory() skerry.Bytes { return max(r.Memory, r.Limits.Memory) }

// atMost gives what may be used at most in place of what is asked for.
func (r Resources) atMost() Resources {
	r.CPU, r.Memory = r.MostCPU(), r.MostMemory()
	orDefault(&r.Memory, DefaultMemory)
	orDefault(&r.Storage, DefaultStorage)
	return r
}

// limitDefaults has what is limited, and not asked for, be asked for.
func (r *Resources) limitDefaults() {
	orDefault(&r.CPU, r.Limits.CPU)
	orDefault(&r.Memory, r.Limits.Memory)
}

// Most gives the larger of each counted resource; Pids is taken from r.
func (r Resources) Most(s Resources) Resources {
	a, b := r.Vector(), s.Vector()
	for i := range a {
		a[i] = max(a[i], b[i])
	}
	out := FromVector(a)
	out.Pids = r.Pids
	return out
}

// Resources is an amount of each resource that placement counts.
type Resources struct {
	CPU          skerry.MilliCPU `json:"cpu,omitempty" doc:"Cores, such as 0.5, or 500m (Schema 1: vcpus)." cbor:"1,keyasint,omitempty"`
	Memory       skerry.Bytes    `json:"memory,omitempty" doc:"Memory, such as 64Mi (Schema 1: memory)." cbor:"2,keyasint,omitempty"`
	Storage      skerry.Bytes    `json:"storage,omitempty" doc:"Local storage for a container's writable layer, a machine's disk, and volumes without a size. An instance that exceeds it is ended. For a native process only volumes are measured. Default: 4Gi, or no limit at level privileged; for a machine at least machine.disk." cbor:"3,keyasint,omitempty"`
	GPUs         int             `json:"gpus,omitempty" doc:"Graphics processors (Schema 1: vgpus). A container is handed in as many devices of the class that its worker has for them (--gpu-class), if it has one; else devices gives it the hardware." min:"0" max:"1024" cbor:"4,keyasint,omitempty"`
	TPUs         int             `json:"tpus,omitempty" doc:"Tensor processors (Schema 1: vtpus). Handed in like graphics processors (--tpu-class)." min:"0" max:"1024" cbor:"5,keyasint,omitempty"`
	BandwidthIn  skerry.Bytes    `json:"bandwidthIn,omitempty" doc:"Bytes per second towards the instance (Schema 1: bandwidth_in)." cbor:"6,keyasint,omitempty"`
	BandwidthOut skerry.Bytes    `json:"bandwidthOut,omitempty" doc:"Bytes per second from the instance (Schema 1: bandwidth_out)." cbor:"7,keyasint,omitempty"`
	// ExclusiveCPUs are counted beside CPU, which has them too.
	ExclusiveCPUs int       `json:"exclusiveCPUs,omitempty" doc:"Processors reserved for the instance: whole cores first, close to each other. If cpu is not set, it is the same number." min:"0" max:"1024" cbor:"9,keyasint,omitempty"`
	HugePages     HugePages `json:"hugePages,omitzero" doc:"Huge pages the instance may use in addition to memory, out of those reserved on the worker's machine." cbor:"12,keyasint,omitzero"`
	// Limits and IO are no amounts that are counted, and like Pids in no vector.
	Limits Limits   `json:"limits,omitzero" doc:"Upper limits of cpu and memory, usable while others leave resources idle. cpu and memory themselves are guaranteed and counted. Default: cpu and memory." cbor:"10,keyasint,omitzero"`
	IO     IOLimits `json:"io,omitzero" doc:"Limits for the worker's disk. A worker whose kernel lacks the I/O controller refuses the instance." cbor:"11,keyasint,omitzero"`
	Pids   int      `json:"pids,omitempty" doc:"Processes and threads; a limit only. Default: 512." min:"0" max:"4194304" cbor:"8,keyasint,omitempty"`
}

// NumResources is the number of resources that are counted; Pids is a limit, not a capacity.
const NumResources = 10

// MaxAmount bounds each amount of bytes in a manifest: more than any machine has, and small enough to be added up.
const MaxAmount = 1024 * skerry.TiB

// ResourceNames names the entries of Vector, in order.
var ResourceNames = [NumResources]string{"cpu", "memory", "storage", "gpus", "tpus", "bandwidthIn", "bandwidthOut", "exclusiveCPUs",
	"hugePages.2Mi", "hugePages.1Gi"}

// ResourceVector holds an amount of each counted resource, in the order of ResourceNames.
type ResourceVector [NumResources]int64

// Vector gives the counted resources in the order of ResourceNames: millicores, bytes, bytes, pieces, pieces, bytes/s,
// bytes/s, pieces, bytes, bytes.
func (r Resources) Vector() ResourceVector {
	return ResourceVector{int64(r.CPU), int64(r.Memory), int64(r.Storage), int64(r.GPUs), int64(r.TPUs), int64(r.BandwidthIn),
		int64(r.BandwidthOut), int64(r.ExclusiveCPUs), int64(r.HugePages.Size2Mi), int64(r.HugePages.Size1Gi)}
}

// FromVector is the inverse of Vector.
func FromVector(v ResourceVector) Resources {
	return Resources{CPU: skerry.MilliCPU(v[0]), Memory: skerry.Bytes(v[1]), Storage: skerry.Bytes(v[2]), GPUs: int(v[3]), TPUs: int(v[4]),
		BandwidthIn: skerry.Bytes(v[5]), BandwidthOut: skerry.Bytes(v[6]), ExclusiveCPUs: int(v[7]),
		HugePages: HugePages{skerry.Bytes(v[8]), skerry.Bytes(v[9])}}
}

// OrNone gives a copy, or nil if there is nothing.
func (r Resources) OrNone() *Resources {
	if r == (Resources{}) {
		return nil
	}
	return &r
}

// Add gives the sum; Pids is taken from r.
func (r Resources) Add(s Resources) Resources {
	a, b := r.Vector(), s.Vector()
	for i := range a {
		a[i] = plus(a[i], b[i])
	}
	out := FromVector(a)
	out.Pids = r.Pids
	return out
}

// Times gives the sum of n of them.
func (r Resources) Times(n int) Resources {
	a := r.Vector()
	for i, v := range a {
		if a[i] = v * int64(n); n > 0 && v > maxSum/int64(n) {
			a[i] = maxSum
		}
	}
	return FromVector(a)
}

// maxSum is the largest sum of amounts. It can be read back after it was written.
const maxSum = 1 << 61

// plus adds amounts. A sum that is too large is the largest there is: one below 0 would fit everywhere.
func plus(a, b int64) int64 {
	a, b = min(max(a, -maxSum), maxSum), min(max(b, -maxSum), maxSum)
	return min(max(a+b, -maxSum), maxSum)
}

// Sub gives the difference, which may be negative where something is over-committed.
func (r Resources) Sub(s Resources) Resources {
	a, b := r.Vector(), s.Vector()
	for i := range a {
		a[i] = plus(a[i], -b[i])
	}
	out := FromVector(a)
	out.Pids = r.Pids
	return out
}

// Fits reports whether need is available in r in every counted resource.
func (r Resources) Fits(need Resources) bool {
	a, b := r.Vector(), need.Vector()
	for i := range a {
		if b[i] > 0 && b[i] > a[i] {
			return false
		}
	}
	return true
}
