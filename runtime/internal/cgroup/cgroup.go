//go:build linux

// Package cgroup reads, limits, freezes and empties control groups, on version 1, hybrid and version 2. It owns the
// groups below the parent it is given and never mounts a hierarchy or moves a controller. Runtime drivers import it.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// Tree is the set of hierarchies of this machine. It does not change.
type Tree struct {
	unified bool
	// mounts maps a controller to its mount point; in unified mode "" maps to the one mount point.
	mounts map[string]string
	// others are further hierarchies in which runtimes make groups: systemd's own, hugetlb, an empty version 2.
	others []string
	// systemd is its own version 1 hierarchy, which tells services apart and limits nothing.
	systemd string
	// hybrid is an empty version 2, by which systemd tells services apart where it has it; "" if this process has no group in it.
	hybrid   string
	kept     atomic.Int32 // descriptors, of meters
	mostKept int32
}

// Open finds the hierarchies from /proc/self/mountinfo.
func Open() (*Tree, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	t := parseMounts(string(data))
	if own, err := os.ReadFile("/proc/self/cgroup"); err != nil || strings.Contains("\n"+string(own), "\n0::/\n") {
		t.hybrid = "" // nobody puts processes there
	}
	t.mostKept = mostKept()
	if len(t.mounts) == 0 {
		return nil, runtime.NoCgroups()
	}
	return t, nil
}

// parseMounts reads mountinfo. A cgroup2 mount counts only where it has controllers: beside version 1 it has none.
func parseMounts(mountinfo string) *Tree {
	t := &Tree{mounts: map[string]string{}}
	v2 := ""
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 || l[3] != "/" && !strings.HasPrefix(l[3], "/..") {
			continue
		}
		switch r[0] {
		case "cgroup2":
			if v2 == "" {
				v2 = l[4]
			}
		case "cgroup":
			for opt := range strings.SplitSeq(r[2], ",") {
				switch opt {
				case "cpu", "cpuacct", "cpuset", "memory", "pids", "freezer", "blkio", "devices", "hugetlb":
					if t.mounts[opt] == "" {
						t.mounts[opt] = l[4]
					}
				case "name=systemd":
					t.systemd = l[4]
					t.others = append(t.others, l[4])
				case "net_cls", "net_prio", "perf_event", "rdma", "misc":
					t.others = append(t.others, l[4])
				}
			}
		}
	}
	switch {
	case v2 != "" && len(t.mounts) == 0:
		t.unified, t.mounts[""], t.others = true, v2, nil
	case v2 != "":
		t.others, t.hybrid = append(t.others, v2), v2
	}
	return t
}

// Unified says whether the machine uses version 2.
func (t *Tree) Unified() bool { return t.unified }

// Missing gives those of the controllers cpu, memory and pids that cannot be used.
func (t *Tree) Missing() []string {
	var missing []string
	have := t.has
	if t.unified {
		data, _ := os.ReadFile(filepath.Join(t.mounts[""], "cgroup.controllers"))
		list := strings.Fields(string(data))
		have = func(c string) bool { return slices.Contains(list, c) }
	}
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !have(c) {
			missing = append(missing, c)
		}
	}
	return missing
}

func (t *Tree) has(controller string) bool { return t.mounts[controller] != "" }

// Group is one control group in all hierarchies.
type Group struct {
	t    *Tree
	path string // relative to the mount points
}

// Group names the group of a path such as "skerry/web.1". It need not exist.
func (t *Tree) Group(path string) Group { return Group{t, filepath.Join("/", path)[1:]} }

// Path is the group's path below the mount points, beginning with a slash.
func (g Group) Path() string { return "/" + g.path }

func (g Group) dir(controller string) string {
	if g.t.unified {
		controller = ""
	}
	m := g.t.mounts[controller]
	if m == "" {
		return ""
	}
	return filepath.Join(m, g.path)
}

