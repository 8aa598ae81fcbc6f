package runtime

import (
	"fmt"
	"slices"
	"strings"
)

// Capabilities are the Linux capabilities of capabilities(7), by number.
func Capabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
		"CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW",
		"CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_PACCT",
		"CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD",
		"CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG",
		"CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
	}
}

// CapabilityNames completes the names of a Spec's field and expands ALL.
func CapabilityNames(field string, names []string) ([]string, error) {
	var out []string
	for i, n := range names {
		name := strings.ToUpper(n)
		if name == "ALL" {
			return Capabilities(), nil
		}
		if !strings.HasPrefix(name, "CAP_") {
			name = "CAP_" + name
		}
		if !slices.Contains(Capabilities(), name) {
			return nil, &InvalidSpec{Field: fmt.Sprintf("%s[%d]", field, i),
				Reason: fmt.Sprintf("%q is not a capability; see capabilities(7), or use ALL", n)}
		}
		out = append(out, name)
	}
	return out, nil
}

// ContainerCapabilities gives what a container may ever have, and which of these it gets whatever user it has. Nothing said, it is
// Docker's set without MKNOD, NET_RAW, AUDIT_WRITE and SETFCAP: what services almost never need and break-outs often do. Pings
// work without NET_RAW through ICMP sockets, which the network allows.
func ContainerCapabilities(spec Spec) (set, add []string, err error) {
	set = []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID",
		"CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	}
	if spec.Privileged {
		set = Capabilities()
	}
	drop, err := CapabilityNames("capDrop", spec.CapDrop)
	if err != nil {
		return nil, nil, err
	}
	if add, err = CapabilityNames("capAdd", spec.CapAdd); err != nil {
		return nil, nil, err
	}
	set = slices.DeleteFunc(set, func(c string) bool { return slices.Contains(drop, c) })
	for _, c := range add {
		if !slices.Contains(set, c) {
			set = append(set, c)
		}
	}
	return set, add, nil
}
