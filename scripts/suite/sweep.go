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

// processes finds those that belong to the tests of a temporary directory.
func processes(dir string) (pids []int) {
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range list {
		env, _ := os.ReadFile(filepath.Join(p, "environ"))
		args, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if bytes.Contains(env, []byte("="+dir+"\x00")) || bytes.Contains(args, []byte(dir+"/")) {
			if pid, err := strconv.Atoi(filepath.Base(p)); err == nil && pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
