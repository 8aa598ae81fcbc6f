package sched

import (
	"fmt"
	"slices"
	"strings"

	"skerry.dev/skerry/wire"
)

// Architecture rules out workers whose processor cannot run the service.
type Architecture struct{}

func (Architecture) Name() string { return "architecture" }

func (Architecture) Lasting() bool { return false }

func (Architecture) For(q *Query) Check {
	arch := q.Spec.Architectures()
	if len(arch) == 0 {
		return nil
	}
	return byKind(q, "arch", func(k *kind) bool { return slices.Contains(arch, k.class.Arch) },
		func(k *kind) wire.Reason {
			r := wire.Reason{What: "arch", Text: fmt.Sprintf("it is %s; the service runs on %s", k.class.Arch, strings.Join(arch, ", ")),
				Hint: fmt.Sprintf("build the image for %s too and add it to placement.arch", k.class.Arch)}
			if len(q.Spec.Platforms) > 0 && (len(q.Spec.Placement.Arch) == 0 || slices.Contains(q.Spec.Placement.Arch, k.class.Arch)) {
				r.Text = fmt.Sprintf("it is %s; the image is built for %s", k.class.Arch, strings.Join(q.Spec.Platforms, ", "))
				r.Hint = fmt.Sprintf("build the image for %s too, and apply again", k.class.Arch)
			}
			return r
		})
}
