package runtime

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
)

func TestNoCgroups(t *testing.T) {
	const (
		plain  = "23 27 0:22 / /sys rw,relatime - sysfs sysfs rw\n"
		v1     = plain + "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
		v2     = plain + "32 31 0:29 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw\n"
		inside = "20 1 0:4 / /proc rw - proc proc rw\n482 479 0:120 / /sys rw,relatime - sysfs blue rw\n"
	)
	for name, c := range map[string]struct{ self, first, says, hint string }{
		"a machine without":         {plain, plain, "no cgroup hierarchy is mounted", "mount cgroup2"},
		"the first is not seen":     {inside, "", "no cgroup hierarchy is mounted", "mount cgroup2"},
		"ip netns exec, version 1":  {inside, v1, "`ip netns exec blue` has mounted another /sys", "nsenter --net=/run/netns/blue"},
		"ip netns exec, version 2":  {plain + inside, v2, "`ip netns exec blue`", "nsenter --net=/run/netns/blue"},
		"another mount namespace":   {plain, v2, "hidden: they are not mounted", "nsenter --net=FILE"},
		"a /sys over that of ip":    {inside + plain, v2, "hidden: they are not mounted", "nsenter --net=FILE"},
		"a source that is no name":  {strings.Replace(inside, "blue", "/dev/x", 1), v2, "hidden: they are not mounted", "nsenter"},
		"nothing at all is mounted": {"", v2, "hidden: they are not mounted", "nsenter"},
	} {
		e := skerry.AsError(noCgroups(c.self, c.first))
		if e.Code != skerry.CodeUnsupported || !strings.Contains(e.Message, c.says) || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s: %q, %q", name, e.Message, e.Hint)
		}
	}
}
