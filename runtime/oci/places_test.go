//go:build linux

package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/runtimetest"
)

// names lists a directory; one that is not there is empty.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// A layer has the places that its name says, whatever somebody does meanwhile to what is to be mounted: the next container with the same
// places, which may be another organisation's, could not start with others.
func TestPlacesAreWhatTheirNameSays(t *testing.T) {
	base, source := t.TempDir(), filepath.Join(t.TempDir(), "source")
	all := &places{dir: filepath.Join(t.TempDir(), "places"), used: func() map[string]bool { return nil }}
	spec := runtime.Spec{Mounts: []runtime.Mount{{Type: "bind", Source: source, Target: "/data"}}}
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	config, err := mounted(spec)
	if err != nil {
		t.Fatal(err)
	}
	name, err := key([]string{base}, config, -1)
	if err := errors.Join(err, os.Remove(source), os.WriteFile(source, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if again, err := key([]string{base}, config, -1); err != nil || again != name {
		t.Errorf("its name was %s, and is %s, %v", name, again, err)
	}
	if err := all.make(name, config, []string{base}, -1); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(all.dir, name, "data")); err != nil || !st.IsDir() {
		t.Errorf("the place of a directory is %v, %v", st, err)
	}
}

// The places of mounts that an image lacks are made once, and no container has any of them in its own layer. What the image has stays as it
// is.
func TestPlacesAreMadeOnce(t *testing.T) {
	dir := t.TempDir()
	if err := enterable(dir); err != nil {
		t.Fatal(err)
	}
	base := runtimetest.Image(t, runtimetest.Workload(t))
	top := filepath.Join(t.TempDir(), "top")
	if err := errors.Join(os.MkdirAll(filepath.Join(base, "run/secret"), 0o755), os.MkdirAll(filepath.Join(top, "etc"), 0o755),
		os.Chmod(filepath.Join(top, "etc"), 0o751), os.Chown(filepath.Join(top, "etc"), 7, 8),
		unix.Mknod(filepath.Join(top, "run"), unix.S_IFCHR, 0)); err != nil { // which takes away what is below
		t.Fatal(err)
	}
	open := func() *Driver {
		t.Helper()
		d, err := New(Options{Dir: dir, CgroupParent: cgroupParent()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	d := open()
	n := 0
	start := func(change func(*runtime.Spec)) *monitor.Task {
		t.Helper()
		n++
		spec := runtime.Spec{ID: runtime.TaskID(fmt.Sprintf("places.main.%d", n)), Args: []string{"/bin/workload", "sleep"}, Hostname: "here",
			RootFS: []runtime.Mount{runtime.Overlay(top, base)}, Mounts: []runtime.Mount{{Type: "bind", Source: dir, Target: "/run/own"}}}
		change(&spec)
		h, err := d.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Remove(context.Background(), h) })
		task, err := d.Tasks.Get(h)
		if err != nil {
			t.Fatal(err)
		}
		if made := names(t, task.Path("upper")); len(made) > 0 {
			t.Errorf("%s has %v in its own layer", h.ID, made)
		}
		return task
	}
	layers := func(want int) []string {
		t.Helper()
		have := slices.DeleteFunc(names(t, d.places.dir), func(key string) bool { return !d.usedPlaces()[key] }) // those of self-tests
		if len(have) != want {
			t.Errorf("there are layers %v; expected %d", have, want)
		}
		return have
	}
	same := func(*runtime.Spec) {}
	first, second := start(same), start(same)
	layers(1)
	for _, task := range []*monitor.Task{first, second} {
		root := d.Root(task)
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(root, "etc"), &st); err != nil || st.Mode&0o7777 != 0o751 || st.Uid != 7 || st.Gid != 8 {
			t.Errorf("/etc has mode %o, user %d, group %d, %v; the image's has 751, 7, 8", st.Mode&0o7777, st.Uid, st.Gid, err)
		}
		if in := names(t, filepath.Join(root, "run")); !slices.Equal(in, []string{"own"}) {
			t.Errorf("/run has %v; the image takes all of it away", in)
		}
	}
	// What one container writes is not another's.
	if err := os.WriteFile(filepath.Join(d.Root(first), "etc/hostname.mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if in := names(t, filepath.Join(d.Root(second), "etc")); slices.Contains(in, "hostname.mine") {
		t.Errorf("another's /etc has %v", in)
	}
	other := start(func(s *runtime.Spec) { s.Mounts[0].Target = "/data" })
	start(func(s *runtime.Spec) {
		users := runtime.ProbeUsers()
		s.UserNS = &users
	})
	layers(2) // of which the first is mapped to those users

	// The next agent keeps what tasks have, and removes what none has and what a crash has left.
	half := filepath.Join(d.places.dir, ".x", "root")
	if err := errors.Join(d.Remove(t.Context(), other.Record().Handle), d.Close(), os.MkdirAll(half, 0o755),
		unix.Mount("tmpfs", half, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	kept := outsideOf(first).Places
	d = open()
	start(same)
	if have := layers(1); !slices.Contains(have, kept) {
		t.Errorf("there are %v; %s is in use", have, kept)
	}
	if slices.Contains(names(t, d.places.dir), ".x") {
		t.Error("what a crash left is still there")
	}
}
