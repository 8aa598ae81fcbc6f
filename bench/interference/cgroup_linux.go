package interference

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry/runtime"
)

const cgroups = "/sys/fs/cgroup"

// quotaPeriod is that of the processor quota, in µs, as runtimes have it.
const quotaPeriod = 100000

// cgroup has the limits of a bare process: one group of version 2, or one for each controller of version 1.
type cgroup struct {
	two  bool
	dirs []string
}

// limits of a task.
type limits struct {
	cpu    float64 // processors
	memory int64   // bytes; 0: none
	cpus   string
}

func newCgroup(name string, l limits) (*cgroup, error) {
	g := &cgroup{}
	memory, quota := "", strconv.Itoa(int(l.cpu*quotaPeriod))
	if l.memory > 0 {
		memory = strconv.FormatInt(l.memory, 10)
	}
	type file struct{ controller, name, value string }
	var files []file
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		g.two = true
		if err := os.WriteFile(filepath.Join(cgroups, "cgroup.subtree_control"), []byte("+cpu +cpuset +memory"), 0o644); err != nil {
			return nil, fmt.Errorf("controllers cannot be handed down: %w", err)
		}
		files = []file{{"", "cpu.max", fmt.Sprint(quota, " ", quotaPeriod)}, {"", "cpuset.cpus", l.cpus}, {"", "memory.max", memory}}
	} else {
		mems, err := os.ReadFile(filepath.Join(cgroups, "cpuset", "cpuset.mems"))
		if err != nil {
			return nil, err
		}
		files = []file{
			{"cpu", "cpu.cfs_period_us", strconv.Itoa(quotaPeriod)}, {"cpu", "cpu.cfs_quota_us", quota}, {"cpuacct", "", ""},
			{"cpuset", "cpuset.cpus", l.cpus}, {"cpuset", "cpuset.mems", strings.TrimSpace(string(mems))},
			{"memory", "memory.limit_in_bytes", memory},
		}
	}
	for _, f := range files {
		dir := filepath.Join(cgroups, f.controller, name)
		if !slices.Contains(g.dirs, dir) {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) { // controllers may share a hierarchy
				return nil, errors.Join(err, g.remove())
			}
			g.dirs = append(g.dirs, dir)
		}
		if f.value == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.value), 0o644); err != nil {
			return nil, errors.Join(err, g.remove())
		}
	}
	return g, nil
}

// enter is a script that joins the group and becomes the program.
func (g *cgroup) enter() string {
	var b strings.Builder
	for _, d := range g.dirs {
		fmt.Fprintf(&b, "echo 0 > %s/cgroup.procs && ", d)
	}
	return b.String() + `exec "$0" "$@"`
}

func (g *cgroup) pids() (out []int) {
	if len(g.dirs) == 0 {
		return nil
	}
	text, _ := os.ReadFile(filepath.Join(g.dirs[0], "cgroup.procs"))
	for f := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(f); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// remove kills what is in the group.
func (g *cgroup) remove() (err error) {
	for range 500 { // what was killed takes a moment
		err = nil
		for _, pid := range g.pids() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		for _, d := range g.dirs {
			if e := os.Remove(d); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = e
			}
		}
		if err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// stats reads the group's counters.
func (g *cgroup) stats() (s runtime.Stats, err error) {
	s.At = time.Now()
	read := func(name string) map[string]uint64 {
		out := map[string]uint64{}
		for _, d := range g.dirs {
			text, e := os.ReadFile(filepath.Join(d, name))
			if errors.Is(e, os.ErrNotExist) {
				continue
			}
			err = errors.Join(err, e)
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line)
				if len(f) == 1 {
					f = []string{name, f[0]}
				}
				if len(f) == 2 {
					out[f[0]], _ = strconv.ParseUint(f[1], 10, 64)
				}
			}
		}
		return out
	}
	stat := read("cpu.stat")
	s.Periods, s.ThrottledPeriods = stat["nr_periods"], stat["nr_throttled"]
	if g.two {
		s.CPU, s.Throttled = time.Duration(stat["usage_usec"])*time.Microsecond, time.Duration(stat["throttled_usec"])*time.Microsecond
	} else {
		s.CPU, s.Throttled = time.Duration(read("cpuacct.usage")["cpuacct.usage"]), time.Duration(stat["throttled_time"])
	}
	for _, pid := range g.pids() {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, t := range threads {
			text, _ := os.ReadFile(t) // it may have ended
			if f := strings.Fields(string(text)); len(f) == 3 {
				n, _ := strconv.ParseUint(f[1], 10, 64)
				s.Waiting += time.Duration(n)
			}
		}
	}
	return s, err
}

// removeGroups removes a group that has no processes any more, and those below it, from every hierarchy.
func removeGroups(name string) (err error) {
	roots, _ := filepath.Glob(filepath.Join(cgroups, "*", name))
	for _, root := range append(roots, filepath.Join(cgroups, name)) {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error { // what is not there is removed
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, d := range slices.Backward(dirs) {
			if e := os.Remove(d); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}
