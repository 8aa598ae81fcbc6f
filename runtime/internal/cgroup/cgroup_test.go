//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
)

func TestParseMounts(t *testing.T) {
	const v1 = `30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
33 25 0:29 /docker/x /elsewhere/pids rw - cgroup cgroup rw,pids
`
	const v2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	const hybrid = "34 25 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	tree := parseMounts(v1 + hybrid)
	if tree.Unified() || tree.mounts["cpu"] != "/sys/fs/cgroup/cpu,cpuacct" || tree.mounts["cpuacct"] != tree.mounts["cpu"] || tree.has("pids") {
		t.Errorf("%+v", tree)
	}
	if tree.systemd != "/sys/fs/cgroup/systemd" || len(tree.others) != 2 {
		t.Errorf("%+v", tree)
	}
	if m := tree.Missing(); len(m) != 1 || m[0] != "pids" {
		t.Errorf("missing: %v", m)
	}
	if dirs := tree.Group("skerry/a").Dirs(); len(dirs) != 2 {
		t.Errorf("cpu and cpuacct are one hierarchy: %v", dirs)
	}
	tree = parseMounts(v2)
	if !tree.Unified() || tree.Group("/a/../b").Dirs()[0] != "/sys/fs/cgroup/b" || tree.Group("../../x").Path() != "/x" {
		t.Errorf("%+v", tree)
	}
	if tree = parseMounts("nonsense\n1 2 - cgroup\n"); tree.Unified() || len(tree.mounts) != 0 {
		t.Errorf("%+v", tree)
	}
}

// TestUnified reads and writes version 2's files in a plain directory; what the kernel makes of them is tested where
// there is one that has it.
func TestUnified(t *testing.T) {
	root := t.TempDir()
	tree := &Tree{unified: true, mounts: map[string]string{"": root}}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.controllers", "cpuset cpu io memory\n")
	if m := tree.Missing(); len(m) != 1 || m[0] != "pids" {
		t.Errorf("missing: %v", m)
	}
	g := tree.Group("skerry/a")
	if _, err := g.Stats(time.Now()); !os.IsNotExist(err) {
		t.Errorf("stats of nothing: %v", err)
	}
	if err := g.Create(Limits{CPU: 250, CPURequest: 1000, Memory: 64 * skerry.MiB, Pids: 9, CPUSet: "0-1"}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"cpu.max": "25000 100000", "cpu.weight": "39", "memory.max": "67108864", "memory.swap.max": "0", "pids.max": "9", "cpuset.cpus": "0-1",
	} {
		if got := readFile(filepath.Join(root, "skerry/a", file)); got != want {
			t.Errorf("%s is %q, not %q", file, got, want)
		}
	}
	if got := readFile(filepath.Join(root, "skerry/cgroup.subtree_control")); got == "" {
		t.Error("controllers are not handed down")
	}
	for file, text := range map[string]string{
		"cpu.stat":       "usage_usec 1500\nnr_periods 10\nnr_throttled 4\nthrottled_usec 7\n",
		"memory.current": "1000000\n", "memory.peak": "2000000\n", "memory.stat": "anon 5\ninactive_file 400000\n",
		"memory.events": "low 0\noom 1\noom_kill 2\n", "pids.current": "3\n",
		"io.stat":       "8:0 rbytes=4096 wbytes=100 rios=1\n8:16 rbytes=4 wbytes=1\n",
		"cgroup.freeze": "1\n",
	} {
		write(filepath.Join("skerry/a", file), text)
	}
	s, err := g.Stats(time.Unix(5, 0))
	if err != nil || s.CPU != 1500*time.Microsecond || s.Periods != 10 || s.ThrottledPeriods != 4 || s.Throttled != 7*time.Microsecond ||
		s.Memory != 1000000 || s.MemoryPeak != 2000000 || s.MemoryLimit != 64*skerry.MiB || s.MemoryWorkingSet != 600000 ||
		s.OOMKills != 2 || s.Pids != 3 || s.DiskRead != 4100 || s.DiskWrite != 101 {
		t.Errorf("%+v, %v", s, err)
	}
	if !g.Frozen() {
		t.Error("not frozen")
	}
	for _, err := range []error{tree.Group("skerry.slice/a").Create(Limits{}), tree.Group("skerry.slice/conmon").Shelter(os.Getpid())} {
		if err == nil || !strings.Contains(err.Error(), "--cgroup-parent skerry.slice/workloads") {
			t.Errorf("a group right below a slice: %v", err)
		}
	}
	write("skerry/a/memory.max", "max\n")
	if s, _ := g.Stats(time.Now()); s.MemoryLimit != 0 {
		t.Errorf("no limit is %s", s.MemoryLimit)
	}
}

