package sched

import (
	"slices"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Taints rules out workers with a taint that the service does not tolerate.
type Taints struct{}

func (Taints) Name() string { return "taints" }

func (Taints) Lasting() bool { return false }

func (Taints) For(q *Query) Check {
	bad := func(k *kind) string {
		for _, t := range k.taints {
			if !slices.ContainsFunc(q.Spec.Placement.Tolerations, func(o spec.Toleration) bool { return o.Tolerates(t) }) {
				return t
			}
		}
		return ""
	}
	return byKind(q, "taint", func(k *kind) bool { return bad(k) == "" },
		func(k *kind) wire.Reason {
			return wire.Reason{What: "taint", Text: "it is tainted " + bad(k), Hint: "add it to placement.tolerations if the service may run there"}
		})
}