// Dirs gives the group's directory in each hierarchy once.
func (g Group) Dirs() []string {
	var dirs []string
	for _, m := range g.t.mounts {
		if d := filepath.Join(m, g.path); !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	slices.Sort(dirs)
	return dirs
}

// allDirs is Dirs and the group's directories in hierarchies that limit nothing.
func (g Group) allDirs() []string {
	dirs := g.Dirs()
	for _, m := range g.t.others {
		dirs = append(dirs, filepath.Join(m, g.path))
	}
	return dirs
}

// Exists says whether the group is there in any hierarchy.
func (g Group) Exists() bool {
	return slices.ContainsFunc(g.allDirs(), func(d string) bool { _, err := os.Stat(d); return err == nil })
}

// Limits are what Create sets; a zero is no limit.
type Limits struct {
	CPU, CPURequest skerry.MilliCPU
	Memory          skerry.Bytes
	MemoryLow       skerry.Bytes
	Pids            int64
	CPUSet          string
	IO              *runtime.IO
	HugePages       spec.HugePages
}

// CPUPeriod is the period of CPU quotas in microseconds.
const CPUPeriod = 100_000

// Shares converts a CPU request into version 1's cpu.shares.
func Shares(request skerry.MilliCPU) uint64 { return uint64(max(2, int64(request)*1024/1000)) }

// weightOf converts a CPU request into version 2's cpu.weight.
func weightOf(request skerry.MilliCPU) uint64 {
	return min(10000, 1+(Shares(request)-2)*9999/262142)
}

// Create makes the group with its limits. It may exist already.
func (g Group) Create(limits Limits) error {
	if err := g.outsideSlice(); err != nil {
		return err
	}
	if g.t.unified {
		return g.createV2(limits)
	}
	for _, d := range g.Dirs() {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("cgroup %s: %w", g.Path(), err)
		}
	}
	if err := g.fillCPUSet(); err != nil {
		return err
	}
	if limits.CPU > 0 {
		if err := g.write("cpu", "cpu.cfs_period_us", strconv.Itoa(CPUPeriod)); err != nil {
			return err
		}
		if err := g.write("cpu", "cpu.cfs_quota_us", strconv.FormatInt(int64(limits.CPU)*CPUPeriod/1000, 10)); err != nil {
			return err
		}
	}
	if limits.CPURequest > 0 {
		if err := g.write("cpu", "cpu.shares", strconv.FormatUint(Shares(limits.CPURequest), 10)); err != nil {
			return err
		}
	}
	if limits.Memory > 0 {
		v := strconv.FormatInt(int64(limits.Memory), 10)
		if err := g.write("memory", "memory.limit_in_bytes", v); err != nil {
			return err
		}
		// Only with swap accounting is the file there; without swap nothing is lost.
		if err := g.write("memory", "memory.memsw.limit_in_bytes", v); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if limits.Pids > 0 {
		if err := g.write("pids", "pids.max", strconv.FormatInt(limits.Pids, 10)); err != nil {
			return err
		}
	}
	if limits.CPUSet != "" {
		if err := g.write("cpuset", "cpuset.cpus", limits.CPUSet); err != nil {
			return err
		}
	}
	if err := g.setMemoryLow(limits.MemoryLow); err != nil {
		return err
	}
	return errors.Join(g.limitIO(limits.IO), g.limitHugePages(limits.HugePages))
}

// fillCPUSet copies the parent's processors and memory nodes: a fresh version 1 cpuset accepts no process.
func (g Group) fillCPUSet() error {
	root := g.t.mounts["cpuset"]
	if root == "" {
		return nil
	}
	dir := root
	for part := range strings.SplitSeq(g.path, "/") {
		parent := dir
		dir = filepath.Join(dir, part)
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			if strings.TrimSpace(readFile(filepath.Join(dir, f))) != "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, f), []byte(readFile(filepath.Join(parent, f))), 0o644); err != nil {
				return fmt.Errorf("cgroup %s: %w", g.Path(), err)
			}
		}
	}
	return nil
}

// outsideSlice refuses a group right below a slice of systemd's, which decides what controllers those have and takes away what
// no unit of its own asked for, with the limits. It cannot where a further level in between uses them.
func (g Group) outsideSlice() error {
	if parent := filepath.Dir(g.path); g.t.unified && strings.HasSuffix(parent, ".slice") {
		return fmt.Errorf("cgroup %s: systemd takes limits away from groups right below %s; use a group below it, such as --cgroup-parent %s/workloads",
			g.Path(), filepath.Base(parent), parent)
	}
	return nil
}

