//go:build linux

package monitor

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
)

// Sandbox is what a runtime's own kernel or machine takes in the cgroup of each task, beside what the workload may take.
type Sandbox struct {
	Memory skerry.Bytes
	Pids   int64
}

// Around gives the limits of a cgroup that holds the sandbox, too.
func (s Sandbox) Around(r runtime.Resources) runtime.Resources {
	if r.Memory > 0 {
		r.Memory += s.Memory
	}
	if r.Pids > 0 {
		r.Pids += s.Pids
	}
	return r
}

// within is the inverse of Around.
func (s Sandbox) within(memory skerry.Bytes) skerry.Bytes {
	if memory > 0 {
		memory = max(memory-s.Memory, 1)
	}
	return memory
}
