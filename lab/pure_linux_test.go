package lab

import (
	"errors"
	"os"
	"os/exec"
	"testing"

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
