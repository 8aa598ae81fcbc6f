//go:build linux

package oci

import (
	"fmt"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"skerry.dev/skerry/runtime"
)

// hooks adds programs that the runtime runs at stages of the container's life.
func hooks(c *specs.Spec, spec runtime.Spec) error {
	for i, h := range spec.Hooks {
		if c.Hooks == nil {
			c.Hooks = &specs.Hooks{}
		}
		list := map[string]*[]specs.Hook{"createRuntime": &c.Hooks.CreateRuntime, "createContainer": &c.Hooks.CreateContainer,
			"startContainer": &c.Hooks.StartContainer, "poststart": &c.Hooks.Poststart, "poststop": &c.Hooks.Poststop}[h.Stage]
		if list == nil {
			return &runtime.InvalidSpec{Field: fmt.Sprintf("hooks[%d]", i), Reason: fmt.Sprintf("there is no stage %q", h.Stage)}
		}
		out := specs.Hook{Path: h.Path, Args: h.Args, Env: h.Env}
		if h.Timeout > 0 {
			seconds := int((h.Timeout + time.Second - 1) / time.Second)
			out.Timeout = &seconds
		}
		*list = append(*list, out)
	}
	return nil
}
