//go:build linux

package oci

import (
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"skerry.dev/skerry/runtime"
)

// defaultCaps is Docker's set without MKNOD, NET_RAW, AUDIT_WRITE and SETFCAP: what services almost never need and
// break-outs often do. Pings work without NET_RAW through ICMP sockets, which the network allows.
func defaultCaps() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID",
		"CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	}
}

// capabilities applies CapDrop, then CapAdd.
func capabilities(spec runtime.Spec) (*specs.LinuxCapabilities, error) {
	set := defaultCaps()
	if spec.Privileged {
		set = runtime.Capabilities()
	}
	drop, err := runtime.CapabilityNames("capDrop", spec.CapDrop)
	if err != nil {
		return nil, err
	}
	add, err := runtime.CapabilityNames("capAdd", spec.CapAdd)
	if err != nil {
		return nil, err
	}
	set = slices.DeleteFunc(set, func(c string) bool { return slices.Contains(drop, c) })
	for _, c := range add {
		if !slices.Contains(set, c) {
			set = append(set, c)
		}
	}
	slices.Sort(set)
	// What was asked for by name reaches users other than root, too; it must be inheritable for that.
	return &specs.LinuxCapabilities{Bounding: set, Effective: set, Permitted: set, Inheritable: add, Ambient: add}, nil
}
