package runtime

import (
	"os"
	"path/filepath"
	"strings"

	"skerry.dev/skerry"
)

// NoCgroups is the error where no cgroup hierarchy is mounted. It tells a machine without them from a process that does
// not see them, as one that was started by "ip netns exec", which mounts a /sys of its own.
func NoCgroups() error {
	self, _ := os.ReadFile("/proc/self/mountinfo")
	first, _ := os.ReadFile("/proc/1/mountinfo")
	return noCgroups(string(self), string(first))
}

// noCgroups is given what this process and the machine's first have mounted.
func noCgroups(self, first string) error {
	if !strings.Contains(first, " - cgroup") {
		return skerry.Errorf(skerry.CodeUnsupported, "no cgroup hierarchy is mounted").WithHint("mount cgroup2 on /sys/fs/cgroup")
	}
	if name := netns(self); name != "" {
		return skerry.Errorf(skerry.CodeUnsupported, "the machine's cgroups are hidden: `ip netns exec %s` has mounted another /sys over them", name).
			WithHint("start it by `nsenter --net=/run/netns/%s`, which leaves the mounts as they are", name)
	}
	return skerry.Errorf(skerry.CodeUnsupported, "the machine's cgroups are hidden: they are not mounted in the mount namespace of this process").
		WithHint("start it where they are mounted; for a network namespace use `nsenter --net=FILE`, since `ip netns exec` hides them")
}

// netns is the name of the network namespace that "ip netns exec" has entered: it mounts sysfs with that as the source.
func netns(mountinfo string) string {
	name := ""
	for line := range strings.Lines(mountinfo) {
		left, right, _ := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 2 || l[4] != "/sys" || r[0] != "sysfs" {
			continue
		}
		name = "" // a later mount lies over an earlier one
		if filepath.Base(r[1]) == r[1] && r[1] != "sysfs" && r[1] != "none" && r[1] != "sys" {
			name = r[1]
		}
	}
	return name
}
