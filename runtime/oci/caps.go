//go:build linux

package oci

import (
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"skerry.dev/skerry/runtime"
)

// capabilities applies CapDrop, then CapAdd.
func capabilities(spec runtime.Spec) (*specs.LinuxCapabilities, error) {
	set, add, err := runtime.ContainerCapabilities(spec)
	if err != nil {
		return nil, err
	}
	slices.Sort(set)
	// What was asked for by name reaches users other than root, too; it must be inheritable for that.
	return &specs.LinuxCapabilities{Bounding: set, Effective: set, Permitted: set, Inheritable: add, Ambient: add}, nil
}
