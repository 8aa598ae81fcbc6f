package sched

import (
	"fmt"
	"slices"

	"skerry.dev/skerry/wire"
)

// Devices rules out workers without the devices asked for.
type Devices struct{}

func (Devices) Name() string { return "devices" }

func (Devices) Lasting() bool { return false }

func (Devices) For(q *Query) Check {
	need := q.Spec.Placement.Devices
	if len(need) == 0 {
		return nil
	}
	missing := func(k *kind) string {
		for _, d := range need {
			if !slices.Contains(k.class.Devices, d) {
				return d
			}
		}
		return ""
	}
	return byKind(q, "devices", func(k *kind) bool { return missing(k) == "" },
		func(k *kind) wire.Reason {
			return wire.Reason{What: "devices", Text: "it has no device " + missing(k),
				Hint: fmt.Sprintf("start the worker that has one with --device %s", missing(k))}
		})
}
