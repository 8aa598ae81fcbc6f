package spec

import (
	"fmt"
	"slices"
	"strings"
)

// RuntimeCosts is what differs from the published figures on a worker: multiples as in RuntimeFigure, 0 for a runtime
// of which none holds. Where the worker measured how fast its processors are, they are multiples of what a container
// took on the machine of the published figures, by the clock, for every runtime that it has. Nil: nothing differs.
type RuntimeCosts map[string]float64

// Key tells apart workers on which runtimes cost different amounts.
func (c RuntimeCosts) Key() string {
	list := make([]string, 0, len(c))
	for name, v := range c {
		list = append(list, fmt.Sprintf("%s=%.3g", name, v))
	}
	slices.Sort(list)
	return strings.Join(list, "\x01")
}

// of gives the multiple of a runtime, or 0.
func (c RuntimeCosts) of(runtime string) float64 {
	if v, told := c[runtime]; told {
		return v
	}
	return PublishedFigure(runtime).CPU
}

// Figure gives the figure of a runtime on a worker, and where it is from.
func (c RuntimeCosts) Figure(runtime string) RuntimeFigure {
	switch v, told := c[runtime]; {
	case !told:
		return PublishedFigure(runtime)
	case v == 0:
		return RuntimeFigure{Source: "emulated here: no published figure holds, and none was measured"}
	default:
		return RuntimeFigure{v, "measured on its worker"}
	}
}
