package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{NetNS: true})) }

// A cleanup that is not told where the worker was finds its groups and directories all the same, of every start.
func TestCleanMachineRemembersPlaces(t *testing.T) {
	dir := t.TempDir()
	unique := "skerry-node-" + strings.ReplaceAll(strings.Trim(dir, "/"), "/", "-")
	common := Common{Dir: filepath.Join(dir, "data")}
	var runs []string
	for _, n := range []string{"/a", "/b", "/b"} {
		run := filepath.Join(dir, "run"+n)
		c := WorkerConfig{Common: common, RunDir: run, CgroupParent: unique + n, Join: Join{Name: "w1"}}
		if err := c.Fill(); err != nil {
			t.Fatal(err)
		}
		if err := c.rememberPlace(); err != nil {
			t.Fatal(err)
		}
		made := 0
		for _, top := range []string{"/sys/fs/cgroup/*/cgroup.procs", "/sys/fs/cgroup/cgroup.procs"} {
			list, _ := filepath.Glob(top)
			for _, procs := range list {
				if os.MkdirAll(filepath.Join(filepath.Dir(procs), c.CgroupParent), 0o755) == nil {
					made++
				}
			}
		}
		if made == 0 {
			t.Fatal("no group could be made")
		}
		if err := os.MkdirAll(run, 0o755); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	if got := CgroupParent(common.Dir); got != unique+"/b" {
		t.Errorf("it runs below %q", got)
	}
	if got := testenv.Cgroups(unique + "/*"); len(got) < 2 {
		t.Fatal(got)
	}
	if err := CleanMachine(t.Context(), WorkerConfig{Common: common, Join: Join{Name: "w1"}}); err != nil {
		t.Fatal(err)
	}
	if got := testenv.Cgroups(unique); len(got) != 0 {
		t.Error("left behind:", got)
	}
	for _, d := range append(runs, filepath.Join(common.Dir, placesFile)) {
		if _, err := os.Stat(d); err == nil {
			t.Error(d, "is left")
		}
	}
}

// What a file says that somebody damaged is not taken for a place.
func TestPlacesDamaged(t *testing.T) {
	c := WorkerConfig{Common: Common{Dir: t.TempDir()}}
	for _, text := range []string{"", "{", `[{"runDir":"relative","cgroupParent":"a"}]`, `[{"runDir":"/run/x"}]`, "null"} {
		if err := os.WriteFile(filepath.Join(c.Dir, placesFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := c.places(); len(got) != 0 || CgroupParent(c.Dir) != "" {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestOpenToUsers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run", "skerry")
	for _, mode := range []os.FileMode{0o711, 0o700, 0o755} {
		if err := openToUsers(dir); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm()&0o111 != 0o111 || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("got %v, %v, want a directory that all may enter", info.Mode(), err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUmask: a worker that a shell with umask 077 started makes directories that users of containers can enter.
func TestUmask(t *testing.T) {
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	ended, end := context.WithCancel(t.Context())
	end()
	_, _ = OpenWorker(ended, WorkerConfig{Common: Common{Dir: t.TempDir()}, Join: Join{Name: "w1"}, RunDir: filepath.Join(t.TempDir(), "run")})
	if got := unix.Umask(0o022); got != 0o022 {
		t.Errorf("got umask %03o after the worker was opened, want 022", got)
	}
}
