package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// TestContainerdClasses reads classes as an operator declares them, and says of a wrong one what is wrong with it.
func TestContainerdClasses(t *testing.T) {
	got, err := ParseContainerdClasses([]string{"kata=io.containerd.kata.v2,isolation=hardware,snapshotter=devmapper",
		"crun=io.containerd.runc.v2,binary=crun",
		"own=/opt/shim"})
	want := []ContainerdClass{
		{Name: "kata", Shim: "io.containerd.kata.v2", Isolation: spec.IsolationHardware, Snapshotter: "devmapper"},
		{Name: "crun", Shim: "io.containerd.runc.v2", Binary: "crun", Isolation: spec.IsolationShared},
		{Name: "own", Shim: "/opt/shim", Isolation: spec.IsolationShared}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	many := make([]string, maxContainerdClasses+1)
	for i := range many {
		many[i] = "c" + strings.Repeat("x", i) + "=shim"
	}
	for text, list := range map[string][]string{
		"--containerd-class =shim: ":                             {"=shim"},
		"--containerd-class A/B=shim: ":                          {"A/B=shim"},
		"--containerd-class kata: it names no shim":              {"kata"},
		"a class kata is there already":                          {"kata=a", "kata=b"},
		`isolation "strong" is none`:                             {"kata=a,isolation=strong"},
		`option "binary=" is not known, or has no value`:         {"kata=a,binary="},
		`option "" is not known, or has no value`:                {"kata=a,"},
		`option "speed=fast" is not known, or has no value`:      {"kata=a,speed=fast"},
		"--containerd-class: 17 classes; at most 16 are allowed": many,
	} {
		_, err := ParseContainerdClasses(list)
		if e, ok := errors.AsType[*skerry.Error](err); !ok || e.Code != skerry.CodeInvalid || !strings.Contains(e.Error(), text) {
			t.Errorf("%q: %v", list, err)
		}
	}
}

// TestClassesThatAreLeft opens a driver for each class that is declared, and for one that is not any more while a container of it may run.
func TestClassesThatAreLeft(t *testing.T) {
	c := WorkerConfig{CgroupParent: "skerry-test"}
	c.Dir = t.TempDir()
	c.Containerd.Classes = []ContainerdClass{{Name: "crun", Shim: "io.containerd.runc.v2", Binary: "crun", Isolation: spec.IsolationShared}}
	empty := filepath.Join(c.Dir, "containerd.hardware.old")
	for _, dir := range []string{empty, filepath.Join(c.Dir, "containerd.hardware.kata", "tasks", "half.main.1"), filepath.Join(c.Dir,
		"containerd.strange")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	drivers, err := c.containerdDrivers(nil, []string{"/bin/keeper"})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, d := range drivers {
		defer d.Close()
		names[d.Name()] = d.Check(t.Context()).Absent // for want of a socket, or undeclared
	}
	if want := []string{"containerd", "containerd/hardware/kata", "containerd/shared/crun"}; !slices.Equal(sortedNames(names), want) {
		t.Errorf("%v", names)
	}
	if _, err := os.Stat(empty); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a class of which nothing is left keeps its directory: %v", err)
	}
}

func sortedNames(m map[string]bool) (out []string) {
	for n, absent := range m {
		if absent {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}
