package sched

import (
	"fmt"

	"skerry.dev/skerry/wire"
)

// Area rules out workers outside the area asked for (Schema 1: area).
type Area struct{}

func (Area) Name() string { return "area" }

func (Area) Lasting() bool { return true }

func (Area) For(q *Query) Check {
	area := q.Spec.Placement.Area
	if area == "" {
		return nil
	}
	return byKind(q, "area", func(k *kind) bool { return k.area == area },
		func(k *kind) wire.Reason {
			if k.area == "" {
				return wire.Reason{What: "area", Text: fmt.Sprintf("it is in no area; %q is asked for", area),
					Hint: "start the worker with --area " + area}
			}
			return wire.Reason{What: "area", Text: fmt.Sprintf("it is in area %q, not %q", k.area, area)}
		})
}
