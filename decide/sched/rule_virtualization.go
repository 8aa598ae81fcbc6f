package sched

import (
	"fmt"
	"slices"
	"strings"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Virtualization rules out workers without the runtime that the service needs (Schema 1: virtualization; Algorithm 2,
// line 1).
type Virtualization struct{}

func (Virtualization) Name() string { return "virtualization" }

func (Virtualization) Lasting() bool { return false }

func (Virtualization) For(q *Query) Check {
	arch := q.Spec.Architectures()
	return byKind(q, "runtime", func(k *kind) bool {
		foreign := len(arch) > 0 && !slices.Contains(arch, k.class.Arch) // Architecture tells of that
		return foreign || q.runtimes[k.id] != ""
	},
		func(k *kind) wire.Reason {
			if miss := q.Spec.ClassMiss(k.class.Runtimes); miss != "" {
				return wire.Reason{What: "runtimeClass", Text: miss, Hint: classHint}
			}
			return wire.Reason{What: "runtime", Text: "it offers no working runtime " + runtimes(q.Spec),
				Hint: "`skerry worker check` on the worker tells what is missing"}
		})
}

// classHint is for a worker without the class that a service names.
const classHint = "declare it with --containerd-class on the worker; `skerry worker check` there tells what is missing of one that is declared"

// runtimes names those in which a service may run, and those that would keep it apart enough but cannot do what it asks for.
func runtimes(s *spec.ServiceSpec) string {
	out := strings.Join(s.Runtimes(), " or ")
	for _, c := range s.RuntimeChoices("", nil) {
		if c.Lacking {
			out += fmt.Sprintf("; %s %s", c.Runtime, c.Out)
		}
	}
	return out
}