func TestReal(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it makes a cgroup")
	}
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	g := tree.Group(fmt.Sprintf("skerry-test-cgroup-%d-real", os.Getpid()))
	for range 2 {
		if err := g.Create(Limits{CPU: 100, CPURequest: 100, Memory: 16 * skerry.MiB, Pids: 5}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := g.Stats(time.Now())
	if err != nil || s.MemoryLimit != 16*skerry.MiB || len(g.Procs()) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := g.Kill(time.Second); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
	if g.Exists() {
		t.Error("it is still there")
	}
}

// The groups above go with the last one below them, and only then.
// TestEndOfAGroupThatIsComeInto has a process come into a group while that is deleted.
func TestEndOfAGroupThatIsComeInto(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	g := tree.Group(fmt.Sprintf("skerry-test-cgroup-%d-end", os.Getpid()))
	for in := false; !in; { // until the process is quick enough
		in = comeInto(t, g)
	}
}

// comeInto ends a group while a process comes into it, and reports whether it came in before the group was gone.
func comeInto(t *testing.T, g Group) bool {
	if err := g.Create(Limits{}); err != nil {
		t.Fatal(err)
	}
	last := g.Dirs()[len(g.Dirs())-1]
	below := ""
	for i := range 300 { // so that it takes a while
		below = filepath.Join(last, fmt.Sprintf("%03d", i))
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	comer := exec.Command("sleep", "1000")
	if err := comer.Start(); err != nil {
		t.Fatal(err)
	}
	came := make(chan error, 1)
	go func() {
		for _, err := os.Stat(below); err == nil; _, err = os.Stat(below) {
		}
		came <- os.WriteFile(filepath.Join(last, "cgroup.procs"), fmt.Append(nil, comer.Process.Pid), 0o644)
	}()
	if err := g.End(time.Minute); err != nil || g.Exists() {
		t.Errorf("it is there: %t, %v", g.Exists(), err)
	}
	err := <-came
	_ = comer.Process.Kill()
	_ = comer.Wait()
	_ = g.End(time.Minute)
	return err == nil
}

func TestRemoveSharedTakesEmptyParents(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	top := fmt.Sprintf("skerry-test-cgroup-%d-parents", os.Getpid())
	a, b := tree.Group(top+"/mid/a"), tree.Group(top+"/mid/b")
	for _, g := range []Group{a, b} {
		if err := g.Create(Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.RemoveShared(); err != nil || !b.Exists() {
		t.Error("b is gone, or", err)
	}
	if err := b.RemoveShared(); err != nil || tree.Group(top).Exists() {
		t.Error("the groups above are left, or", err)
	}
}

// A group is left in place, with what is below it, for as long as another owner has a process in it: one of a task, or a supervisor.
func TestRemoveSharedLeavesWhatIsUsed(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	for name, enter := range map[string]func(used Group, pid int) error{
		"task": func(used Group, pid int) error {
			return os.WriteFile(filepath.Join(used.Dirs()[0], "cgroup.procs"), fmt.Append(nil, pid), 0o644)
		},
		"supervisor": Group.Shelter,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := tree.Group(fmt.Sprintf("skerry-test-cgroup-%d-shared-%s", os.Getpid(), name))
			used, empty := tree.Group(g.path+"/used"), tree.Group(g.path+"/empty")
			for _, x := range []Group{used, empty} {
				if err := x.Create(Limits{}); err != nil {
					t.Fatal(err)
				}
			}
			sleep := exec.Command("sleep", "1000")
			if err := sleep.Start(); err != nil {
				t.Fatal(err)
			}
			if err := enter(used, sleep.Process.Pid); err != nil {
				t.Error(err)
			}
			if err := g.RemoveShared(); err != nil || !used.Exists() || !empty.Exists() {
				t.Errorf("got used %t, empty %t, %v, want both groups left", used.Exists(), empty.Exists(), err)
			}
			_ = sleep.Process.Kill()
			_ = sleep.Wait()
			if err := g.RemoveShared(); err != nil || g.Exists() {
				t.Errorf("it exists: %t, %v, want it to be gone", g.Exists(), err)
			}
		})
	}
}

func TestBlkio(t *testing.T) {
	r, w := parseBlkio([]byte("8:0 Read 4096\n8:0 Write 10\n8:0 Sync 5\n8:16 Read 4\nTotal 99\n8:0 Read -1\n8:0 Read x\n"))
	if r != 4100 || w != 10 {
		t.Errorf("%d, %d", r, w)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
	f.Add("8:0 rbytes=1 wbytes=2\n")
	f.Add("8:0 Read 4096\n")
	f.Fuzz(func(t *testing.T, text string) {
		parseMounts(text)
		parseIOStat([]byte(text))
		parseBlkio([]byte(text))
	})
}

// TestShams has a directory beside the hierarchies in which a runtime took an ordinary directory for a group.
func TestShams(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(root, unix.MNT_DETACH)
	for _, d := range []string{"memory", "hugetlb/skerry/a/b", "hugetlb/skerry/c"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "hugetlb/skerry/a/cgroup.procs"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tree := &Tree{mounts: map[string]string{"memory": filepath.Join(root, "memory")}}
	if err := tree.Group("skerry/a").Remove(); err != nil {
		t.Error(err)
	}
	for d, want := range map[string]bool{"hugetlb/skerry/a": false, "hugetlb/skerry/c": true, "memory": true} {
		if _, err := os.Stat(filepath.Join(root, d)); (err == nil) != want {
			t.Errorf("%s: %v", d, err)
		}
	}
}
