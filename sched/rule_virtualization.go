package sched

import (
	"slices"

	"skerry.dev/skerry"
)

// Virtualization rules out workers without the runtime that the service needs (Schema 1: virtualization; Algorithm 2,
// line 1).
type Virtualization struct{}

func (Virtualization) Name() string { return "virtualization" }

func (Virtualization) Lasting() bool { return false }

func (Virtualization) For(q *Query) Check {
	need := NeedsRuntime(q.Spec)
	return byKind(q, "runtime", func(k *kind) bool { return slices.Contains(k.class.Runtimes, need) },
		func(*kind) skerry.Reason {
			return skerry.Reason{What: "runtime", Text: "it offers no working runtime " + need,
				Hint: "`skerry worker check` on the worker tells what is missing"}
		})
}

// NeedsRuntime names the runtime that a service needs.
func NeedsRuntime(s *skerry.ServiceSpec) string {
	if s.Runtime == "" || s.Runtime == "auto" {
		return "oci"
	}
	return s.Runtime
}
