package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// notesVar names the directory in which testenv.Main notes the temporary directory of a process of tests.
const notesVar = "SKERRY_TEST_NOTES"

// sweep ends what tests that were cut off have left: processes that carry the temporary directory of their tests in their environment
// or arguments, then mounts in it, and itself. Tests that end by themselves leave nothing, and fail if they do.
func sweep(notes string) {
	entries, _ := os.ReadDir(notes)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(notes, e.Name()))
		dir := string(data)
		if err != nil || !filepath.IsAbs(dir) {
			continue
		}
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		for range 50 { // what supervises the others may start them again, and goes when they are gone
			list := processes(dir)
			if len(list) == 0 {
				break
			}
			for _, pid := range list {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if unmount(dir) {
			_ = os.RemoveAll(dir)
		}
	}
}

// unmount detaches what is mounted below a directory, the innermost first, and reports whether nothing is left.
func unmount(dir string) bool {
	for range 3 { // a mount may lie on another
		points := mounts(dir)
		if len(points) == 0 {
			return true
		}
		for _, p := range slices.Backward(points) {
			_ = syscall.Unmount(p, 2) // MNT_DETACH
		}
	}
	return len(mounts(dir)) == 0
}

func mounts(dir string) (points []string) {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			points = append(points, f[4])
		}
	}
	return points
}

// processes finds those that belong to the tests of a temporary directory, with their descendants: what runs in a container carries no mark, but
// its supervisor does.
func processes(dir string) (pids []int) {
	list, _ := filepath.Glob("/proc/[0-9]*")
	children := map[int][]int{}
	var marked []int
	for _, p := range list {
		pid, _ := strconv.Atoi(filepath.Base(p))
		stat, _ := os.ReadFile(filepath.Join(p, "stat"))
		if i := bytes.LastIndexByte(stat, ')'); i > 0 { // the name before it may hold anything
			if f := strings.Fields(string(stat[i+1:])); len(f) > 1 {
				parent, _ := strconv.Atoi(f[1])
				children[parent] = append(children[parent], pid)
			}
		}
		env, _ := os.ReadFile(filepath.Join(p, "environ"))
		args, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if bytes.Contains(env, []byte("="+dir+"\x00")) || bytes.Contains(args, []byte(dir+"/")) {
			marked = append(marked, pid)
		}
	}
	seen := map[int]bool{os.Getpid(): true}
	for len(marked) > 0 {
		pid := marked[0]
		marked = marked[1:]
		if !seen[pid] {
			seen[pid] = true
			pids = append(pids, pid)
			marked = append(marked, children[pid]...)
		}
	}
	return pids
}
