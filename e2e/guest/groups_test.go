//go:build linux && amd64

package guest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// instances asks the root.
func (g *machine) instances(t *testing.T) []wire.Instance {
	t.Helper()
	var list struct{ Items []wire.Instance }
	if err := json.Unmarshal([]byte(g.must(t, "skerry get instances -o json")), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// task is what runs for one service.
type task struct {
	instance   string
	group      string // below the mount point
	pid, start string // the first process and when it began, in ticks since the machine did
	restarts   int
}

// tasks finds what runs for the services run/box and run/bare.
func (g *guest) tasks(t *testing.T, services ...string) map[string]task {
	t.Helper()
	out := map[string]task{}
	for _, i := range g.instances(t) {
		service := i.Service.Service
		if !slices.Contains(services, service) {
			continue
		}
		if i.State != skerry.Running || i.Phase != skerry.PhaseRunning {
			t.Errorf("instance %s is %s, %s", i.ID, i.State, i.Phase)
		}
		f := strings.Fields(g.must(t, fmt.Sprintf(`cd %s &&
			dir=$(find skerry* -type d -name '*%s*') && read pid <$dir/cgroup.procs &&
			echo $dir $pid $(cut -d' ' -f22 /proc/$pid/stat)`, g.tree, i.ID)))
		if len(f) != 3 {
			t.Fatalf("no group of %s: %q", i.ID, f)
		}
		out[service] = task{string(i.ID), f[0], f[1], f[2], i.Restarts}
	}
	for _, s := range services {
		if out[s] == (task{}) {
			t.Fatalf("nothing runs for %s", s)
		}
	}
	return out
}

// unified reports whether groups are of version 2.
func (g *guest) unified() bool { return g.tree == groupsRoot }

const groupsRoot = "/sys/fs/cgroup"

// limitsOf checks the limits of run.yaml in the kernel's own words.
func (g *guest) limitsOf(t *testing.T, k task) {
	t.Helper()
	want, script := "25000 100000\n67108864\n32", fmt.Sprintf("cd %s/%s && cat cpu.max memory.max pids.max", g.tree, k.group)
	if !g.unified() {
		script = fmt.Sprintf("cd %s && echo $(cat cpu/%[2]s/cpu.cfs_quota_us cpu/%[2]s/cpu.cfs_period_us) && "+
			"cat memory/%[2]s/memory.limit_in_bytes pids/%[2]s/pids.max", groupsRoot, k.group)
	}
	if out := g.must(t, script); out != want {
		t.Errorf("limits of processor, memory and processes of %s are %q, want %q", k.instance, out, want)
	}
}

// member is how /proc/PID/cgroup names a group, of the hierarchy in such a directory if there is more than one.
func (g *guest) member(dir, group string) string {
	switch {
	case g.unified(), dir == "unified":
		return "0::/" + group
	case dir == "systemd":
		return ":name=systemd:/" + group
	default:
		return ":" + dir + ":/" + group
	}
}

// throttled is a script that succeeds once the limit of busy.yaml was met.
func (g *guest) throttled(k task) string {
	if g.unified() {
		return fmt.Sprintf("cd %s/%s && grep -q '^10000 100000' cpu.max && grep -E '^nr_throttled [1-9]' cpu.stat", g.tree, k.group)
	}
	return fmt.Sprintf("cd %s/cpu/%s && grep -qx 10000 cpu.cfs_quota_us && grep -E '^nr_throttled [1-9]' cpu.stat", groupsRoot, k.group)
}

// mayLower reports whether this host lets its processes be spared when memory runs short.
func mayLower() bool {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	return err == nil && has == 1
}
