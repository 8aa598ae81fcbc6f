//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/thread"
)

// trees are those of the machine, by version: version 2 is there beside version 1, too, with controllers or without.
func trees(t *testing.T) map[string]*Tree {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "cgroups", Why: "they need root"})
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var v2 strings.Builder
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, " - cgroup2 ") {
			v2.WriteString(line)
		}
	}
	out := map[string]*Tree{}
	if two := parseMounts(v2.String()); two.Unified() {
		out["version 2"] = two
	}
	if one := parseMounts(string(data)); one.systemd != "" {
		out["version 1"] = one
	}
	if len(out) == 0 {
		t.Skip(&testenv.Unsupported{What: "a service manager's cgroups", Why: "neither cgroup2 nor its own hierarchy is mounted"})
	}
	return out
}

// TestStart starts programs that are to be in a group from their first instruction on, and that show where they are.
func TestStart(t *testing.T) {
	for version, tree := range trees(t) {
		t.Run(version, func(t *testing.T) {
			g := tree.Group(fmt.Sprintf("skerry-test-cgroup-%d-start/conmon", os.Getpid()))
			defer func() {
				above := tree.Group(filepath.Dir(g.path))
				if err := above.End(5 * time.Second); err != nil || above.Exists() {
					t.Errorf("it is not free for others: %v", err)
				}
			}()
			before := groupsOfThreads(t)
			want := 1
			if tree.hybrid != "" {
				want = 2 // both are looked at, by one systemd or another
			}
			for range 3 {
				if out, err := show(t, g.Start); err != nil || strings.Count(out, ":"+g.Path()+"\n") != want {
					t.Errorf("a program to start in %s, of %d hierarchies, was, by %v, in\n%s", g.Path(), want, err, out)
				}
			}
			if out, err := show(t, func(cmd *exec.Cmd) error { return moved(g, cmd) }); err != nil || strings.Count(out, ":"+g.Path()+"\n") != want {
				t.Errorf("a program moved to %s, of %d hierarchies, was, by %v, in\n%s", g.Path(), want, err, out)
			}
			if err := g.Start(exec.Command("/nonexistent")); err == nil {
				t.Error("it started what is not there")
			}
			// A thread ends a moment after its goroutine.
			for began := time.Now(); ; testenv.Pause(began) {
				after := groupsOfThreads(t)
				if slices.Equal(before, after) {
					break
				}
				if time.Since(began) > time.Minute {
					t.Fatalf("threads of the agent were in %q and are in %q", before, after)
				}
			}
		})
	}
}

// moved starts a program that waits until it is in a group.
func moved(g Group, cmd *exec.Cmd) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "cat; cat /proc/self/cgroup"}
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		return err
	}
	return g.Shelter(cmd.Process.Pid)
}

// TestStartWithoutClone3 has a kernel, as there are older ones, that makes no process in a group.
func TestStartWithoutClone3(t *testing.T) {
	tree := trees(t)["version 2"]
	if tree == nil {
		t.Skip(&testenv.Unsupported{What: "cgroup version 2", Why: "it is not mounted"})
	}
	g := tree.Group(fmt.Sprintf("skerry-test-cgroup-%d-moved/conmon", os.Getpid()))
	defer func() {
		if err := tree.Group(filepath.Dir(g.path)).End(5 * time.Second); err != nil {
			t.Error(err)
		}
	}()
	thread.Run(func() {
		if err := withoutClone3(); err != nil {
			t.Error(err)
			return
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Close()
		cmd := exec.Command("cat")
		cmd.Stdin = r
		if err = g.Start(cmd); err != nil || !slices.Contains(g.Procs(), cmd.Process.Pid) {
			t.Errorf("started, by %v, elsewhere; there are %v", err, g.Procs())
		}
		w.Close()
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// withoutClone3 has the system call fail for this thread, as one that the kernel does not know.
func withoutClone3() error {
	const load, equal, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{{Code: load}, {Code: equal, Jf: 1, K: unix.SYS_CLONE3},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}, {Code: answer, K: unix.SECCOMP_RET_ALLOW}}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return e
	}
	return nil
}

// show runs a program that prints its groups, and returns what it printed.
func show(t *testing.T, start func(*exec.Cmd) error) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("cat", "/proc/self/cgroup")
	cmd.Stdout = out
	if err := start(cmd); err != nil {
		return "", err
	}
	err = cmd.Wait()
	return readFile(file), err
}

// groupsOfThreads are the groups, each once, in which threads of this process are.
func groupsOfThreads(t *testing.T) (groups []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/cgroup")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if text := readFile(f); text != "" && !slices.Contains(groups, text) {
			groups = append(groups, text)
		}
	}
	return groups
}
