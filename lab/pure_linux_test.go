package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	const line = "42 (a ) b) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1 1"
	if state, parent, start, err := parseStat(line); state != 'S' || parent != 7 || start != 98765 || err != nil {
		t.Error(state, parent, start, err)
	}
	for _, bad := range []string{"", "42", "42 (x)", "42 (x) S x"} {
		if _, _, _, err := parseStat(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestSignalOnlyTheVeryProcess(t *testing.T) {
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := identify(cmd.Process.Pid)
	if err != nil || !p.alive() {
		t.Fatal(p, err)
	}
	later := process{p.PID, p.Start - 1} // an earlier one had the number
	if err := later.signal(unix.SIGKILL); !errors.Is(err, os.ErrProcessDone) || later.alive() {
		t.Error(err)
	}
	if !p.alive() {
		t.Fatal("a process that was not meant was ended")
	}
	if err := p.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := p.wait(t.Context()); err != nil { // it is a zombie now, which counts as ended
		t.Fatal(err)
	}
	cmd.Wait()
	if err := p.signal(unix.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
}

// What is frozen, or whose first thread has ended, is ended like all others.
func TestEndOfWhatHardlyDies(t *testing.T) {
	hs, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	group := fmt.Sprintf("/skerry-lab/hardly%d", os.Getpid())
	t.Cleanup(func() { // what is left would be the next run's
		if err := removeCgroup(context.Background(), group); err != nil {
			t.Error(err)
		}
	})
	headless := exec.Command("python3", "-c", `import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)`)
	frozen := exec.Command("sleep", "1000")
	for _, cmd := range []*exec.Cmd{headless, frozen} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		for _, h := range hs {
			if dir := filepath.Join(h.dir, group); h.v2 || slices.Contains(h.controllers, "freezer") {
				if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	first := func() string {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", headless.Process.Pid))
		return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[0]
	}
	for first() != "Z" {
		time.Sleep(10 * time.Millisecond)
	}
	for _, h := range hs {
		dir := filepath.Join(h.dir, group)
		_ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("FROZEN"), 0o644)
		_ = os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("1"), 0o644)
	}
	b := belongs{cgroup: group}
	if list := b.processes(); len(list) != 2 {
		t.Errorf("%d processes were found of 2", len(list))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.end(ctx); err != nil {
		t.Error(err)
	}
}

func TestParseHierarchies(t *testing.T) {
	const info = `30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/hugetlb rw - cgroup cgroup rw,hugetlb
34 30 0:28 /inner /other rw - cgroup cgroup rw,memory
`
	hs := parseHierarchies(info)
	if len(hs) != 3 || !hs[0].v2 || !hs[0].wanted() || !hs[1].wanted() || hs[2].wanted() {
		t.Errorf("%+v", hs)
	}
}
