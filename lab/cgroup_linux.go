package lab

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
)

// hierarchy is one mounted cgroup hierarchy.
type hierarchy struct {
	dir         string
	v2          bool
	controllers []string // of version 1
}

func hierarchies() ([]hierarchy, error) {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseHierarchies(string(text)), nil
}

func parseHierarchies(mountinfo string) (out []hierarchy) {
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 || l[3] != "/" || r[0] != "cgroup" && r[0] != "cgroup2" {
			continue
		}
		h := hierarchy{dir: l[4], v2: r[0] == "cgroup2"}
		if !h.v2 {
			h.controllers = strings.Split(r[2], ",")
		}
		if !slices.ContainsFunc(out, func(x hierarchy) bool { return x.dir == h.dir }) {
			out = append(out, h)
		}
	}
	return out
}

// wanted are the version 1 controllers in which an agent gets a group: those that account and that need no setting up.
func (h hierarchy) wanted() bool {
	return h.v2 || slices.ContainsFunc(h.controllers, func(c string) bool {
		return slices.Contains([]string{"cpu", "cpuacct", "memory", "pids", "freezer"}, c)
	})
}

// joinCgroup moves the calling thread into a cgroup of version 1, so that what it starts is born there. For version 2 it
// gives a descriptor for SysProcAttr.CgroupFD, or -1.
func joinCgroup(path string) (fd int, err error) {
	hs, err := hierarchies()
	if err != nil {
		return -1, err
	}
	fd, joined := -1, false
	for _, h := range hs {
		if !h.wanted() {
			continue
		}
		dir := filepath.Join(h.dir, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fd, fmt.Errorf("cgroup: %w", err)
		}
		if h.v2 {
			if fd, err = unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				return -1, fmt.Errorf("cgroup %s: %w", dir, err)
			}
			joined = true
		} else if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0o644); err != nil {
			return fd, fmt.Errorf("cgroup %s: %w", dir, err)
		} else {
			joined = true
		}
	}
	if !joined {
		return fd, runtime.NoCgroups()
	}
	return fd, nil
}

// cpuPeriod is that of a quota, in µs, as container runtimes have it.
const cpuPeriod = 100000

// limitCPU gives a group, which need not be there, so much of the processors and no more; 0: all.
func limitCPU(group string, cpu skerry.MilliCPU) error {
	period, quota, most := strconv.Itoa(cpuPeriod), "-1", "max"
	if cpu > 0 {
		quota = strconv.FormatInt(int64(cpu)*cpuPeriod/1000, 10)
		most = quota
	}
	return limit(group, "cpu", [][2]string{{"cpu.cfs_period_us", period}, {"cpu.cfs_quota_us", quota}},
		[2]string{"cpu.max", most + " " + period})
}

// limitMemory gives a group, which need not be there, so much memory and no more; 0: all.
func limitMemory(group string, memory skerry.Bytes) error {
	v1, v2 := "-1", "max"
	if memory > 0 {
		v1 = strconv.FormatInt(int64(memory), 10)
		v2 = v1
	}
	return limit(group, "memory", [][2]string{{"memory.limit_in_bytes", v1}}, [2]string{"memory.max", v2})
}

// limit writes what a controller's files of a group are to hold, in the hierarchy that has it.
func limit(group, controller string, v1 [][2]string, v2 [2]string) error {
	hs, err := hierarchies()
	if err != nil {
		return err
	}
	missing := fmt.Errorf("no cgroup hierarchy with the controller %s is mounted", controller)
	for _, h := range hs {
		dir, files := filepath.Join(h.dir, group), v1
		switch {
		case h.v2:
			if has, err := os.ReadFile(filepath.Join(h.dir, "cgroup.controllers")); err != nil ||
				!slices.Contains(strings.Fields(string(has)), controller) {
				continue // version 1 has it
			}
			files = [][2]string{v2}
		case !slices.Contains(h.controllers, controller):
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		if h.v2 { // each above hands it down
			at := h.dir
			for part := range strings.SplitSeq(strings.Trim(group, "/"), "/") {
				if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
					return fmt.Errorf("cgroup %s: %w", at, err)
				}
				at = filepath.Join(at, part)
			}
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, f[0]), []byte(f[1]), 0o644); err != nil {
				return fmt.Errorf("cgroup %s: %w", dir, err)
			}
		}
		missing = nil
	}
	return missing
}

// removeCgroup removes a cgroup with all below it from every hierarchy. Its processes must have ended; the kernel may need
// a moment to notice.
func removeCgroup(ctx context.Context, path string) error {
	hs, err := hierarchies()
	if err != nil {
		return err
	}
	for {
		var left error
		for _, h := range hs {
			var dirs []string
			top := filepath.Join(h.dir, path)
			_ = filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, p)
				}
				return nil
			})
			for _, d := range slices.Backward(dirs) {
				if err := unix.Rmdir(d); err != nil && err != unix.ENOENT && left == nil { // those above it cannot go either
					in, _ := os.ReadFile(filepath.Join(d, "cgroup.procs"))
					left = fmt.Errorf("remove cgroup %s with processes %q: %w", d, strings.Fields(string(in)), err)
				}
			}
			// The group of all labs goes with the last one.
			_ = unix.Rmdir(filepath.Dir(top))
		}
		if left == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(20 * time.Millisecond):
		}
	}
}