func (g Group) createV2(limits Limits) error {
	root := g.t.mounts[""]
	dir := root
	parts := strings.Split(g.path, "/")
	for i, part := range parts {
		// Controllers are handed down one level at a time; one that the kernel refuses shows when its limit is set.
		for _, c := range []string{"cpu", "memory", "pids", "io", "cpuset", "hugetlb"} {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644)
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cgroup /%s: %w", strings.Join(parts[:i+1], "/"), err)
		}
	}
	type setting struct{ file, value string }
	var set []setting
	if limits.CPU > 0 {
		set = append(set, setting{"cpu.max", fmt.Sprintf("%d %d", int64(limits.CPU)*CPUPeriod/1000, CPUPeriod)})
	}
	if limits.CPURequest > 0 {
		set = append(set, setting{"cpu.weight", strconv.FormatUint(weightOf(limits.CPURequest), 10)})
	}
	if limits.Memory > 0 {
		set = append(set, setting{"memory.max", strconv.FormatInt(int64(limits.Memory), 10)})
	}
	if limits.Pids > 0 {
		set = append(set, setting{"pids.max", strconv.FormatInt(limits.Pids, 10)})
	}
	if limits.CPUSet != "" {
		set = append(set, setting{"cpuset.cpus", limits.CPUSet})
	}
	for _, s := range set {
		if err := g.write("", s.file, s.value); err != nil {
			return err
		}
	}
	if limits.Memory > 0 {
		// Absent without swap.
		_ = g.write("", "memory.swap.max", "0")
	}
	if err := g.setMemoryLow(limits.MemoryLow); err != nil {
		return err
	}
	return errors.Join(g.limitIO(limits.IO), g.limitHugePages(limits.HugePages))
}

func (g Group) write(controller, file, value string) error {
	dir := g.dir(controller)
	if dir == "" {
		return fmt.Errorf("cgroup %s: controller %s is not mounted, so %s cannot be set", g.Path(), controller, file)
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
		return fmt.Errorf("cgroup %s: set %s to %s: %w", g.Path(), file, value, err)
	}
	return nil
}

// Procs gives the processes in the group and below it.
func (g Group) Procs() []int {
	return procsOf(g.Dirs())
}

func procsOf(dirs []string) (pids []int) {
	for _, dir := range dirs {
		pids = procsBelow(dir, pids)
	}
	return pids
}

