//go:build linux

package cgroup

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// walked finds the processes of a group the simple way: it lists every directory.
func walked(g Group) (pids []int) {
	for _, dir := range g.Dirs() {
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return nil
			}
			text, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			for _, word := range strings.Fields(string(text)) {
				pid, _ := strconv.Atoi(word)
				pids = append(pids, pid)
			}
			return nil
		})
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// sleeper starts a process in a group, and ends it with the test.
func sleeper(t *testing.T, g Group) {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := enter(g, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
}

// Processes are found in a group, in groups below it that come and go, and in those below these.
func TestProcs(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	g := realGroup(t, tree, "procs")
	check := func(when string, want int) {
		t.Helper()
		got := g.Procs()
		slices.Sort(got)
		if simple := walked(g); len(got) != want || !slices.Equal(got, simple) {
			t.Errorf("%s, got processes %v, want %d, which are %v by the simple way", when, got, want, simple)
		}
	}
	check("empty", 0)
	sleeper(t, g)
	check("with one", 1)
	inner := tree.Group(g.path + "/inner")
	deep := tree.Group(inner.path + "/deep")
	for _, below := range []Group{inner, deep} {
		// As a program in the group makes them, without controllers: with them it is no leaf any more in version 2.
		for _, dir := range below.Dirs() {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := below.fillCPUSet(); err != nil {
			t.Fatal(err)
		}
		check("with an empty group below", 1)
	}
	t.Run("below", func(t *testing.T) {
		sleeper(t, deep)
		check("with one two groups below", 2)
	})
	for _, below := range []Group{deep, inner} {
		if err := below.Remove(); err != nil {
			t.Fatal(err)
		}
		check("when the groups below are gone", 1)
	}
}

// Groups without others in them are not listed: that took ten system calls more for each of the hierarchies.
func TestProcsOfLeafIsCheap(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	g := realGroup(t, tree, "leaf")
	sleeper(t, g)
	dirs := len(g.Dirs())
	if got, most := int(testing.AllocsPerRun(20, func() { g.Procs() })), 12+9*dirs; got > most {
		t.Errorf("got %d allocations for a group of %d hierarchies, want %d at most", got, dirs, most)
	}
}
