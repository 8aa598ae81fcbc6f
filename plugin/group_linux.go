package plugin

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry"
)

// controllers are those that limit a program.
var controllers = [...]string{"memory", "pids", "cpu"}

// group is the cgroup of one process, in one hierarchy of version 2 or in several of version 1. Nil is none.
type group struct {
	dirs map[string]string // by controller
}

// hierarchies finds where each controller is mounted.
func hierarchies(mountinfo string) (at map[string]string, unified bool) {
	at = map[string]string{}
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		has := strings.Split(r[2], ",")
		if r[0] == "cgroup2" {
			text, _ := os.ReadFile(filepath.Join(l[4], "cgroup.controllers"))
			if has = strings.Fields(string(text)); slices.Contains(has, "memory") {
				unified = true
			}
		} else if r[0] != "cgroup" {
			continue
		}
		for _, c := range controllers {
			if slices.Contains(has, c) && at[c] == "" {
				at[c] = l[4]
			}
		}
	}
	return at, unified
}

func mounted() (map[string]string, bool) {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	return hierarchies(string(text))
}

// newGroup makes a group with limits, and tells which of them it could not set.
func newGroup(parent, name string, memory skerry.Bytes) (*group, []string) {
	at, unified := mounted()
	var b [4]byte
	rand.Read(b[:])
	leaf := fmt.Sprintf("%s-%d-%s", name, os.Getpid(), hex.EncodeToString(b[:]))
	g := &group{dirs: map[string]string{}}
	var missing []string
	for _, c := range controllers {
		dir := filepath.Join(at[c], parent, leaf)
		err := fmt.Errorf("the controller is not mounted")
		if at[c] != "" {
			if unified {
				err = descend(at[c], parent, c)
			} else {
				err = nil
			}
			for range 3 { // another may remove the group above, which is empty
				if err == nil || os.IsNotExist(err) {
					err = os.MkdirAll(dir, 0o755)
				}
			}
			if err == nil {
				err = limit(dir, c, unified, memory)
			}
		}
		if err == nil {
			g.dirs[c] = dir
		} else if missing = append(missing, "a limit of "+c+" ("+clean(err.Error())+")"); at[c] != "" {
			_ = os.Remove(dir)
		}
	}
	return g, missing
}

// descend hands a controller of version 2 down to the groups of plugins.
func descend(root, parent, controller string) error {
	dir := root
	for _, part := range append([]string{""}, strings.Split(parent, "/")...) {
		dir = filepath.Join(dir, part)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
			return err
		}
	}
	return nil
}

func limit(dir, controller string, unified bool, memory skerry.Bytes) error {
	put := func(file, value string) error {
		return os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
	}
	bytes := fmt.Sprint(int64(memory))
	switch {
	case controller == "pids":
		return put("pids.max", fmt.Sprint(maxTasks))
	case controller == "memory" && unified:
		_ = put("memory.swap.max", "0") // absent without swap
		return put("memory.max", bytes)
	case controller == "memory":
		err := put("memory.limit_in_bytes", bytes)
		_ = put("memory.memsw.limit_in_bytes", bytes) // absent without swap accounting
		return err
	case unified:
		return put("cpu.max", "100000 100000")
	}
	_ = put("cpu.cfs_period_us", "100000")
	return put("cpu.cfs_quota_us", "100000")
}

func (g *group) dir(controller string) string {
	if g == nil {
		return ""
	}
	return g.dirs[controller]
}

// all gives each directory once.
func (g *group) all() []string {
	var out []string
	for _, c := range controllers {
		if d := g.dir(c); d != "" && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// procs are the files that take a process in.
func (g *group) procs() []string {
	var out []string
	for _, d := range g.all() {
		out = append(out, filepath.Join(d, "cgroup.procs"))
	}
	return out
}

// oom reports whether the kernel ended something in the group because of its memory.
func (g *group) oom() bool {
	if g.dir("memory") == "" {
		return false
	}
	for _, f := range []string{"memory.events", "memory.oom_control"} {
		text, _ := os.ReadFile(filepath.Join(g.dirs["memory"], f))
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok && n != "0" {
				return true
			}
		}
	}
	return false
}

// remove ends what is left in the group and deletes it. The kernel lets go of it a moment after its last process.
func (g *group) remove() {
	for _, dir := range g.all() {
		for wait := time.Millisecond; wait < time.Second; wait *= 2 {
			if err := syscall.Rmdir(dir); err == nil || os.IsNotExist(err) {
				break
			}
			text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, pid := range strings.Fields(string(text)) {
				var n int
				if _, err := fmt.Sscan(pid, &n); err == nil && n > 1 {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
			time.Sleep(wait)
		}
	}
}

// removeGroups deletes the groups of orchestrators that are gone, and the one above when it is empty.
func removeGroups(parent string) {
	at, _ := mounted()
	for _, root := range at {
		top := filepath.Join(root, parent)
		list, _ := os.ReadDir(top)
		for _, e := range list {
			part := strings.Split(e.Name(), "-")
			if !e.IsDir() || len(part) < 3 {
				continue
			}
			if _, err := os.Stat("/proc/" + part[len(part)-2]); os.IsNotExist(err) {
				_ = syscall.Rmdir(filepath.Join(top, e.Name()))
			}
		}
		_ = syscall.Rmdir(top)
	}
}