// procsBelow adds the processes of a directory of groups, and of those in it, to pids. It is asked of every group of every hierarchy whenever
// shares of the disk are measured, so it lists a directory only where its number of links says that there are others in it.
func procsBelow(dir string, pids []int) []int {
	for s := range strings.FieldsSeq(readFile(filepath.Join(dir, "cgroup.procs"))) {
		if pid, err := strconv.Atoi(s); err == nil && pid > 0 && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil || st.Nlink == 2 { // its name, and the one that it has for itself
		return pids
	}
	below, _ := os.ReadDir(dir)
	for _, entry := range below {
		if entry.IsDir() {
			pids = procsBelow(filepath.Join(dir, entry.Name()), pids)
		}
	}
	return pids
}

// Freeze stops all processes of the group, or lets them run on.
func (g Group) Freeze(frozen bool) error {
	file, value := "freezer.state", "THAWED"
	if frozen {
		value = "FROZEN"
	}
	if g.t.unified {
		file, value = "cgroup.freeze", "0"
		if frozen {
			value = "1"
		}
	}
	return g.write("freezer", file, value)
}

// Frozen says whether the group is frozen.
func (g Group) Frozen() bool {
	if g.t.unified {
		return strings.TrimSpace(readFile(filepath.Join(g.dir(""), "cgroup.freeze"))) == "1"
	}
	d := g.dir("freezer")
	return d != "" && strings.HasPrefix(readFile(filepath.Join(d, "freezer.state")), "FR")
}

// Kill sends SIGKILL to every process of the group and waits, at most for the time given, until none is left.
func (g Group) Kill(timeout time.Duration) error {
	if !g.Exists() {
		return nil
	}
	if g.t.unified {
		// Absent before Linux 5.14; the loop does it then.
		_ = os.WriteFile(filepath.Join(g.dir(""), "cgroup.kill"), []byte("1"), 0o644)
	}
	pause := time.Millisecond
	for deadline := time.Now().Add(timeout); ; {
		pids := alive(g.Procs())
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup %s: processes %v are still there %s after SIGKILL", g.Path(), pids, timeout)
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		// A frozen process takes the signal only when it runs again.
		_ = g.Freeze(false)
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// alive leaves out processes that have ended and wait to be reaped: version 1 goes on listing them. One whose first thread has
// ended may have others that have not.
func alive(pids []int) []int {
	return slices.DeleteFunc(pids, func(pid int) bool {
		stat := readFile(fmt.Sprintf("/proc/%d/stat", pid))
		const state, threads = 0, 17 // of what follows the name
		f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		return len(f) <= threads || f[state] == "X" || f[state] == "Z" && f[threads] <= "1"
	})
}

// Remove deletes the group and what is below it, in all hierarchies. It must hold no process.
func (g Group) Remove() error {
	var errs []error
	for _, root := range g.allDirs() {
		var dirs []string
		_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		for _, d := range slices.Backward(dirs) {
			if err := rmdir(d); err != nil {
				errs = append(errs, err)
			}
		}
	}
	for _, d := range g.shams() {
		if err := os.RemoveAll(d); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// End kills every process of the group and deletes it, for at most the time given: one that was being started when the others
// were killed may come into the group after them.
func (g Group) End(timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); ; {
		err := errors.Join(g.Kill(time.Until(deadline)), g.Remove())
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

// RemoveShared is Remove for a group that another owner may still use: after a moment for supervisors to end, processes
// that are left in it are no error, and leave it in place. Groups above it that are empty then go, too.
func (g Group) RemoveShared() error {
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := error(unix.EBUSY)
		// Remove tries each directory of each hierarchy for half a second: ten in all while one process was left in a task's group.
		if len(alive(procsOf(g.allDirs()))) == 0 {
			err = g.Remove()
		}
		switch {
		case err == nil:
			g.removeEmptyParents()
			return nil
		case !errors.Is(err, unix.EBUSY):
			return err
		case time.Now().After(deadline):
			return nil
		}
	}
}

// removeEmptyParents removes the groups above that Create made on its way. A service manager's own are left alone.
func (g Group) removeEmptyParents() {
	for p := filepath.Dir(g.path); p != "." && p != "/"; p = filepath.Dir(p) {
		if ext := filepath.Ext(p); ext == ".slice" || ext == ".service" || ext == ".scope" {
			return
		}
		above := Group{g.t, p}
		for _, d := range append(above.allDirs(), above.shams()...) {
			_ = unix.Rmdir(d) // the kernel refuses where something is in it
		}
	}
}

// shams are directories that look like the group and are none: crun makes its groups below the mount point of every
// hierarchy the kernel names, also where that is an ordinary directory because the hierarchy is mounted elsewhere.
func (g Group) shams() []string {
	var out []string
	if g.t.unified || g.path == "" {
		return nil
	}
	for _, m := range g.t.mounts {
		entries, _ := os.ReadDir(filepath.Dir(m))
		for _, e := range entries {
			d := filepath.Join(filepath.Dir(m), e.Name(), g.path)
			var st unix.Statfs_t
			// Exactly the file system on which the hierarchies' mount points stand.
			if e.IsDir() && unix.Statfs(d, &st) == nil && st.Type == unix.TMPFS_MAGIC && !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
		break
	}
	return out
}

// rmdir retries for a moment: the kernel lets go of a group shortly after its last process is gone.
func rmdir(dir string) error {
	var err error
	for i := range 12 {
		if err = unix.Rmdir(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(time.Millisecond << min(i, 6))
	}
	return fmt.Errorf("remove cgroup %s: %w", dir, err)
}

func readFile(path string) string {
	var buf [4 << 10]byte
	data, err := files.Peek(path, buf[:])
	if err != nil {
		return ""
	}
	return string(data)
}

func readUint(path string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSpace(readFile(path)), 10, 64)
	return n
}

// keyed reads a file of "key value" lines.
func keyed(path string) map[string]uint64 {
	m := map[string]uint64{}
	sc := bufio.NewScanner(strings.NewReader(readFile(path)))
	for sc.Scan() {
		k, v, _ := strings.Cut(sc.Text(), " ")
		if n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 64); err == nil {
			m[k] = n
		}
	}
	return m
}

// File is the path of a controller's file; empty when the controller is not mounted.
func (g Group) File(controller, name string) string {
	d := g.dir(controller)
	if d == "" {
		return ""
	}
	return filepath.Join(d, name)
}
